// SPDX-License-Identifier: MIT OR Apache-2.0

package cuda

import (
	"unsafe"

	"github.com/metrale/metrale/internal/diag"
)

// entry is an entry point of the driver; entries names them all.
type entry uint8

const (
	cuInit entry = iota
	cuDriverGetVersion
	cuGetErrorName
	cuGetErrorString
	cuDeviceGetCount
	cuDeviceGet
	cuDeviceGetName
	cuDeviceTotalMem
	cuDeviceGetAttribute
	cuDeviceCanAccessPeer
	cuDevicePrimaryCtxRetain
	cuDevicePrimaryCtxRelease
	cuCtxSetCurrent
	cuCtxEnablePeerAccess
	cuMemGetInfo
	cuMemAlloc
	cuMemFree
	cuMemHostAlloc
	cuMemFreeHost
	cuMemHostRegister
	cuMemHostUnregister
	cuMemcpyHtoDAsync
	cuMemcpyDtoHAsync
	cuMemsetD8Async
	cuStreamCreate
	cuStreamDestroy
	cuStreamQuery
	cuStreamWaitEvent
	cuEventCreate
	cuEventDestroy
	cuEventRecord
	cuEventQuery
	cuEventElapsedTime
	cuLibraryLoadData
	cuLibraryUnload
	cuLibraryGetKernel
	cuKernelGetParamInfo
	cuKernelGetAttribute
	cuKernelSetAttribute
	cuOccupancyMaxBlocks
	cuLaunchKernelEx
	cuStreamBeginCapture
	cuStreamEndCapture
	cuGraphInstantiateWithFlags
	cuGraphUpload
	cuGraphLaunch
	cuGraphDestroy
	cuGraphExecDestroy
	cuTensorMapEncodeTiled
	numEntries
)

// entries are the symbols, as CUDA 12.4 and later export them. Without an optional one, what needs it is refused.
var entries = [numEntries]struct {
	symbol   string
	optional bool
}{
	cuInit:                      {"cuInit", false},
	cuDriverGetVersion:          {"cuDriverGetVersion", false},
	cuGetErrorName:              {"cuGetErrorName", false},
	cuGetErrorString:            {"cuGetErrorString", false},
	cuDeviceGetCount:            {"cuDeviceGetCount", false},
	cuDeviceGet:                 {"cuDeviceGet", false},
	cuDeviceGetName:             {"cuDeviceGetName", false},
	cuDeviceTotalMem:            {"cuDeviceTotalMem_v2", false},
	cuDeviceGetAttribute:        {"cuDeviceGetAttribute", false},
	cuDeviceCanAccessPeer:       {"cuDeviceCanAccessPeer", true},
	cuDevicePrimaryCtxRetain:    {"cuDevicePrimaryCtxRetain", false},
	cuDevicePrimaryCtxRelease:   {"cuDevicePrimaryCtxRelease_v2", false},
	cuCtxSetCurrent:             {"cuCtxSetCurrent", false},
	cuCtxEnablePeerAccess:       {"cuCtxEnablePeerAccess", true},
	cuMemGetInfo:                {"cuMemGetInfo_v2", false},
	cuMemAlloc:                  {"cuMemAlloc_v2", false},
	cuMemFree:                   {"cuMemFree_v2", false},
	cuMemHostAlloc:              {"cuMemHostAlloc", false},
	cuMemFreeHost:               {"cuMemFreeHost", false},
	cuMemHostRegister:           {"cuMemHostRegister_v2", true},
	cuMemHostUnregister:         {"cuMemHostUnregister", true},
	cuMemcpyHtoDAsync:           {"cuMemcpyHtoDAsync_v2", false},
	cuMemcpyDtoHAsync:           {"cuMemcpyDtoHAsync_v2", false},
	cuMemsetD8Async:             {"cuMemsetD8Async", false},
	cuStreamCreate:              {"cuStreamCreate", false},
	cuStreamDestroy:             {"cuStreamDestroy_v2", false},
	cuStreamQuery:               {"cuStreamQuery", false},
	cuStreamWaitEvent:           {"cuStreamWaitEvent", false},
	cuEventCreate:               {"cuEventCreate", false},
	cuEventDestroy:              {"cuEventDestroy_v2", false},
	cuEventRecord:               {"cuEventRecord", false},
	cuEventQuery:                {"cuEventQuery", false},
	cuEventElapsedTime:          {"cuEventElapsedTime", false},
	cuLibraryLoadData:           {"cuLibraryLoadData", false},
	cuLibraryUnload:             {"cuLibraryUnload", false},
	cuLibraryGetKernel:          {"cuLibraryGetKernel", false},
	cuKernelGetParamInfo:        {"cuKernelGetParamInfo", false},
	cuKernelGetAttribute:        {"cuKernelGetAttribute", false},
	cuKernelSetAttribute:        {"cuKernelSetAttribute", false},
	cuOccupancyMaxBlocks:        {"cuOccupancyMaxActiveBlocksPerMultiprocessor", false},
	cuLaunchKernelEx:            {"cuLaunchKernelEx", false},
	cuStreamBeginCapture:        {"cuStreamBeginCapture_v2", true},
	cuStreamEndCapture:          {"cuStreamEndCapture", true},
	cuGraphInstantiateWithFlags: {"cuGraphInstantiateWithFlags", true},
	cuGraphUpload:               {"cuGraphUpload", true},
	cuGraphLaunch:               {"cuGraphLaunch", true},
	cuGraphDestroy:              {"cuGraphDestroy", true},
	cuGraphExecDestroy:          {"cuGraphExecDestroy", true},
	cuTensorMapEncodeTiled:      {"cuTensorMapEncodeTiled", true},
}

