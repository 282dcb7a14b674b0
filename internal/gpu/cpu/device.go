// SPDX-License-Identifier: MIT OR Apache-2.0

package cpu

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/gpu/cpu/attn"
	"github.com/metrale/metrale/internal/gpu/cpu/linear"
	"github.com/metrale/metrale/internal/gpu/cpu/pool"
	"github.com/metrale/metrale/internal/gpu/cpu/vec"
)

// Options choose how the device computes.
type Options struct {
	Threads int    // workers, the caller included; 0: all processors that Go may use
	Path    string // SIMD path: "" is the best that the processor has, or "avx512", "avx2", "go"
}

// Device is the CPU as a gpu.Device. It is its own stream: Launch runs to the end, Sync has nothing to wait for.
type Device struct {
	info  gpu.Info
	level vec.Level
	pool  *pool.Pool
	// Scratch is shared by all launches of a kind, which never run at the same time.
	attention []attn.Scratch // one a worker
	full      fullScratch
	linear    *linear.Scratch
}

// CheckPath says whether Open takes a SIMD path.
func CheckPath(name string) error {
	_, err := vec.Parse(name)
	return err
}

// Open starts the device's workers. A path that the processor lacks is an error (diag.Invalid).
func Open(o Options) (*Device, error) {
	level, err := vec.Parse(o.Path)
	if err != nil {
		return nil, diag.Errorf(diag.Invalid, "%w", err)
	}
	if o.Threads < 0 {
		return nil, diag.Errorf(diag.Invalid, "%d CPU threads", o.Threads)
	}
	p := pool.New(o.Threads)
	d := &Device{
		level:     level,
		pool:      p,
		attention: make([]attn.Scratch, p.Workers()),
		linear:    linear.NewScratch(1, 1, p.Workers()), // grows with the first calls
		info: gpu.Info{
			Name:    fmt.Sprintf("%s, %d threads, %v", model(), p.Workers(), level),
			Class:   "cpu",
			Memory:  memory(),
			Threads: p.Workers(),
		},
	}
	if err := d.linear.SetPath(level.String()); err != nil {
		p.Close()
		return nil, diag.Errorf(diag.Internal, "%w", err)
	}
	return d, nil
}

// Info describes the processor.
func (d *Device) Info() gpu.Info { return d.info }

// Stream is the device itself.
func (d *Device) Stream() gpu.Stream { return d }

// Close ends the workers. Buffers stay usable until freed.
func (d *Device) Close() error {
	d.pool.Close()
	return nil
}

// launch is a bound launch.
type launch struct {
	name    string
	run     func()
	buffers []*buffer
}

// Launch runs a bound launch. A panic in its kernel comes back as an error (diag.Internal) with the launch's name; the
// stack is its private cause.
func (d *Device) Launch(l gpu.Launch) (err error) {
	b, ok := l.(*launch)
	if !ok {
		return diag.Errorf(diag.Internal, "cpu: a launch of another device: %T", l)
	}
	for _, buf := range b.buffers {
		if buf.data == nil {
			return diag.Errorf(diag.Internal, "launch %s: buffer %s was freed", b.name, buf.name)
		}
	}
	defer func() {
		if v := recover(); v != nil {
			err = fault(b.name, v)
		}
	}()
	b.run()
	return nil
}

// Sync returns at once: launches have run.
func (d *Device) Sync() error { return nil }

func fault(name string, v any) error {
	if f, ok := v.(*pool.Panic); ok {
		return diag.Errorf(diag.Internal, "launch %s: %v", name, f.Value).Because(errors.New(string(f.Stack)))
	}
	return diag.Errorf(diag.Internal, "launch %s: %v", name, v).Because(errors.New(string(debug.Stack())))
}

// model is the processor's name as the kernel reports it.
func model() string {
	return procField("/proc/cpuinfo", "model name", runtime.GOARCH)
}

// memory is what this process may use in bytes: the machine's or its control group's, 0 when unknown.
func memory() int64 {
	var kib, limit int64
	if _, err := fmt.Sscanf(procField("/proc/meminfo", "MemTotal", ""), "%d kB", &kib); err != nil {
		return 0
	}
	text, _ := os.ReadFile("/sys/fs/cgroup/memory.max")
	if _, err := fmt.Sscan(string(text), &limit); err == nil {
		return min(kib<<10, limit)
	}
	return kib << 10
}

// procField reads the first "key : value" line of a file of /proc.
func procField(file, key, otherwise string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return otherwise
	}
	for line := range strings.Lines(string(text)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return otherwise
}
