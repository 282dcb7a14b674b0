// SPDX-License-Identifier: MIT OR Apache-2.0

// Package cuda is the driver of NVIDIA devices: a gpu.Device over the CUDA driver API, opened at run time. There is no cgo and
// no CUDA runtime; a binary built with the tag nocuda, or for another system than Linux, has the package but refuses to open.
//
// Where things are: the entry points and errors of the driver (driver.go, library_*.go), what devices there are (query.go), the device and
// its memory (device.go, buffer.go), compiled modules (module.go), a launch's checks and parameters (bind.go, tensormap.go), streams,
// events and graphs (stream.go, mark.go, graph.go), waits and their limit (wait.go), weight layouts (layout.go, rows.go), weights on their
// way from the host (stage.go, huge_*.go, near*.go) and random ones made on the device (generate.go).
//
// Contract:
//
//  1. What a kernel needs is in its manifest (kernel.Launch). Bind unifies it with the launch's arrays, evaluates every
//     expression, and checks the parameters against the layout that the driver reports; a launch passes nothing later.
//  2. A module is the native code of one class. Its architecture is compared with the device's before anything loads.
//  3. Every call sets the device's context on the calling thread, and a lock makes one call at a time: any goroutine may call,
//     but launches should come from one, locked to its thread, as the engine does. Launch allocates nothing. Stages do without
//     the lock, on a stream of their own, so that weights flow while launches are bound.
//  4. Launch returns at once, unless hundreds of launches are under way. Buffers' Write and Read, and Sync, wait for the stream.
//  5. An error that the driver calls sticky loses the device: it and every later call return code diag.DeviceLost.
//  6. Whatever waits for the device does so for at most Options.Timeout (wait.go). A device that has not ended its work by then is lost,
//     too, and asked nothing more: what it has stays its own until the process ends, also after Free and Close. Calls that the driver
//     waits in by itself, to allocate or to load code, have no limit; a step that has run before makes none.
//  7. Close frees what was not freed: streams, graphs, modules, memory.
package cuda
