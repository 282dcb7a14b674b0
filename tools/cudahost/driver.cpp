// SPDX-License-Identifier: MIT OR Apache-2.0
// A CUDA driver whose device is the host: libcuda's entry points as far as Metrale calls them. A launch is complete when its call
// returns; a capturing stream records calls, and a graph replays them. A module's image is "METRALE-HOST <path of its library>".
#include <cuda.h>
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "block.h"

using cudahost::Entry;

namespace {

constexpr char kMagic[] = "METRALE-HOST ";

std::mutex mu;
std::vector<const Entry*>* loading;  // where entries register while a library is opened

struct Library {
  void* handle;
  std::map<std::string, const Entry*> entries;
};

using Call = std::function<void()>;
struct Stream {
  bool capturing = false;
  std::vector<Call> calls;
};
struct Event {
  std::chrono::steady_clock::time_point at;
  bool never;  // it stands behind what does not end
};

// With CUDAHOST_ENDLESS=n in the environment, the nth replay of a graph never ends, and nothing behind it begins.
std::atomic<long> replays{0};
bool endless() {
  static const char* n = getenv("CUDAHOST_ENDLESS");
  return n && replays >= atol(n);
}

// submit runs a call now, or records it.
CUresult submit(CUstream s, Call call) {
  auto* stream = reinterpret_cast<Stream*>(s);
  if (stream && stream->capturing)
    stream->calls.push_back(std::move(call));
  else
    call();
  return CUDA_SUCCESS;
}

template <class T>
T* as(CUdeviceptr p) { return reinterpret_cast<T*>(p); }

}  // namespace

extern "C" {

void cudahost_register(const Entry* e) {
  if (loading) loading->push_back(new Entry(*e));
}

// ------------------------------------------------------------------------------------------------------- device, context

CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int* v) { return *v = 13000, CUDA_SUCCESS; }
CUresult cuDeviceGetCount(int* n) { return *n = 1, CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice* d, int i) { return *d = i, i == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE; }
CUresult cuDeviceGetName(char* name, int n, CUdevice) { return snprintf(name, n, "host"), CUDA_SUCCESS; }
CUresult cuDeviceTotalMem_v2(size_t* n, CUdevice) { return *n = size_t(8) << 30, CUDA_SUCCESS; }
CUresult cuMemGetInfo_v2(size_t* free, size_t* total) { return *free = *total = size_t(8) << 30, CUDA_SUCCESS; }
CUresult cuDeviceGetAttribute(int* v, CUdevice_attribute a, CUdevice) {
  switch (a) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *v = 9; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *v = 0; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *v = int(cudahost::kMultiprocessors); break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *v = 227 << 10; break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *v = 50 << 20; break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *v = 1024; break;
    default: *v = 0;
  }
  return CUDA_SUCCESS;
}
CUresult cuDeviceCanAccessPeer(int* can, CUdevice, CUdevice) { return *can = 0, CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxRetain(CUcontext* c, CUdevice) { return *c = reinterpret_cast<CUcontext>(1), CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) { return CUDA_SUCCESS; }
CUresult cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }
CUresult cuCtxGetCurrent(CUcontext* c) { return *c = reinterpret_cast<CUcontext>(1), CUDA_SUCCESS; }
CUresult cuCtxSynchronize() { return CUDA_SUCCESS; }
CUresult cuGetErrorName(CUresult r, const char** s) {
  return *s = r == CUDA_SUCCESS ? "CUDA_SUCCESS" : r == CUDA_ERROR_NOT_FOUND ? "CUDA_ERROR_NOT_FOUND" : r == CUDA_ERROR_INVALID_IMAGE ? "CUDA_ERROR_INVALID_IMAGE" : "CUDA_ERROR_UNKNOWN",
         CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult r, const char** s) { return cuGetErrorName(r, s); }

// --------------------------------------------------------------------------------------------------------------- memory

