// SPDX-License-Identifier: MIT OR Apache-2.0

package cuda

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/kernel"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// launchConfig is CUlaunchConfig.
type launchConfig struct {
	grid, block [3]uint32
	shared      uint32
	_           uint32
	stream      uintptr
	attrs       unsafe.Pointer // *launchAttr
	numAttrs    uint32
	_           uint32
}

// launchAttr is CUlaunchAttribute: an id, padding, and a union of 64 bytes.
type launchAttr struct {
	id    uint32
	_     uint32
	value [16]uint32
}

// launch is a bound launch, and those of the same kernel that follow it. It lies on the heap and does not move; the driver reads it during the call.
type launch struct {
	dev     *Device
	name    string // as errors name it: "launch L00.attn.q (kernel linear, entry linear_bf16)"
	handle  uintptr
	config  launchConfig
	attrs   [2]launchAttr
	values  []byte           // the parameters' values, each aligned
	params  []unsafe.Pointer // to each value
	buffers []*buffer
	// programmatic says that the last attribute lets the launch begin before its predecessor has ended.
	programmatic bool
	args         string // arguments, for errors
	next         *launch
}

// binding is a launch in preparation.
type binding struct {
	*gpu.Binding
	dev  *Device
	k    *kernel.Kernel
	env  *kernel.Env
	args map[string]*gpu.Arg
	decl *kernel.Launch // of l
	l    *launch
}

// Bind checks a launch against its manifest and the compiled entry, and evaluates its expressions.
func (d *Device) Bind(g gpu.Binding) (gpu.Launch, error) {
	d.enter()
	defer d.leave()
	if d.dead != nil {
		return nil, d.dead
	}
	b := &binding{Binding: &g, dev: d, k: d.opts.Class.Kernels[g.Kernel], args: map[string]*gpu.Arg{}, l: &launch{dev: d}}
	first := b.l
	if b.k == nil || b.k.Launch == nil {
		return nil, diag.Errorf(diag.Internal, "launch %s: class %s has no kernel %q that it can start", g.Name, d.opts.Class.Name, g.Kernel)
	}
	if err := b.bind(); err != nil {
		return nil, diag.Errorf(diag.CodeOf(err), "launch %s (kernel %s): %w; arguments: %s", g.Name, g.Kernel, err, b.describe())
	}
	return first, nil
}

func (b *binding) bind() error {
	if err := b.unify(); err != nil {
		return err
	}
	exprs := b.Grid
	if len(exprs) == 0 {
		exprs = b.k.Expressions()
	}
	launches := b.k.Launches()
	if len(exprs) != 5*len(launches) {
		return fmt.Errorf("%d grid expressions for %d launches", len(exprs), len(launches))
	}
	for i, decl := range launches {
		if i > 0 {
			b.l.next = &launch{dev: b.dev}
			b.l = b.l.next
		}
		b.decl = decl
		if err := b.one(exprs[5*i : 5*i+5]); err != nil {
			return err
		}
	}
	return nil
}

// one prepares launch l as decl says.
func (b *binding) one(grid []string) error {
	module, err := kernel.Expand(b.decl.Module, b.lookup)
	if err != nil {
		return err
	}
	entry, err := kernel.Expand(b.decl.Entry, b.lookup)
	if err != nil {
		return err
	}
	f, err := b.dev.function(module, entry)
	if err != nil {
		return err
	}
	b.l.name = fmt.Sprintf("launch %s (kernel %s, entry %s)", b.Name, b.Kernel, entry)
	b.l.handle, b.l.args = f.handle, b.describe()
	if err := b.pack(f); err != nil {
		return err
	}
	return b.configure(f, grid)
}

