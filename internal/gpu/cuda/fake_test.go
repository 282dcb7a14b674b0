// SPDX-License-Identifier: MIT OR Apache-2.0

package cuda

import (
	"encoding/binary"
	"fmt"
	"testing"
	"testing/fstest"
	"unsafe"

	"github.com/metrale/metrale/internal/kernel"
)

// fake is a driver in Go: memory is the host's, kernels only have parameters, launches are remembered.
type fake struct {
	t       testing.TB
	calls   []entry
	fail    map[entry]result // what an entry point returns instead of working
	entries map[string][]int // parameter sizes of each kernel
	names   []string         // of kernels by handle-1
	memory  map[uintptr][]byte
	started []started
	attrs   map[string]map[uintptr]int // set on kernels
	capture bool
	apart   bool  // devices see no memory but their own
	busy    int   // how often streams and events say that they are not ready
	graphs  []int // launches of each graph
	maps    [][]uint64
}

// started is a launch that reached the driver.
type started struct {
	kernel string
	config launchConfig
	attrs  []launchAttr
	params [][]byte
}

func at[T any](addr uintptr) *T { return (*T)(pointer(addr)) }

func newFake(t testing.TB) *fake {
	return &fake{t: t, fail: map[entry]result{}, entries: map[string][]int{}, memory: map[uintptr][]byte{}, attrs: map[string]map[uintptr]int{}}
}

func (f *fake) driver() *driver {
	d := &driver{name: "fake", call: f.call}
	for e := range d.has {
		d.has[e] = true
	}
	return d
}

func (f *fake) alloc(n uintptr) uintptr {
	m := make([]byte, n+256)
	a := (uintptr(unsafe.Pointer(&m[0])) + 255) &^ 255
	f.memory[a] = m
	return a
}

func (f *fake) call(e entry, a []uintptr) result {
	f.calls = append(f.calls, e)
	if r := f.fail[e]; r != success {
		return r
	}
	switch e {
	case cuStreamQuery, cuEventQuery:
		if f.busy > 0 {
			f.busy--
			return errNotReady
		}
	case cuGetErrorName:
		*at[*byte](a[1]) = cBytes(fmt.Sprintf("CUDA_ERROR_%d", a[0]))
	case cuGetErrorString:
		*at[*byte](a[1]) = cBytes("words about it")
	case cuDriverGetVersion:
		*at[int32](a[0]) = 13000
	case cuDeviceGetCount:
		*at[int32](a[0]) = 2
	case cuDeviceGet:
		*at[int32](a[0]) = int32(a[1])
	case cuDeviceGetName:
		copy(unsafe.Slice(at[byte](a[0]), a[1]), "Fake H200\x00")
	case cuDeviceTotalMem:
		*at[int64](a[0]) = 1 << 30
	case cuDeviceGetAttribute:
		*at[int32](a[0]) = map[uintptr]int32{attrMultiprocessors: 132, attrMajor: 9, attrMinor: 0, attrSharedOptin: 227 << 10, attrPCIDomain: 1, attrPCIBus: 0x1b, attrPCIDevice: 2}[a[1]]
	case cuDeviceCanAccessPeer:
		if *at[int32](a[0]) = 1; f.apart {
			*at[int32](a[0]) = 0
		}
	case cuDevicePrimaryCtxRetain, cuStreamCreate, cuEventCreate:
		*at[uintptr](a[0]) = uintptr(100 + len(f.calls))
	case cuMemGetInfo:
		*at[int64](a[0]), *at[int64](a[1]) = 1<<29, 1<<30
	case cuMemAlloc, cuMemHostAlloc:
		*at[uintptr](a[0]) = f.alloc(a[1])
	case cuMemFree, cuMemFreeHost:
		if f.memory[a[0]] == nil {
			f.t.Errorf("freeing %x, which is not allocated", a[0])
		}
		delete(f.memory, a[0])
	case cuMemcpyHtoDAsync, cuMemcpyDtoHAsync:
		copy(unsafe.Slice(at[byte](a[0]), a[2]), unsafe.Slice(at[byte](a[1]), a[2]))
	case cuMemsetD8Async:
		clear(unsafe.Slice(at[byte](a[0]), a[2]))
	case cuLibraryLoadData:
		*at[uintptr](a[0]) = 7
	case cuLibraryGetKernel:
		name := cString(at[byte](a[2]))
		if f.entries[name] == nil {
			return errNotFound
		}
		f.names = append(f.names, name)
		*at[uintptr](a[0]) = uintptr(len(f.names))
	case cuKernelGetParamInfo:
		sizes := f.entries[f.names[a[0]-1]]
		if int(a[1]) >= len(sizes) {
			return errInvalidValue
		}
		*at[uintptr](a[3]) = uintptr(sizes[a[1]])
	case cuKernelGetAttribute:
		*at[int32](a[0]) = map[uintptr]int32{kernelMaxThreads: 1024, kernelStaticShared: 1024}[a[1]]
	case cuKernelSetAttribute:
		name := f.names[a[2]-1]
		if f.attrs[name] == nil {
			f.attrs[name] = map[uintptr]int{}
		}
		f.attrs[name][a[0]] = int(a[1])
	case cuOccupancyMaxBlocks: // by shared memory alone
		*at[int32](a[0]) = int32(228 << 10 / (a[3] + 1024))
	case cuLaunchKernelEx:
		f.launch(a)
	case cuStreamBeginCapture:
		f.capture, f.graphs = true, append(f.graphs, 0)
	case cuStreamEndCapture:
		f.capture = false
		*at[uintptr](a[1]) = uintptr(len(f.graphs))
	case cuGraphInstantiateWithFlags:
		*at[uintptr](a[0]) = a[1]
	case cuTensorMapEncodeTiled:
		rank := a[2]
		var m []uint64
		m = append(m, uint64(a[1]), uint64(rank))
		m = append(m, unsafe.Slice(at[uint64](a[4]), rank)...)
		m = append(m, unsafe.Slice(at[uint64](a[5]), rank-1)...)
		for _, b := range unsafe.Slice(at[uint32](a[6]), rank) {
			m = append(m, uint64(b))
		}
		f.maps = append(f.maps, append(m, uint64(a[9])))
	}
	return success
}