CUresult cuMemAlloc_v2(CUdeviceptr* p, size_t n) {
  void* m = aligned_alloc(256, (n + 255) & ~size_t(255));
  if (!m) return CUDA_ERROR_OUT_OF_MEMORY;
  if (n <= size_t(64) << 20) memset(m, 0xA5, n);  // device memory is not zero
  return *p = reinterpret_cast<CUdeviceptr>(m), CUDA_SUCCESS;
}
CUresult cuMemFree_v2(CUdeviceptr p) { return free(as<void>(p)), CUDA_SUCCESS; }
CUresult cuMemHostAlloc(void** p, size_t n, unsigned) { return *p = aligned_alloc(256, (n + 255) & ~size_t(255)), *p ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY; }
CUresult cuMemAllocHost_v2(void** p, size_t n) { return cuMemHostAlloc(p, n, 0); }
CUresult cuMemFreeHost(void* p) { return free(p), CUDA_SUCCESS; }
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* d, void* p, unsigned) { return *d = reinterpret_cast<CUdeviceptr>(p), CUDA_SUCCESS; }
CUresult cuMemcpyHtoD_v2(CUdeviceptr d, const void* h, size_t n) { return memcpy(as<void>(d), h, n), CUDA_SUCCESS; }
CUresult cuMemcpyDtoH_v2(void* h, CUdeviceptr d, size_t n) { return memcpy(h, as<void>(d), n), CUDA_SUCCESS; }
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr d, const void* h, size_t n, CUstream s) { return submit(s, [=] { memcpy(as<void>(d), h, n); }); }
CUresult cuMemcpyDtoHAsync_v2(void* h, CUdeviceptr d, size_t n, CUstream s) { return submit(s, [=] { memcpy(h, as<void>(d), n); }); }
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr d, CUdeviceptr src, size_t n, CUstream s) { return submit(s, [=] { memmove(as<void>(d), as<void>(src), n); }); }
CUresult cuMemsetD8_v2(CUdeviceptr d, unsigned char v, size_t n) { return memset(as<void>(d), v, n), CUDA_SUCCESS; }
CUresult cuMemsetD8Async(CUdeviceptr d, unsigned char v, size_t n, CUstream s) { return submit(s, [=] { memset(as<void>(d), v, n); }); }
CUresult cuMemsetD32Async(CUdeviceptr d, unsigned v, size_t n, CUstream s) { return submit(s, [=] { std::fill_n(as<unsigned>(d), n, v); }); }

// ----------------------------------------------------------------------------------------------------- streams and events

CUresult cuStreamCreate(CUstream* s, unsigned) { return *s = reinterpret_cast<CUstream>(new Stream), CUDA_SUCCESS; }
CUresult cuStreamDestroy_v2(CUstream s) { return delete reinterpret_cast<Stream*>(s), CUDA_SUCCESS; }
CUresult cuStreamSynchronize(CUstream) { return CUDA_SUCCESS; }
CUresult cuStreamQuery(CUstream) { return endless() ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS; }
CUresult cuStreamWaitEvent(CUstream, CUevent, unsigned) { return CUDA_SUCCESS; }
CUresult cuEventCreate(CUevent* e, unsigned) { return *e = reinterpret_cast<CUevent>(new Event{}), CUDA_SUCCESS; }
CUresult cuEventDestroy_v2(CUevent e) { return delete reinterpret_cast<Event*>(e), CUDA_SUCCESS; }
CUresult cuEventRecord(CUevent e, CUstream s) {
  return submit(s, [=] { *reinterpret_cast<Event*>(e) = {std::chrono::steady_clock::now(), endless()}; });
}
CUresult cuEventSynchronize(CUevent) { return CUDA_SUCCESS; }
CUresult cuEventQuery(CUevent e) { return reinterpret_cast<Event*>(e)->never ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS; }
CUresult cuEventElapsedTime_v2(float* ms, CUevent a, CUevent b) {
  *ms = std::chrono::duration<float, std::milli>(reinterpret_cast<Event*>(b)->at - reinterpret_cast<Event*>(a)->at).count();
  return CUDA_SUCCESS;
}
#undef cuEventElapsedTime
CUresult cuEventElapsedTime(float* ms, CUevent a, CUevent b) { return cuEventElapsedTime_v2(ms, a, b); }