// unify holds the arrays and attributes against the manifest.
func (b *binding) unify() error {
	ints := map[string]int64{plan.Rows: b.Limits.Rows, plan.Seqs: b.Limits.Seqs, plan.Outs: b.Limits.Outs}
	for _, a := range b.k.Attrs {
		i := slices.IndexFunc(b.Attrs, func(x plan.Attr) bool { return x.Name == a.Name })
		if i < 0 {
			return fmt.Errorf("attribute %s is missing", a.Name)
		}
		if b.Attrs[i].Kind == plan.IntAttr {
			ints[a.Name] = b.Attrs[i].Int
		}
	}
	b.env = kernel.NewEnv(ints)
	arrays, err := b.arrays()
	if err != nil {
		return err
	}
	for _, m := range b.k.Args {
		if b.args[m.Name] == nil && !m.Optional {
			return fmt.Errorf("argument %s is missing", m.Name)
		}
	}
	if err := b.env.Unify(b.k, arrays); err != nil {
		return err
	}
	for name, v := range map[string]int64{"page_size": b.Limits.PageSize, "pages": b.Limits.Pages, "sms": int64(b.dev.found.Multiprocessors)} {
		if _, ok := b.env.Sizes[name]; !ok {
			b.env.Sizes[name] = v
		}
	}
	for name, a := range b.args {
		if b.k.Arg(name).Kind == kernel.WeightArg {
			b.env.Sizes[name+kernel.Bits] = a.DType.Bits()
		}
	}
	for _, c := range b.k.Where {
		if ok, err := b.env.Holds(c); err != nil || !ok {
			return fmt.Errorf("%q does not hold (%v)", c, err)
		}
	}
	return nil
}

// arrays checks that the arguments lie in the device's memory, and gives those whose shapes the manifest states.
func (b *binding) arrays() (arrays []kernel.Array, err error) {
	for i := range b.Args {
		a := &b.Args[i]
		m := b.k.Arg(a.Param)
		if m == nil {
			return nil, fmt.Errorf("the kernel has no argument %s", a.Param)
		}
		b.args[a.Param] = a
		buf, ok := a.Buf.(*buffer)
		if !ok || buf.dev != b.dev {
			return nil, fmt.Errorf("argument %s lies in another device's memory", a.Param)
		}
		need := a.DType.Bytes(a.Axes.Shape().Elems())
		if a.Layout != "" {
			need = 0 // packed: its layout knows how many
		}
		if err := buf.check(a.Off, need); err != nil {
			return nil, fmt.Errorf("argument %s: %w", a.Param, err)
		}
		b.l.buffers = append(b.l.buffers, buf)
		axes := a.Axes
		switch m.Kind {
		case kernel.StepArg:
			continue
		case kernel.StateArg: // the manifest has the axes of one token or slot
			if len(axes) < len(m.Shape) {
				return nil, fmt.Errorf("argument %s has %d axes", a.Param, len(axes))
			}
			axes = axes[len(axes)-len(m.Shape):]
		}
		list := make([]kernel.Axis, len(axes))
		for j, x := range axes {
			list[j] = kernel.Axis(x)
		}
		arrays = append(arrays, kernel.Array{Arg: m, Axes: list})
	}
	return arrays, nil
}

// lookup gives what a placeholder of module and entry stands for.
func (b *binding) lookup(name string) (string, error) {
	if arg, ok := strings.CutSuffix(name, ".dtype"); ok {
		if a := b.args[arg]; a != nil {
			return a.DType.String(), nil
		}
		return "none", nil
	}
	for _, a := range b.Attrs {
		if a.Name == name && a.Kind == plan.StrAttr {
			return a.Str, nil
		}
	}
	v, err := tensor.Eval(name, b.env.Sizes)
	return strconv.FormatInt(v, 10), err
}

// paramAlign is the alignment of a parameter's value on the host; tensor maps need it.
const paramAlign = 64

// pack writes the parameters' values and compares each with what the entry takes.
func (b *binding) pack(f *function) error {
	list := b.decl.Params
	if len(list) != len(f.params) {
		return fmt.Errorf("entry %s takes %d parameters, the manifest passes %d", f.name, len(f.params), len(list))
	}
	params := make([]kernel.LaunchParam, len(list))
	size := 0
	for i, text := range list {
		p, err := b.k.Param(text)
		if err != nil {
			return err
		}
		if p.Kind.Size() != f.params[i] {
			return fmt.Errorf("parameter %d of entry %s has %d bytes, the manifest's %s has %d", i, f.name, f.params[i], text, p.Kind.Size())
		}
		params[i] = p
		size += (p.Kind.Size() + paramAlign - 1) &^ (paramAlign - 1)
	}
	raw := make([]byte, size+paramAlign)
	skip := -int(uintptr(unsafe.Pointer(&raw[0]))) & (paramAlign - 1)
	b.l.values = raw
	b.l.params = make([]unsafe.Pointer, len(list))
	for i, p := range params {
		at := unsafe.Pointer(&raw[skip])
		b.l.params[i] = at
		if err := b.value(p, at); err != nil {
			return fmt.Errorf("parameter %s: %w", list[i], err)
		}
		skip += (p.Kind.Size() + paramAlign - 1) &^ (paramAlign - 1)
	}
	return nil
}

