// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/metrale/metrale/internal/circuit"
	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/kernel"
	"github.com/metrale/metrale/kernels"
)

// newKernelsCmd is `met kernels`: the kernel tree that the binary carries.
func newKernelsCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "kernels", Short: "List, show and check the kernels that this binary carries",
		Long: `The kernel tree is embedded: manifests and sources of every hardware class, and what kbuild had compiled when the
binary was built. A target is a class, or a leaf <class>/<model>/<quant> that picks points and constants for one model.`, RunE: group}
	cmd.AddCommand(newKernelsListCmd(), newKernelsShowCmd(), newKernelsCheckCmd())
	return cmd
}

func newKernelsListCmd() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the targets: what each serves, and whether its code is in this binary", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return listTargets(cmd.OutOrStdout(), kernels.FS) },
	}
}

func newKernelsShowCmd() *cobra.Command {
	return &cobra.Command{
		Use: "show <target> [kernel]", Short: "Print a target's layers, modules and kernels, or one kernel's manifest", Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				return showKernel(cmd.OutOrStdout(), kernels.FS, args[0], args[1])
			}
			return showTarget(cmd.OutOrStdout(), kernels.FS, args[0])
		},
	}
}

func newKernelsCheckCmd() *cobra.Command {
	return &cobra.Command{
		Use: "check", Short: "Hold the tree and its compiled code against the tree's rules", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return checkTree(cmd.OutOrStdout(), kernels.FS) },
	}
}

// carriedHardware says in a line what the binary can run on.
func carriedHardware(fsys fs.FS) (string, error) {
	carried, err := kernel.Carried(fsys)
	if err != nil {
		return "", err
	}
	list := []string{"cpu"}
	for _, class := range slices.Sorted(maps.Keys(carried)) {
		if x := carried[class]; len(x.Modules) > 0 {
			list = append(list, fmt.Sprintf("%s (%s, %s)", class, x.Arch, plural(len(x.Modules), "module")))
		}
	}
	if len(list) == 1 {
		list[0] += "; built without kbuild, so no GPU's kernels are in it"
	}
	return strings.Join(list, ", "), nil
}