// ---------------------------------------------------------------------------------------------------------------- graphs

CUresult cuStreamBeginCapture_v2(CUstream s, CUstreamCaptureMode) { return reinterpret_cast<Stream*>(s)->capturing = true, CUDA_SUCCESS; }
CUresult cuStreamEndCapture(CUstream s, CUgraph* g) {
  auto* stream = reinterpret_cast<Stream*>(s);
  *g = reinterpret_cast<CUgraph>(new std::vector<Call>(std::move(stream->calls)));
  stream->calls.clear();
  return stream->capturing = false, CUDA_SUCCESS;
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec* x, CUgraph g, unsigned long long) {
  return *x = reinterpret_cast<CUgraphExec>(new std::vector<Call>(*reinterpret_cast<std::vector<Call>*>(g))), CUDA_SUCCESS;
}
CUresult cuGraphLaunch(CUgraphExec x, CUstream) {
  replays++;
  if (endless()) return CUDA_SUCCESS;
  for (auto& call : *reinterpret_cast<std::vector<Call>*>(x)) call();
  return CUDA_SUCCESS;
}
CUresult cuGraphUpload(CUgraphExec, CUstream) { return CUDA_SUCCESS; }
CUresult cuGraphDestroy(CUgraph g) { return delete reinterpret_cast<std::vector<Call>*>(g), CUDA_SUCCESS; }
CUresult cuGraphExecDestroy(CUgraphExec x) { return delete reinterpret_cast<std::vector<Call>*>(x), CUDA_SUCCESS; }

// --------------------------------------------------------------------------------------------------- libraries and kernels

CUresult cuLibraryLoadData(CUlibrary* out, const void* image, CUjit_option*, void**, unsigned, CUlibraryOption*, void**, unsigned) {
  const char* text = static_cast<const char*>(image);
  const char* magic = strstr(text, kMagic);
  if (!magic) return CUDA_ERROR_INVALID_IMAGE;
  std::string path(magic + sizeof kMagic - 1);
  path = path.substr(0, path.find('\n'));
  std::lock_guard<std::mutex> lock(mu);
  std::vector<const Entry*> found;
  loading = &found;
  void* h = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  loading = nullptr;
  if (!h) return fprintf(stderr, "cudahost: %s\n", dlerror()), CUDA_ERROR_INVALID_IMAGE;
  static std::map<std::string, Library*> opened;  // a library registers its entries once
  Library*& lib = opened[path];
  if (!lib) lib = new Library{h, {}};
  for (const Entry* e : found) lib->entries[e->name] = e;
  return *out = reinterpret_cast<CUlibrary>(lib), CUDA_SUCCESS;
}
CUresult cuLibraryUnload(CUlibrary) { return CUDA_SUCCESS; }
CUresult cuLibraryGetKernel(CUkernel* k, CUlibrary l, const char* name) {
  auto& entries = reinterpret_cast<Library*>(l)->entries;
  auto it = entries.find(name);
  if (it == entries.end()) return CUDA_ERROR_NOT_FOUND;
  return *k = reinterpret_cast<CUkernel>(const_cast<Entry*>(it->second)), CUDA_SUCCESS;
}
CUresult cuKernelGetFunction(CUfunction* f, CUkernel k) { return *f = reinterpret_cast<CUfunction>(k), CUDA_SUCCESS; }
CUresult cuKernelGetParamInfo(CUkernel k, size_t i, size_t* offset, size_t* size) {
  auto* e = reinterpret_cast<Entry*>(k);
  if (i >= e->num_params) return CUDA_ERROR_INVALID_VALUE;
  size_t at = 0;
  for (size_t j = 0;; j++) {
    at = (at + e->aligns[j] - 1) & ~(e->aligns[j] - 1);
    if (j == i) break;
    at += e->sizes[j];
  }
  *offset = at;
  if (size) *size = e->sizes[i];
  return CUDA_SUCCESS;
}
CUresult cuFuncGetParamInfo(CUfunction f, size_t i, size_t* offset, size_t* size) { return cuKernelGetParamInfo(reinterpret_cast<CUkernel>(f), i, offset, size); }
CUresult cuKernelSetAttribute(CUfunction_attribute, int, CUkernel, CUdevice) { return CUDA_SUCCESS; }
CUresult cuKernelGetAttribute(int* v, CUfunction_attribute a, CUkernel, CUdevice) {
  return *v = a == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0, CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; }
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction, int, size_t) { return *blocks = 1, CUDA_SUCCESS; }
CUresult cuFuncGetAttribute(int* v, CUfunction_attribute a, CUfunction) { return cuKernelGetAttribute(v, a, nullptr, 0); }