func (f *fake) launch(a []uintptr) {
	if f.capture {
		f.graphs[len(f.graphs)-1]++
		return
	}
	s := started{kernel: f.names[a[1]-1], config: *at[launchConfig](a[0])}
	s.attrs = append(s.attrs, unsafe.Slice((*launchAttr)(s.config.attrs), s.config.numAttrs)...)
	for i, n := range f.entries[s.kernel] {
		p := unsafe.Slice(at[unsafe.Pointer](a[2]), i+1)[i]
		s.params = append(s.params, append([]byte(nil), unsafe.Slice((*byte)(p), n)...))
	}
	f.started = append(f.started, s)
}

// cubin is the header of native code.
func cubin(capability int) []byte {
	b := make([]byte, 64)
	copy(b, "\x7fELF")
	b[8] = 8
	binary.LittleEndian.PutUint16(b[18:], elfCUDA)
	binary.LittleEndian.PutUint32(b[48:], uint32(capability<<8))
	return b
}

const manifest = `[formats]
dense = ["f32", "bf16", "f16", "q8_0"]
kv = ["f32", "bf16"]
[[family]]
name = "linear"
[[kernel]]
name = "linear"
family = "linear"
args = [
  { name = "head", kind = "step" },
  { name = "x", shape = ["R", "K"] },
  { name = "w", kind = "weight", shape = ["N", "K"], dtype = ["dense"], layout = "dense" },
  { name = "bias", kind = "weight", shape = ["N"], layout = "f32", optional = true },
  { name = "pool", kind = "state", access = "inout", shape = ["H", "D"], dtype = ["kv"] },
  { name = "y", access = "out", shape = ["R", "N"] },
]
attrs = [{ name = "scale", type = "float" }, { name = "mode", type = "str" }, { name = "n", type = "int" }]
where = ["K % 8 == 0"]
[kernel.launch]
module = "linear/linear"
entry = "linear_{w.dtype}_{bias.dtype}_{mode}_{D}"
params = ["head", "x", "w", "bias", "pool", "y", "N", "scale", "i32:n*K", "i64:page_size*pages", "tmap:x:4x32:128"]
grid = ["2*ceil(N, 8)", "R", "n"]
block = "256"
shared = "4*K*16"
cluster = 2
pdl = true
[[kernel.then]]
module = "linear/linear"
entry = "finish"
params = ["count:R", "y", "count:seqs"]
grid = ["R"]
block = "32"
resident = true
`

// testClass is a class with that one kernel.
func testClass(t testing.TB) *kernel.Class {
	t.Helper()
	tree, err := kernel.Load(fstest.MapFS{
		"DEVICES.toml":                       {Data: nil},
		"hopper/HARDWARE.toml":               {Data: []byte("[hardware]\nclass = \"hopper\"\nvendor = \"nvidia\"\narch = \"sm_90a\"\n[defaults]\nkv = \"bf16\"\npage_size = 16\n")},
		"hopper/common/KERNEL_FAMILIES.toml": {Data: []byte(manifest)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return tree.Classes["hopper"]
}

// openFake opens a device of the fake driver, which is closed with the test and has its memory back then.
func openFake(t testing.TB) (*fake, *Device) {
	t.Helper()
	f, d := openFakeWith(t, Options{})
	t.Cleanup(func() {
		d.Close()
		if len(f.memory) > 0 {
			t.Errorf("%d allocations are left", len(f.memory))
		}
	})
	return f, d
}

// openFakeWith is openFake without the end.
func openFakeWith(t testing.TB, o Options) (*fake, *Device) {
	t.Helper()
	f := newFake(t)
	f.entries["linear_bf16_f32_fast_4"] = []int{8, 8, 8, 8, 8, 8, 4, 4, 4, 8, 128}
	f.entries["finish"] = []int{8, 8, 8}
	f.entries["linear_f32_none_fast_4"] = f.entries["linear_bf16_f32_fast_4"]
	o.Class, o.Modules = testClass(t), fstest.MapFS{"linear.linear.cubin": {Data: cubin(90)}}
	d, err := open(f.driver(), o)
	if err != nil {
		t.Fatal(err)
	}
	return f, d
}