// result is a CUresult.
type result int32

const (
	success          result = 0
	errInvalidValue  result = 1
	errOutOfMemory   result = 2
	errNoDevice      result = 100
	errInvalidImage  result = 200
	errNotFound      result = 500
	errPeerEnabled   result = 704
	errNotReady      result = 600
	errNotSupported  result = 801
	errNotThere      result = -1 // the library lacks the entry point
	errTimeout       result = -2 // what was waited for did not end
	errNoBinaryForIt result = 209
)

// lost are the results after which the context answers nothing else.
var lost = map[result]bool{
	4:   true, // deinitialized
	214: true, // uncorrectable ECC error
	220: true, // uncorrectable NVLink error
	226: true, // contained error
	700: true, // illegal address
	702: true, // launch timeout
	709: true, // context destroyed
	710: true, // device-side assert
	714: true, // hardware stack error
	715: true, // illegal instruction
	716: true, // misaligned address
	717: true, // invalid address space
	718: true, // invalid program counter
	719: true, // launch failed
	721: true, // tensor memory leak
	999: true, // unknown
}

// Attributes of devices and kernels, capture modes and flags that are passed as numbers.
const (
	attrMultiprocessors = 16
	attrPCIBus          = 33
	attrPCIDevice       = 34
	attrPCIDomain       = 50
	attrMajor           = 75
	attrMinor           = 76
	attrSharedOptin     = 97

	kernelMaxThreads   = 0
	kernelStaticShared = 1
	kernelMaxDynamic   = 8
	kernelCarveout     = 9
	kernelAnyCluster   = 14

	launchCluster = 4
	launchPDL     = 6

	hostPortable       = 1
	streamNonBlocking  = 1
	eventNoTiming      = 2
	captureThreadLocal = 1
)

// driver is the opened library. call runs an entry point; tests put their own there.
type driver struct {
	name string
	has  [numEntries]bool
	call func(e entry, args []uintptr) result
}

// do calls an entry point outside the hot paths. Pointers are converted in the argument list, so that what they point to
// stays on the heap during the call.
//
//go:uintptrescapes
func (d *driver) do(e entry, args ...uintptr) result {
	if !d.has[e] {
		return errNotThere
	}
	return d.call(e, args)
}

// explain is the driver's name and text of a result.
func (d *driver) explain(r result) string {
	if r == errNotThere {
		return "the driver is too old: it lacks an entry point that this needs"
	}
	out := new([2]*byte)
	d.do(cuGetErrorName, uintptr(uint32(r)), uintptr(unsafe.Pointer(&out[0])))
	d.do(cuGetErrorString, uintptr(uint32(r)), uintptr(unsafe.Pointer(&out[1])))
	name, text := cString(out[0]), cString(out[1])
	if text == "" || text == name {
		return name
	}
	return name + ", " + text
}

// failed turns a result into an error; nil for success.
func (d *driver) failed(r result, what string) error {
	if r == success {
		return nil
	}
	code := diag.Internal
	switch {
	case lost[r]:
		code = diag.DeviceLost
	case r == errOutOfMemory, r == errNotThere, r == errNotSupported, r == errNoDevice, r == errNoBinaryForIt, r == errInvalidImage:
		code = diag.Unsupported
	}
	return diag.Errorf(code, "cuda: %s: %s", what, d.explain(r))
}

// cString copies a C string.
func cString(p *byte) string {
	if p == nil {
		return ""
	}
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(p, n))
}

// cBytes is a C string with its terminator.
func cBytes(s string) *byte { return unsafe.SliceData(append([]byte(s), 0)) }