CUresult cuLaunchKernelEx(const CUlaunchConfig* c, CUfunction f, void** params, void**) {
  auto* e = reinterpret_cast<const Entry*>(f);
  const uint64_t threads = uint64_t(c->blockDimX) * c->blockDimY * c->blockDimZ;
  if (threads == 0 || threads > 1024 || !c->gridDimX || !c->gridDimY || !c->gridDimZ || c->gridDimY > 65535 || c->gridDimZ > 65535 || c->sharedMemBytes > 227 << 10)
    return CUDA_ERROR_INVALID_VALUE;
  size_t total = 0;
  for (size_t i = 0; i < e->num_params; i++) total = ((total + 15) & ~size_t(15)) + e->sizes[i];
  std::vector<std::max_align_t> store(total / sizeof(std::max_align_t) + 1);
  std::vector<size_t> at(e->num_params);
  size_t end = 0;
  for (size_t i = 0; i < e->num_params; i++) {
    at[i] = end = (end + 15) & ~size_t(15);
    memcpy(reinterpret_cast<char*>(store.data()) + end, params[i], e->sizes[i]);
    end += e->sizes[i];
  }
  const dim3 grid(c->gridDimX, c->gridDimY, c->gridDimZ), block(c->blockDimX, c->blockDimY, c->blockDimZ);
  const size_t shared = c->sharedMemBytes;
  unsigned cluster = 1;
  for (unsigned i = 0; i < c->numAttrs; i++)
    if (c->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) cluster = c->attrs[i].value.clusterDim.x;
  if (c->gridDimX % cluster != 0) return CUDA_ERROR_INVALID_VALUE;
  return submit(c->hStream, [=]() mutable {
    std::vector<void*> p(at.size());
    for (size_t i = 0; i < p.size(); i++) p[i] = reinterpret_cast<char*>(store.data()) + at[i];
    cudahost::run_grid(e, p.data(), grid, block, shared, cluster);
  });
}
CUresult cuTensorMapEncodeTiled(CUtensorMap* out, CUtensorMapDataType type, cuuint32_t rank, void* memory, const cuuint64_t* dim, const cuuint64_t* stride,
                                const cuuint32_t* box, const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion,
                                CUtensorMapFloatOOBfill) {
  static const uint8_t bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2};  // by type
  if (rank < 1 || rank > 5 || size_t(type) >= sizeof bytes) return CUDA_ERROR_INVALID_VALUE;
  cudahost::TensorMap m = {};
  m.memory = static_cast<const char*>(memory), m.rank = uint8_t(rank), m.bytes = bytes[type];
  m.swizzle = swizzle == CU_TENSOR_MAP_SWIZZLE_NONE ? 0 : uint8_t(16 << swizzle);
  for (cuuint32_t i = 0; i < rank; i++) m.dim[i] = dim[i], m.box[i] = box[i];
  for (cuuint32_t i = 0; i + 1 < rank; i++) m.stride[i] = stride[i];
  memset(out, 0, sizeof *out);
  memcpy(out, &m, sizeof m);
  return CUDA_SUCCESS;
}

}  // extern "C"
