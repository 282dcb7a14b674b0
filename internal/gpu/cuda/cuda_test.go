// SPDX-License-Identifier: MIT OR Apache-2.0

package cuda

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"unsafe"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/kernel"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

func TestStructsHaveTheDriversSize(t *testing.T) {
	var c launchConfig
	var a launchAttr
	if unsafe.Sizeof(c) != 56 || unsafe.Offsetof(c.stream) != 32 || unsafe.Offsetof(c.numAttrs) != 48 {
		t.Errorf("CUlaunchConfig is 56 bytes, ours %d", unsafe.Sizeof(c))
	}
	if unsafe.Sizeof(a) != 72 || unsafe.Offsetof(a.value) != 8 {
		t.Errorf("CUlaunchAttribute is 72 bytes, ours %d", unsafe.Sizeof(a))
	}
	seen := map[string]bool{}
	for e, x := range entries {
		if !strings.HasPrefix(x.symbol, "cu") || seen[x.symbol] {
			t.Errorf("entry %d is %q", e, x.symbol)
		}
		seen[x.symbol] = true
	}
}

func TestNoDriverIsOneLine(t *testing.T) {
	_, err := Query("libno-such-driver.so.9")
	if !diag.Is(err, diag.Unsupported) || !strings.HasPrefix(err.Error(), "no CUDA driver: ") || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v", err)
	}
}

func axes(pairs ...any) (out plan.Axes) {
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, plan.Axis{Name: pairs[i].(string), Size: int64(pairs[i+1].(int))})
	}
	return out
}

