// SPDX-License-Identifier: MIT OR Apache-2.0

package cuda

import (
	"unsafe"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu"
)

// graph is a recorded sequence of launches.
type graph struct {
	dev  *Device
	name string  // as errors name it: "graph llama of 1 rows"
	exec uintptr // 0 once freed
}

// Graph records the launches by capturing the stream. They have run before at least once, since a kernel's first launch loads
// its code, which a capture does not allow.
func (d *Device) Graph(name string, launches []gpu.Launch) (gpu.Launch, error) {
	d.enter()
	defer d.leave()
	if d.dead != nil {
		return nil, d.dead
	}
	if err := d.check(d.drv.do(cuStreamBeginCapture, d.stream, captureThreadLocal), "recording graph "+name); err != nil {
		return nil, err
	}
	d.plain = true
	defer func() { d.plain = true }()
	var failed error
	for _, x := range launches {
		l, ok := x.(*launch)
		if !ok {
			failed = diag.Errorf(diag.Internal, "cuda: graph %s: a launch of another device: %T", name, x)
		} else {
			failed = d.start(l)
		}
		if failed != nil {
			break
		}
	}
	recorded := new(uintptr)
	r := d.drv.do(cuStreamEndCapture, d.stream, uintptr(unsafe.Pointer(recorded)))
	if *recorded != 0 {
		defer d.drv.do(cuGraphDestroy, *recorded)
	}
	if failed != nil {
		return nil, failed
	}
	g := &graph{dev: d, name: "graph " + name}
	if r == success {
		r = d.drv.do(cuGraphInstantiateWithFlags, uintptr(unsafe.Pointer(&g.exec)), *recorded, 0)
	}
	if r == success {
		r = d.drv.do(cuGraphUpload, g.exec, d.stream)
	}
	if err := d.check(r, "making graph "+name); err != nil {
		if g.exec != 0 {
			d.drv.do(cuGraphExecDestroy, g.exec)
		}
		return nil, err
	}
	d.graphs[g] = true
	return g, nil
}

// startGraph replays a graph; the device is entered.
func (d *Device) startGraph(g *graph) error {
	if g.dev != d || g.exec == 0 {
		return diag.Errorf(diag.Internal, "cuda: %s is another device's, or was freed", g.name)
	}
	d.newest, d.given, d.plain = g.name, "", true
	d.queued++
	a := append(d.args[:0], g.exec, d.stream)
	if r := d.drv.call(cuGraphLaunch, a); r != success {
		return d.check(r, g.name)
	}
	return nil
}

// Free gives the graph back after it has run.
func (g *graph) Free() {
	d := g.dev
	d.enter()
	defer d.leave()
	if g.exec == 0 || !d.idle(d.stream) {
		return
	}
	d.drv.do(cuGraphExecDestroy, g.exec)
	g.exec = 0
	delete(d.graphs, g)
}