// value writes one parameter.
func (b *binding) value(p kernel.LaunchParam, at unsafe.Pointer) error {
	switch p.Kind {
	case kernel.PointerParam:
		if a := b.args[p.Arg]; a != nil {
			*(*uintptr)(at) = a.Buf.(*buffer).ptr + uintptr(a.Off)
		}
		return nil
	case kernel.CountParam:
		head := b.args["head"]
		axis := p.Axis
		if n, ok := b.env.Names[axis]; ok {
			axis = n
		}
		i := slices.Index([]string{plan.Rows, plan.Seqs, plan.Outs}, axis) // as the step block's head has them
		if head == nil || i < 0 {
			return fmt.Errorf("the step does not count %s", axis)
		}
		*(*uintptr)(at) = head.Buf.(*buffer).ptr + uintptr(head.Off) + uintptr(4*i)
		return nil
	case kernel.FloatParam:
		for _, a := range b.Attrs {
			if a.Name == p.Attr && a.Kind == plan.FloatAttr {
				*(*float32)(at) = float32(a.Float)
				return nil
			}
		}
		return fmt.Errorf("there is no float attribute %s", p.Attr)
	case kernel.MapParam:
		return b.tensorMap(p, at)
	}
	v, err := tensor.Eval(p.Expr, b.env.Sizes)
	if err != nil {
		return err
	}
	if p.Kind == kernel.LongParam {
		*(*int64)(at) = v
		return nil
	}
	if v < math.MinInt32 || v > math.MaxInt32 {
		return fmt.Errorf("%d does not fit 32 bits", v)
	}
	*(*int32)(at) = int32(v)
	return nil
}

// configure evaluates the grid and sets the launch's attributes.
func (b *binding) configure(f *function, grid []string) error {
	var v [5]int64 // grid x, y, z, block, shared
	for i, x := range grid {
		var err error
		if v[i], err = tensor.Eval(x, b.env.Sizes); err != nil {
			return err
		}
	}
	cluster := b.decl.Cluster
	most := int64(b.dev.found.SharedPerBlock)
	switch {
	case v[0] < 1 || v[0] > math.MaxInt32 || v[1] < 1 || v[1] > 65535 || v[2] < 1 || v[2] > 65535:
		return fmt.Errorf("a grid of %d × %d × %d blocks", v[0], v[1], v[2])
	case v[3] < 1 || v[3] > int64(f.maxThreads):
		return fmt.Errorf("blocks of %d threads; entry %s takes at most %d", v[3], f.name, f.maxThreads)
	case v[4] < 0 || v[4]+int64(f.static) > most:
		return fmt.Errorf("%d bytes of shared memory and %d static ones; the device has %d a block", v[4], f.static, most)
	case v[0]%cluster != 0:
		return fmt.Errorf("%d blocks along x are no whole clusters of %d", v[0], cluster)
	}
	if err := b.dev.allow(f, int(v[4]), cluster, b.decl.Carveout); err != nil {
		return err
	}
	if b.decl.Resident {
		if err := b.dev.holds(f, v[0]*v[1]*v[2], v[3], v[4]); err != nil {
			return err
		}
	}
	l := b.l
	l.config = launchConfig{grid: [3]uint32{uint32(v[0]), uint32(v[1]), uint32(v[2])}, block: [3]uint32{uint32(v[3]), 1, 1}, shared: uint32(v[4]), stream: b.dev.stream}
	if cluster > 1 {
		l.attrs[l.config.numAttrs] = launchAttr{id: launchCluster, value: [16]uint32{uint32(cluster), 1, 1}}
		l.config.numAttrs++
	}
	if b.decl.PDL {
		l.attrs[l.config.numAttrs] = launchAttr{id: launchPDL, value: [16]uint32{1}}
		l.config.numAttrs++
		l.programmatic = true
	}
	l.config.attrs = unsafe.Pointer(&l.attrs)
	return nil
}

// describe lists the arguments for errors: x f32 [rows 8, hidden 64].
func (b *binding) describe() string {
	var s []string
	for i := range b.Args {
		a := &b.Args[i]
		s = append(s, fmt.Sprintf("%s %v %v", a.Param, a.DType, a.Axes))
	}
	for _, a := range b.Attrs {
		s = append(s, a.Name+"="+a.Value())
	}
	return strings.Join(s, ", ")
}