// goodBinding is a launch: 8 rows, 16 to 24 values, pools of 5 pages.
func goodBinding(t testing.TB, d *Device) gpu.Binding {
	t.Helper()
	alloc := func(n int64) gpu.Buffer {
		b, err := d.Alloc("memory", n)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	arena := alloc(4096)
	return gpu.Binding{
		Name: "L00.q", Kernel: "linear", Grid: []string{"2*ceil(N, 8)", "R", "n", "256", "4*K*16", "R", "1", "1", "32", "0"},
		Args: []gpu.Arg{
			{Param: "head", Buf: alloc(64), DType: tensor.I32, Axes: axes("head", 8)},
			{Param: "x", Buf: arena, Off: 512, DType: tensor.F32, Axes: axes("rows", 8, "k", 32)},
			{Param: "w", Buf: alloc(24 * 32 * 2), DType: tensor.BF16, Axes: axes("n", 24, "k", 32), Layout: "dense"},
			{Param: "bias", Buf: alloc(96), DType: tensor.F32, Axes: axes("n", 24), Layout: "f32"},
			{Param: "pool", Buf: alloc(5 * 16 * 8 * 2), DType: tensor.BF16, Axes: axes("num_pages", 5, "page_size", 16, "heads", 2, "dim", 4), Access: plan.InOut},
			{Param: "y", Buf: arena, Off: 2048, DType: tensor.F32, Axes: axes("rows", 8, "n", 24), Access: plan.Out},
		},
		Attrs:  []plan.Attr{{Name: "scale", Kind: plan.FloatAttr, Float: 0.5}, {Name: "mode", Kind: plan.StrAttr, Str: "fast"}, {Name: "n", Kind: plan.IntAttr, Int: 3}},
		Limits: plan.Limits{Rows: 8, Seqs: 2, Outs: 2, PageSize: 16, Pages: 7},
	}
}

func TestALaunchPassesWhatTheManifestSays(t *testing.T) {
	f, d := openFake(t)
	g := goodBinding(t, d)
	l, err := d.Bind(g)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := d.Launch(l); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
	if first := f.started[0].attrs; len(first) != 1 || first[0].id != launchCluster {
		t.Errorf("the launch behind copies has attributes %+v, want no programmatic start", first)
	}
	s := f.started[2]
	if s.kernel != "linear_bf16_f32_fast_4" || s.config.grid != [3]uint32{6, 8, 3} || s.config.block != [3]uint32{256, 1, 1} || s.config.shared != 2048 || s.config.stream != d.stream {
		t.Errorf("%s %+v", s.kernel, s.config)
	}
	if len(s.attrs) != 2 || s.attrs[0].id != launchCluster || s.attrs[0].value[0] != 2 || s.attrs[1].id != launchPDL || s.attrs[1].value[0] != 1 {
		t.Errorf("attributes %+v", s.attrs)
	}
	for i, a := range g.Args {
		if got, want := uintptr(binary.LittleEndian.Uint64(s.params[i])), a.Buf.(*buffer).ptr+uintptr(a.Off); got != want {
			t.Errorf("argument %s is passed as %x, not %x", a.Param, got, want)
		}
	}
	u32 := func(i int) uint32 { return binary.LittleEndian.Uint32(s.params[i]) }
	if u32(6) != 24 || math.Float32frombits(u32(7)) != 0.5 || u32(8) != 96 || binary.LittleEndian.Uint64(s.params[9]) != 112 {
		t.Errorf("scalars %v", s.params[6:10])
	}
	if want := []uint64{7, 2, 32, 8, 128, 32, 4, 3}; !slices.Equal(f.maps[0], want) {
		t.Errorf("tensor map %v, want %v", f.maps[0], want)
	}
	// The kernel's second launch follows, and finds the step's counts of rows and sequences.
	if n := f.started[3]; n.kernel != "finish" || n.config.grid != [3]uint32{8, 1, 1} || len(n.attrs) != 0 {
		t.Errorf("%s %+v", n.kernel, n.config)
	} else {
		for i, off := range []int{0: 0, 2: 4} {
			if got, want := uintptr(binary.LittleEndian.Uint64(n.params[i])), g.Args[0].Buf.(*buffer).ptr+uintptr(off); i != 1 && got != want {
				t.Errorf("count %d is passed as %x, not %x", i, got, want)
			}
		}
	}
	// An absent argument is null and chooses the entry.
	g.Args = slices.Delete(slices.Clone(g.Args), 3, 4)
	g.Args[2].DType = tensor.F32
	if l, err = d.Bind(g); err != nil {
		t.Fatal(err)
	}
	if err := d.Launch(l); err != nil {
		t.Fatal(err)
	}
	if s := f.started[4]; s.kernel != "linear_f32_none_fast_4" || binary.LittleEndian.Uint64(s.params[3]) != 0 {
		t.Errorf("%s %v", s.kernel, s.params[3])
	}
	if n := testing.AllocsPerRun(50, func() {
		f.calls, f.started = f.calls[:0], nil
		f.capture, f.graphs = true, append(f.graphs[:0], 0) // the fake allocates unless it records
		if err := d.Launch(l); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations per launch", n)
	}
}

// TestTensorMapsOfStates: pages and their tokens are one axis, the outermost.
func TestTensorMapsOfStates(t *testing.T) {
	f, d := openFake(t)
	pool := &goodBinding(t, d).Args[4]
	pool.Axes = axes("num_pages", 5, "page_size", 16, "heads", 2, "dim", 8)
	b := &binding{dev: d, k: d.opts.Class.Kernels["linear"], args: map[string]*gpu.Arg{"pool": pool}, env: kernel.NewEnv(nil)}
	p, err := b.k.Param("tmap:pool:16x1x8:none")
	if err != nil {
		t.Fatal(err)
	}
	var m [16]uint64
	if err := b.tensorMap(p, unsafe.Pointer(&m)); err != nil {
		t.Fatal(err)
	}
	// bf16, of three axes: extents, strides in bytes and box, innermost first; no swizzle.
	if want := []uint64{9, 3, 8, 2, 80, 16, 32, 8, 1, 16, 0}; !slices.Equal(f.maps[0], want) {
		t.Errorf("tensor map %v, want %v", f.maps[0], want)
	}
	if _, err := b.k.Param("tmap:pool:1x8:none"); err == nil {
		t.Error("a box without tokens is read")
	}
}

// TestTensorMapsOfViews: a matrix as matrices of fewer rows, its halves in turns; nothing past its values.
func TestTensorMapsOfViews(t *testing.T) {
	f, d := openFake(t)
	b := &binding{dev: d, k: d.opts.Class.Kernels["linear"], args: map[string]*gpu.Arg{}, env: kernel.NewEnv(nil)}
	w := &goodBinding(t, d).Args[1]
	w.Axes, w.DType = axes("N", 24, "K", 64), tensor.BF16
	b.args["w"] = w
	b.env.Sizes["N"], b.env.Sizes["K"] = 24, 64
	for text, want := range map[string][]uint64{
		"tmap:w[N/8,8,K]:2x8x64:128":            {9, 3, 64, 8, 3, 128, 1024, 64, 8, 2, 3},
		"tmap:w[3@4*K,2@12*K,4,K]:1x2x4x64:128": {9, 4, 64, 4, 2, 3, 128, 1536, 512, 64, 4, 2, 1, 3},
		"tmap:w[N/8,9,K]:2x4x64:128":            nil,
		"tmap:w[3@8*K,2@12*K,4,K]:1x2x4x64:128": nil,
	} {
		p, err := b.k.Param(text)
		if err != nil {
			t.Fatal(err)
		}
		var m [16]uint64
		if err := b.tensorMap(p, unsafe.Pointer(&m)); (err == nil) != (want != nil) {
			t.Errorf("%s: %v", text, err)
		} else if err == nil && !slices.Equal(f.maps[len(f.maps)-1], want) {
			t.Errorf("%s: tensor map %v, want %v", text, f.maps[len(f.maps)-1], want)
		}
	}
	for _, text := range []string{"tmap:w[N,K:1x64:128", "tmap:w[N,M]:1x64:128", "tmap:w[N@M,K]:1x64:128", "tmap:w[N,K]:64:128", "tmap:pool[N,K]:1x64:128"} {
		if _, err := b.k.Param(text); err == nil {
			t.Errorf("%s is read", text)
		}
	}
}

func TestBindNamesWhatIsWrong(t *testing.T) {
	f, d := openFake(t)
	f.entries["linear_f16_f32_fast_4"] = []int{8, 8, 8}
	f.entries["linear_bf16_f32_slow_4"] = []int{8, 8, 8, 8, 8, 8, 4, 4, 8, 8, 128}
	for name, c := range map[string]struct {
		change func(*gpu.Binding)
		want   string
	}{
		"kernel":    {func(g *gpu.Binding) { g.Kernel = "conv" }, `class hopper has no kernel "conv"`},
		"argument":  {func(g *gpu.Binding) { g.Args[1].Param = "z" }, "has no argument z"},
		"missing":   {func(g *gpu.Binding) { g.Args = g.Args[:5] }, "argument y is missing"},
		"axes":      {func(g *gpu.Binding) { g.Args[5].Axes = axes("rows", 8, "n", 25) }, "argument y: axis 1 is n=25, expected N=24"},
		"attribute": {func(g *gpu.Binding) { g.Attrs = g.Attrs[:2] }, "attribute n is missing"},
		"condition": {func(g *gpu.Binding) {
			g.Args[1].Axes, g.Args[2].Axes = axes("rows", 8, "k", 12), axes("n", 24, "k", 12)
		}, `"K % 8 == 0" does not hold`},
		"entry":       {func(g *gpu.Binding) { g.Attrs[1].Str = "best" }, "module linear/linear of class hopper has no entry linear_bf16_f32_best_4"},
		"parameters":  {func(g *gpu.Binding) { g.Args[2].DType = tensor.F16 }, "entry linear_f16_f32_fast_4 takes 3 parameters, the manifest passes 11"},
		"size":        {func(g *gpu.Binding) { g.Attrs[1].Str = "slow" }, "parameter 8 of entry linear_bf16_f32_slow_4 has 8 bytes, the manifest's i32:n*K has 4"},
		"past buffer": {func(g *gpu.Binding) { g.Args[1].Off = 4000 }, "argument x: cuda: 1024 bytes at 4000 of buffer memory of 4096"},
		"grid":        {func(g *gpu.Binding) { g.Grid[0] = "N - 24" }, "a grid of 0 × 8 × 3 blocks"},
		"cluster":     {func(g *gpu.Binding) { g.Grid[0] = "3" }, "3 blocks along x are no whole clusters of 2"},
		"block":       {func(g *gpu.Binding) { g.Grid[3] = "2048" }, "blocks of 2048 threads; entry linear_bf16_f32_fast_4 takes at most 1024"},
		"shared":      {func(g *gpu.Binding) { g.Grid[4] = "227*1024" }, "232448 bytes of shared memory and 1024 static ones; the device has 232448 a block"},
		"name":        {func(g *gpu.Binding) { g.Grid[4] = "threads" }, `unknown dim "threads"`},
		"freed":       {func(g *gpu.Binding) { g.Args[2].Buf.Free() }, "argument w: cuda: buffer memory was freed"},
		"resident": {func(g *gpu.Binding) { g.Grid[5], g.Grid[9] = "2*sms + 1", "100*1024" },
			"265 blocks of entry finish wait for each other; the device runs 264 of them at once (2 on each of 132 multiprocessors)"},
	} {
		g := goodBinding(t, d)
		c.change(&g)
		if _, err := d.Bind(g); err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "launch L00.q") {
			t.Errorf("%s: %v\nwant %s", name, err, c.want)
		} else if name != "kernel" && !strings.Contains(err.Error(), "arguments: head i32 [head 8]") {
			t.Errorf("%s: the error lists no arguments: %v", name, err)
		}
	}
	// Much shared memory is asked for once; a freed buffer is noticed.
	g := goodBinding(t, d)
	g.Grid[4] = "100*1024"
	l, err := d.Bind(g)
	if err != nil {
		t.Fatal(err)
	}
	if got := f.attrs["linear_bf16_f32_fast_4"][kernelMaxDynamic]; got != 100*1024 {
		t.Errorf("the entry may use %d bytes", got)
	}
	g.Args[0].Buf.Free()
	if err := d.Launch(l); err == nil || !strings.Contains(err.Error(), "buffer memory was freed") {
		t.Errorf("%v", err)
	}
}

func TestModulesAreCheckedBeforeTheyLoad(t *testing.T) {
	host := cubin(90)
	binary.LittleEndian.PutUint16(host[18:], 62) // x86-64
	const foreign = "module linear/linear is no native code of a CUDA device"
	for name, c := range map[string]struct {
		image  []byte // nil: none
		driver string
		code   diag.Code // "": it loads
		want   string
	}{
		"absent":                     {nil, "fake", diag.Unsupported, "this binary carries no module linear/linear of class hopper"},
		"other":                      {cubin(100), "fake", diag.Unsupported, "module linear/linear is compiled for sm_100; Fake H200 has compute capability 9.0"},
		"of the processor":           {host, "fake", diag.Format, foreign},
		"of the processor, NVIDIA's": {host, DefaultLibrary, diag.Format, foreign},
		"cut":                        {cubin(90)[:63], "fake", diag.Format, foreign},
		"no ELF, NVIDIA's":           {[]byte("METRALE-HOST x"), DefaultLibrary, diag.Format, foreign},
		"no ELF, of a stand-in":      {[]byte("METRALE-HOST x"), "fake", "", ""},
		"right":                      {cubin(90), DefaultLibrary, "", ""},
	} {
		f, modules := newFake(t), fstest.MapFS{}
		f.entries["linear_bf16_f32_fast_4"], f.entries["finish"] = []int{8, 8, 8, 8, 8, 8, 4, 4, 4, 8, 128}, []int{8, 8, 8}
		if c.image != nil {
			modules["linear.linear.cubin"] = &fstest.MapFile{Data: c.image}
		}
		drv := f.driver()
		drv.name = c.driver
		d, err := open(drv, Options{Class: testClass(t), Modules: modules})
		if err != nil {
			t.Fatal(err)
		}
		_, err = d.Bind(goodBinding(t, d))
		loaded := slices.Contains(f.calls, cuLibraryLoadData)
		if c.code == "" && (err != nil || !loaded) || c.code != "" && (!diag.Is(err, c.code) || !strings.Contains(err.Error(), c.want) || loaded) {
			t.Errorf("%s: %v", name, err)
		}
		d.Close()
	}
	f := newFake(t)
	class := testClass(t)
	class.Arch = "sm_100a"
	if _, err := open(f.driver(), Options{Class: class}); !diag.Is(err, diag.Unsupported) || !strings.Contains(err.Error(), "class hopper on Fake H200: the kernels are compiled for sm_100a; this device has compute capability 9.0") {
		t.Errorf("%v", err)
	}
	if _, err := open(f.driver(), Options{Class: testClass(t), Ordinal: 2}); !diag.Is(err, diag.Unsupported) {
		t.Errorf("%v", err)
	}
	for image, want := range map[string]int{string(cubin(121)): 121, "text": 0} {
		if got, _ := imageCapability([]byte(image)); got != want {
			t.Errorf("capability %d, want %d", got, want)
		}
	}
}

func TestALaunchThatLosesTheDeviceIsNamedOnce(t *testing.T) {
	f, d := openFake(t)
	l, err := d.Bind(goodBinding(t, d))
	if err != nil {
		t.Fatal(err)
	}
	f.fail[cuLaunchKernelEx] = 700
	if err := d.Launch(l); !diag.Is(err, diag.DeviceLost) || strings.Count(err.Error(), "launch L00.q (kernel linear, entry linear_bf16_f32_fast_4) of head ") != 1 {
		t.Errorf("%v", err)
	}
}

func TestALostDeviceStaysLost(t *testing.T) {
	f, d := openFake(t)
	l, err := d.Bind(goodBinding(t, d))
	if err != nil {
		t.Fatal(err)
	}
	b, _ := d.Alloc("b", 64)
	f.fail[cuLaunchKernelEx] = 1
	if err := d.Launch(l); !diag.Is(err, diag.Internal) || !strings.Contains(err.Error(), "launch L00.q (kernel linear, entry linear_bf16_f32_fast_4)") || !strings.Contains(err.Error(), "CUDA_ERROR_1, words about it") {
		t.Errorf("%v", err)
	}
	delete(f.fail, cuLaunchKernelEx)
	if err := d.Launch(l); err != nil {
		t.Fatal(err)
	}
	f.fail[cuStreamQuery] = 700
	first := d.Sync()
	if !diag.Is(first, diag.DeviceLost) || !strings.Contains(first.Error(), "CUDA_ERROR_700") || !strings.Contains(first.Error(), "the newest launch was launch L00.q (kernel linear, entry finish) of head ") {
		t.Fatalf("%v", first)
	}
	delete(f.fail, cuStreamQuery)
	calls := len(f.calls)
	_, bind := d.Bind(goodBindingOf(b))
	_, alloc := d.Alloc("c", 64)
	_, graph := d.Graph("g", []gpu.Launch{l})
	for what, err := range map[string]error{"launch": d.Launch(l), "sync": d.Sync(), "bind": bind, "alloc": alloc, "graph": graph, "write": b.Write(0, make([]byte, 4)), "read": b.Read(0, make([]byte, 4))} {
		if err == nil || err.Error() != first.Error() {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, e := range f.calls[calls:] {
		if e != cuCtxSetCurrent {
			t.Errorf("a lost device is asked for %s", entries[e].symbol)
		}
	}
}

func TestPeersAreEnabledOnce(t *testing.T) {
	f, d := openFake(t)
	other, err := open(d.drv, Options{Class: testClass(t), Ordinal: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for _, r := range []result{success, errPeerEnabled} {
		f.fail[cuCtxEnablePeerAccess] = r
		if err := d.EnablePeer(other); err != nil {
			t.Errorf("result %d: %v", r, err)
		}
	}
	f.fail[cuCtxEnablePeerAccess] = errInvalidValue
	if err := d.EnablePeer(other); err == nil || !strings.Contains(err.Error(), "enabling access to the memory of device 1: CUDA_ERROR_1") {
		t.Errorf("%v", err)
	}
	f.apart = true
	calls := len(f.calls)
	if err := d.EnablePeer(other); !diag.Is(err, diag.Unsupported) || err.Error() != "cuda: device 0 (Fake H200) has no access to the memory of device 1 (Fake H200)" {
		t.Errorf("%v", err)
	}
	if slices.Contains(f.calls[calls:], cuCtxEnablePeerAccess) {
		t.Error("devices that are apart are joined")
	}
}

func goodBindingOf(b gpu.Buffer) gpu.Binding {
	return gpu.Binding{Name: "L00.q", Kernel: "linear", Args: []gpu.Arg{{Param: "head", Buf: b}}}
}

func TestOutOfMemorySaysHowMuchThereIs(t *testing.T) {
	f, d := openFake(t)
	f.fail[cuMemAlloc] = errOutOfMemory
	if _, err := d.Alloc("weights", 1<<40); !diag.Is(err, diag.Unsupported) || !strings.Contains(err.Error(), "weights needs 1099511627776 bytes; 536870912 of 1073741824 are free on Fake H200") {
		t.Errorf("%v", err)
	}
	delete(f.fail, cuMemAlloc)
	if _, err := d.Alloc("small", 64); err != nil {
		t.Errorf("after it: %v", err)
	}
}

func TestMemoryKeepsWhatIsWritten(t *testing.T) {
	f, d := openFake(t)
	b, err := d.Alloc("b", 9<<20)
	if err != nil {
		t.Fatal(err)
	}
	want := make([]byte, 9<<20-100)
	for i := range want {
		want[i] = byte(i * 7)
	}
	got := make([]byte, len(want))
	if err := b.Write(60, want); err != nil {
		t.Fatal(err)
	}
	if err := b.Read(60, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("read back differs, %v", err)
	}
	if err := b.Write(9<<20-3, make([]byte, 4)); !diag.Is(err, diag.Internal) {
		t.Errorf("past the end: %v", err)
	}
	p, err := d.Pinned("step", 256)
	if err != nil {
		t.Fatal(err)
	}
	p.Float32s()[3] = 1.5
	if err := p.Upload(b, 128, 64); err != nil {
		t.Fatal(err)
	}
	clear(p.Bytes())
	if err := p.Download(b, 128, 64); err != nil || p.Float32s()[3] != 1.5 {
		t.Errorf("%v %v", p.Float32s()[3], err)
	}
	if err := p.Upload(b, 0, 257); !diag.Is(err, diag.Internal) {
		t.Errorf("more than there is: %v", err)
	}
	b.Free()
	p.Free()
	f.fail[cuMemHostAlloc], f.fail[cuEventCreate] = errOutOfMemory, errOutOfMemory
	if p, err := d.Pinned("step", 256); p != nil || !diag.Is(err, diag.Unsupported) {
		t.Errorf("%v, %v", p, err)
	}
	if m, err := d.Mark(); m != nil || !diag.Is(err, diag.Unsupported) {
		t.Errorf("%v, %v", m, err)
	}
}

func TestLayoutsPackAndStage(t *testing.T) {
	_, d := openFake(t)
	shape := tensor.Shape{2, 3, 32} // experts, rows, values
	for _, c := range []struct {
		layout string
		stored tensor.DType
		seen   tensor.DType
	}{{"", tensor.Q8_0, tensor.Q8_0}, {"f32", tensor.BF16, tensor.F32}, {"dense", tensor.BF16, tensor.BF16}, {"dense", tensor.Q8_0, tensor.F32}} {
		l, err := d.Layout(c.layout)
		if err != nil {
			t.Fatal(err)
		}
		size, err := l.Size(c.stored, shape)
		if want := c.seen.Bytes(shape.Elems()); err != nil || size != want || l.DType(c.stored) != c.seen {
			t.Errorf("%q of %v: %d bytes of %v, want %d of %v; %v", c.layout, c.stored, size, l.DType(c.stored), want, c.seen, err)
		}
		src := make([]byte, c.stored.Bytes(shape.Elems()))
		for i := range src {
			src[i] = byte(i % 60) // bf16 and f16 scales stay finite
		}
		a, _ := d.Alloc("a", size+64)
		b, _ := d.Alloc("b", size+64)
		stage, err := d.Stage("stage", size)
		if err != nil {
			t.Fatal(err)
		}
		row := len(src) / 6
		for m := range 2 {
			for _, r := range [][2]int{{0, 2}, {2, 1}} {
				part := src[(3*m+r[0])*row : (3*m+r[0]+r[1])*row]
				if err := l.Pack(a, 64, c.stored, shape, int64(m), int64(r[0]), int64(r[1]), part); err != nil {
					t.Fatal(err)
				}
				off, n := int64(3*m+r[0])*c.seen.Bytes(32), int64(r[1])*c.seen.Bytes(32)
				if err := l.(gpu.RowLayout).PackRows(stage.Bytes()[:n], c.stored, 32, part); err != nil {
					t.Fatal(err)
				}
				if err := stage.Send(b, 64+off, n); err != nil {
					t.Fatal(err)
				}
				if err := stage.Wait(); err != nil {
					t.Fatal(err)
				}
			}
		}
		x, y := make([]byte, size), make([]byte, size)
		a.Read(64, x)
		b.Read(64, y)
		if !bytes.Equal(x, y) || c.seen == c.stored && !bytes.Equal(x, src) {
			t.Errorf("%q of %v: packed and staged differ", c.layout, c.stored)
		}
		if c.seen == tensor.F32 && c.stored == tensor.BF16 {
			if got := binary.LittleEndian.Uint32(x[4*40:]); got != uint32(binary.LittleEndian.Uint16(src[2*40:]))<<16 {
				t.Errorf("value 40 is %x", got)
			}
		}
		if err := l.Pack(a, 64, c.stored, shape, 2, 0, 1, src[:row]); !diag.Is(err, diag.Internal) {
			t.Errorf("a matrix too far: %v", err)
		}
		if err := stage.Send(b, 65, size); !diag.Is(err, diag.Internal) {
			t.Errorf("past the end: %v", err)
		}
		stage.Free()
	}
	if _, err := d.Layout("panel"); !diag.Is(err, diag.Unsupported) {
		t.Errorf("%v", err)
	}
}

func TestGraphsRecordAndReplay(t *testing.T) {
	f, d := openFake(t)
	l, err := d.Bind(goodBinding(t, d))
	if err != nil {
		t.Fatal(err)
	}
	g, err := d.Graph("8 rows", []gpu.Launch{l, l, l})
	if err != nil {
		t.Fatal(err)
	}
	if len(f.graphs) != 1 || f.graphs[0] != 2*3 || len(f.started) != 0 {
		t.Errorf("recorded %v, started %d", f.graphs, len(f.started))
	}
	for range 2 {
		if err := d.Launch(g); err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(50, func() { f.calls = f.calls[:0]; _ = d.Launch(g) }); n > 0 {
		t.Errorf("%v allocations per replay", n)
	}
	g.(interface{ Free() }).Free()
	if err := d.Launch(g); !diag.Is(err, diag.Internal) {
		t.Errorf("a freed graph: %v", err)
	}
	// A launch that fails while recording ends the capture and leaves the device well.
	f.fail[cuLaunchKernelEx] = 1
	if _, err := d.Graph("bad", []gpu.Launch{l}); !diag.Is(err, diag.Internal) || f.capture {
		t.Errorf("%v", err)
	}
	delete(f.fail, cuLaunchKernelEx)
	if err := d.Launch(l); err != nil {
		t.Error(err)
	}
	// One that does not reach the device is given back.
	f.fail[cuGraphUpload] = 1
	if _, err := d.Graph("bad", []gpu.Launch{l}); !diag.Is(err, diag.Internal) || f.calls[len(f.calls)-2] != cuGraphExecDestroy || len(d.graphs) > 0 {
		t.Errorf("%v", err)
	}
}
