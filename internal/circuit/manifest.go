// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"fmt"
	"slices"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/kernel"
	"github.com/metrale/metrale/internal/plan"
)

// checkManifest holds every launch against its kernel's manifest: arguments, element types, shapes, attributes. It is the
// verifier after lowering.
func checkManifest(p *plan.Plan, class *kernel.Class) error {
	for i := range p.Launches {
		l := &p.Launches[i]
		k := class.Kernels[l.Kernel]
		if k == nil {
			return diag.Errorf(diag.Internal, "launch %s: class %s has no kernel %s", l.Name, class.Name, l.Kernel)
		}
		if err := checkLaunch(p, l, k); err != nil {
			e := diag.Errorf(diag.Unsupported, "launch %s (kernel %s): %s", l.Name, l.Kernel, err).Because(err)
			return e
		}
	}
	return nil
}

func checkLaunch(p *plan.Plan, l *plan.Launch, k *kernel.Kernel) error {
	env := kernel.NewEnv(map[string]int64{"page_size": p.Limits.PageSize, "pages": p.Limits.Pages})
	for name, size := range map[string]int64{plan.Rows: p.Limits.Rows, plan.Seqs: p.Limits.Seqs, plan.Outs: p.Limits.Outs} {
		env.Sizes[name], env.Names[name] = size, name
	}
	for _, a := range k.Attrs {
		i := slices.IndexFunc(l.Attrs, func(x plan.Attr) bool { return x.Name == a.Name })
		if i < 0 {
			return fmt.Errorf("attribute %s is missing", a.Name)
		}
		got := l.Attrs[i]
		if kind := map[string]plan.AttrKind{"int": plan.IntAttr, "float": plan.FloatAttr, "str": plan.StrAttr}[a.Type]; got.Kind != kind {
			return fmt.Errorf("attribute %s is no %s", a.Name, a.Type)
		}
		if got.Kind == plan.IntAttr {
			env.Sizes[a.Name] = got.Int
		}
	}
	var arrays []kernel.Array
	for i := range l.Args {
		a := &l.Args[i]
		m := k.Arg(a.Param)
		if m == nil {
			return fmt.Errorf("it has no argument %s", a.Param)
		}
		if a.Kind == plan.ArgStep {
			continue
		}
		name, d, axes := p.Array(a)
		if !slices.Contains(m.DTypes, d) {
			return fmt.Errorf("argument %s is %s of type %v; the kernel takes %v", a.Param, name, d, m.DTypes)
		}
		arrays = append(arrays, kernel.Array{Arg: m, Axes: fromPlanAxes(axes)})
	}
	if err := env.Unify(k, arrays); err != nil {
		return err
	}
	for _, c := range k.Where {
		if ok, err := env.Holds(c); err != nil || !ok {
			return fmt.Errorf("%q does not hold (%v)", c, err)
		}
	}
	return nil
}