func plural(n int, what string) string {
	switch {
	case n == 1:
		return "1 " + what
	case strings.HasSuffix(what, "s"):
		what += "e"
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// loadTargets reads the tree and what is compiled of it.
func loadTargets(fsys fs.FS) (*kernel.Tree, map[string]*kernel.Index, error) {
	tree, err := kernel.Load(fsys)
	if err != nil {
		return nil, nil, err
	}
	carried, err := kernel.Carried(fsys)
	return tree, carried, err
}

// codeOf says where a target's code is.
func codeOf(t *kernel.Target, x *kernel.Index) string {
	switch {
	case t.Class.Vendor == kernel.AnyVendor:
		return "Go"
	case len(t.Kernels) == 0:
		return "no kernels yet"
	case x == nil || t.Model != nil && x.Targets[t.Name()] == nil:
		return "not in this binary"
	case t.Model != nil:
		return "the class's, and " + plural(len(x.Targets[t.Name()]), "module") + " of its own"
	}
	return plural(len(x.Modules), "module") + " by " + x.Compiler
}

func listTargets(out io.Writer, fsys fs.FS) error {
	tree, carried, err := loadTargets(fsys)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TARGET\tARCH\tSERVES\tCODE")
	for _, name := range slices.Sorted(maps.Keys(tree.Targets)) {
		t := tree.Targets[name]
		serves, arch := "every model", t.Class.Arch
		if t.Model != nil {
			serves = matchText(t.Model.Matches)
		} else if t.Class.Partial {
			serves = "circuits of " + opsText(t.Class.Ops())
		}
		if arch == "" {
			arch = "any"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", name, arch, serves, codeOf(t, carried[t.Class.Name]))
	}
	return w.Flush()
}

// opsText lists ops, or counts them if there are many.
func opsText(ops []string) string {
	if len(ops) > 4 {
		return plural(len(ops), "op")
	}
	return strings.Join(ops, ", ")
}

// matchText is "llama/4096, mistral".
func matchText(list []kernel.Match) string {
	var out []string
	for _, m := range list {
		s := m.ModelType
		if m.HiddenSize > 0 {
			s += fmt.Sprintf("/%d", m.HiddenSize)
		}
		out = append(out, s)
	}
	return strings.Join(out, ", ")
}

// target finds a target by name.
func target(tree *kernel.Tree, name string) (*kernel.Target, error) {
	if t := tree.Targets[name]; t != nil {
		return t, nil
	}
	return nil, diag.Errorf(diag.NotFound, "no kernel target %q; there are %s", name, strings.Join(slices.Sorted(maps.Keys(tree.Targets)), ", "))
}

func showTarget(out io.Writer, fsys fs.FS, name string) error {
	tree, carried, err := loadTargets(fsys)
	if err != nil {
		return err
	}
	t, err := target(tree, name)
	if err != nil {
		return err
	}
	x := carried[t.Class.Name]
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(cells ...string) { fmt.Fprintln(w, strings.Join(cells, "\t")) }
	row("target", name)
	row("class", strings.Join(t.Class.Chain, " < "))
	row("arch", t.Class.Arch)
	row("layers", strings.Join(t.Layers(), ", "))
	row("flags", strings.Join(t.Class.Build.Flags, " "))
	row("defaults", fmt.Sprintf("kv %s, pages of %d tokens", t.Class.Defaults.KV, t.Class.Defaults.PageSize))
	if m := t.Model; m != nil {
		row("model", m.Doc)
		row("serves", matchText(m.Matches)+"; names "+strings.Join(m.MatchNames, ", "))
		for _, preset := range slices.Sorted(maps.Keys(m.Sampling)) {
			row("sampling "+preset, m.Sampling[preset].String())
		}
		if m.Behavior != (kernel.Behavior{}) {
			row("behavior", m.Behavior.String())
		}
	}
	row("code", codeOf(t, x))
	if err := w.Flush(); err != nil {
		return err
	}
	if err := showModules(out, t, x); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nKERNEL\tFAMILY\tMODULE\tENTRY")
	for _, name := range slices.Sorted(maps.Keys(t.Kernels)) {
		k := t.Kernels[name]
		module, entry := "", ""
		if k.Launch != nil {
			module, entry = k.Launch.Module, k.Launch.Entry
		}
		row(name, k.Family, module, entry)
	}
	return w.Flush()
}

// showModules prints what a target compiles.
func showModules(out io.Writer, t *kernel.Target, x *kernel.Index) error {
	if len(t.Modules) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nMODULE\tSOURCE\tHASH\tENTRIES\tREGISTERS\tBYTES")
	for _, name := range slices.Sorted(maps.Keys(t.Modules)) {
		var o *kernel.Object
		if x != nil {
			o = x.Object(t.Name(), name)
		}
		if o == nil {
			fmt.Fprintf(w, "%s\t%s\t-\t-\t-\t-\n", name, t.Modules[name].Source)
			continue
		}
		most := 0
		for _, u := range o.Entries {
			most = max(most, u.Registers)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t≤%d\t%d\n", name, o.Source, o.Hash[:12], len(o.Entries), most, o.Bytes)
	}
	return w.Flush()
}

func showKernel(out io.Writer, fsys fs.FS, name, kernelName string) error {
	tree, carried, err := loadTargets(fsys)
	if err != nil {
		return err
	}
	t, err := target(tree, name)
	if err != nil {
		return err
	}
	k := t.Kernels[kernelName]
	if k == nil {
		has := slices.Sorted(maps.Keys(t.Kernels))
		if len(has) > 8 {
			has = []string{plural(len(has), "kernel") + ", which met kernels show " + name + " lists"}
		}
		return diag.Errorf(diag.NotFound, "target %s has no kernel %q; it has %s", name, kernelName, strings.Join(has, ", "))
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(cells ...string) { fmt.Fprintln(w, strings.Join(cells, "\t")) }
	row("kernel", k.Name)
	row("family", k.Family)
	row("doc", k.Doc)
	for _, a := range k.Args {
		types := make([]string, len(a.DTypes))
		for i, d := range a.DTypes {
			types[i] = d.String()
		}
		if a.Kind == kernel.StepArg {
			row("arg "+a.Name, "step")
			continue
		}
		row("arg "+a.Name, fmt.Sprintf("%s %s [%s] %s %s", a.Kind, a.Access, strings.Join(a.Shape, ", "), strings.Join(types, "|"), a.Layout))
	}
	for _, a := range k.Attrs {
		row("attr "+a.Name, strings.TrimSpace(a.Type+" "+strings.Join(a.Values, "|")))
	}
	for _, c := range k.Where {
		row("where", c)
	}
	for i, l := range k.Launches() {
		if i > 0 {
			row("then")
		}
		row("module", l.Module)
		row("entry", l.Entry)
		row("params", strings.Join(l.Params, ", "))
		row("grid", strings.Join(l.Grid, ", "))
		row("block", l.Block)
		row("shared", l.Shared)
	}
	if k.Reference != "" {
		row("reference", k.Reference)
	}
	for _, tol := range []*kernel.Tolerance{k.Tolerance, k.Many} {
		if tol == nil {
			continue
		}
		row("tolerance", fmt.Sprintf("%g + %g*|reference|: %s", tol.Abs, tol.Rel, tol.Why))
		if tol.Over > 0 {
			row("", fmt.Sprintf("of more than %d rows", tol.Over))
		}
		if len(tol.Rounded) > 0 {
			row("", "of a reference that reads "+strings.Join(tol.Rounded, ", ")+" rounded to bf16")
		}
	}
	if err := w.Flush(); err != nil || k.Launch == nil {
		return err
	}
	return showEntries(out, t, k, carried[t.Class.Name])
}

// showEntries prints what the compiler said of the entries of the kernel's modules.
func showEntries(out io.Writer, t *kernel.Target, k *kernel.Kernel, x *kernel.Index) error {
	if x == nil {
		_, err := fmt.Fprintln(out, "\nits code is not in this binary")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nENTRY\tMODULE\tREGISTERS\tSPILLS\tSHARED")
	for _, s := range x.Entries(t, k) {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\n", s.Name, s.Module, s.Usage.Registers, s.Usage.SpillBytes, s.Usage.StaticShared)
	}
	return w.Flush()
}

func checkTree(out io.Writer, fsys fs.FS) error {
	tree, carried, err := loadTargets(fsys)
	if err != nil {
		return err
	}
	bad := tree.Check(fsys)
	if err := circuit.Check(fsys); err != nil {
		bad = append(bad, err)
	}
	for _, err := range bad {
		fmt.Fprintln(out, err)
	}
	if len(bad) > 0 {
		return diag.Errorf(diag.Format, "%s in the kernel tree", plural(len(bad), "fault"))
	}
	maps.DeleteFunc(carried, func(_ string, x *kernel.Index) bool { return len(x.Modules) == 0 })
	_, err = fmt.Fprintf(out, "%s, %s and %s with compiled code: in order\n", plural(len(tree.Targets), "target"), plural(countKernels(tree), "kernel"), plural(len(carried), "class"))
	return err
}

func countKernels(tree *kernel.Tree) (n int) {
	for _, c := range tree.Classes {
		n += len(c.Kernels)
	}
	return n
}
