// SPDX-License-Identifier: MIT OR Apache-2.0
// Bench of loading: what limits files of the page cache on their way to the device's memory. It needs no kernel.
//
//	load FILE GIB [parts]     writes FILE of random bytes, unless it is there, and measures the parts, by default all:
//	  pin       taking and giving back pinned memory
//	  copy      copies of pinned memory by their size, and what a call costs the host
//	  read      page cache to pinned memory by threads: pread, and a mapping with stores past the caches
//	  lanes     threads that fill stages of their own and start their copies
//	  ring      threads that fill the pieces of common stages, whose last piece starts the copy
//	  register  mapped pages of the file, registered for the device to copy from as they are
#include <cuda_runtime.h>
#include <fcntl.h>
#include <immintrin.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "fatal.cuh"

namespace {

using std::string;
using clock_ = std::chrono::steady_clock;
double since(clock_::time_point t) { return std::chrono::duration<double>(clock_::now() - t).count(); }

int file;
size_t bytes;
char* device;
const size_t MiB = 1 << 20;

// on runs f(0) … f(threads-1) at once and gives the seconds.
double on(int threads, const std::function<void(int)>& f) {
  const auto began = clock_::now();
  std::vector<std::thread> list;
  for (int t = 0; t < threads; t++) list.emplace_back(f, t);
  for (auto& t : list) t.join();
  return since(began);
}

double rate(double seconds) { return double(bytes) / 1e9 / seconds; }

void read_at(char* to, size_t off, size_t n) {
  while (n > 0) {
    const ssize_t got = pread(file, to, n, off_t(off));
    if (got <= 0) { perror("pread"); std::_Exit(2); }
    to += got, off += size_t(got), n -= size_t(got);
  }
}

// stream_copy stores past the caches; n is a multiple of 128.
__attribute__((target("avx2"))) void stream_copy(char* to, const char* from, size_t n) {
  for (size_t i = 0; i < n; i += 128) {
    __m256i v[4];
    for (int k = 0; k < 4; k++) v[k] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i) + k);
    for (int k = 0; k < 4; k++) _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i) + k, v[k]);
  }
  _mm_sfence();
}

char* pin(size_t n) {
  void* p;
  OK(cudaHostAlloc(&p, n, cudaHostAllocPortable));
  return static_cast<char*>(p);
}

void pins() {
  for (size_t n : {size_t(32), size_t(128), size_t(128), size_t(256)}) {
    auto t = clock_::now();
    char* p = pin(n * MiB);
    const double took = since(t);
    t = clock_::now();
    memset(p, 1, n * MiB);
    const double touched = since(t);
    t = clock_::now();
    OK(cudaFreeHost(p));
    printf("pin %4zu MiB at once: %.1f ms, touching %.1f, giving back %.1f\n", n, took * 1e3, touched * 1e3, since(t) * 1e3);
  }
  std::vector<char*> all(16);
  double took = on(16, [&](int i) { all[i] = pin(8 * MiB); });
  double back = on(16, [&](int i) { OK(cudaFreeHost(all[i])); });
  printf("pin 16 x 8 MiB by threads: %.1f ms, giving back %.1f\n", took * 1e3, back * 1e3);
  for (bool huge : {false, true}) {
    auto t = clock_::now();
    const size_t n = 128 * MiB;
    char* p = static_cast<char*>(mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (huge) madvise(p, n, MADV_HUGEPAGE);
    on(16, [&](int i) { memset(p + size_t(i) * 8 * MiB, 0, 8 * MiB); });
    const double touched = since(t);
    t = clock_::now();
    const cudaError_t e = cudaHostRegister(p, n, cudaHostRegisterPortable);
    const double registered = since(t);
    t = clock_::now();
    if (e == cudaSuccess) OK(cudaHostUnregister(p));
    printf("register 128 MiB, %s pages: %s, touching %.1f ms, registering %.1f, back %.1f\n", huge ? "huge" : "plain", cudaGetErrorName(e), touched * 1e3, registered * 1e3, since(t) * 1e3);
    munmap(p, n);
    cudaGetLastError();
  }
}

void copies() {
  const size_t whole = 256 * MiB, total = 4096 * MiB;
  char* p = pin(whole);
  memset(p, 1, whole);
  cudaStream_t s;
  cudaEvent_t e;
  OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  OK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
  for (bool marked : {false, true})
    for (size_t n : {MiB / 4, MiB, 2 * MiB, 4 * MiB, 8 * MiB, 16 * MiB, 64 * MiB}) {
      auto t = clock_::now();
      for (size_t at = 0; at < total; at += n) {
        OK(cudaMemcpyAsync(device + at, p + at % whole, n, cudaMemcpyHostToDevice, s));
        if (marked) OK(cudaEventRecord(e, s));
      }
      const double sent = since(t);
      OK(cudaStreamSynchronize(s));
      const double took = since(t);
      printf("copies of %6.2f MiB%s: %.1f GB/s, %.2f us a call until the last was queued\n", double(n) / MiB, marked ? " and events" : "", double(total) / 1e9 / took, sent * 1e6 / double(total / n));
    }
  OK(cudaFreeHost(p));
}

void reads() {
  const size_t chunk = 4 * MiB;
  char* p = pin(16 * chunk);
  memset(p, 1, 16 * chunk);
  for (int threads : {4, 8, 12, 16}) {
    std::atomic<size_t> next{0};
    const double took = on(threads, [&](int t) {
      for (size_t at; (at = next.fetch_add(chunk)) < bytes;) read_at(p + size_t(t) * chunk, at, std::min(chunk, bytes - at));
    });
    printf("pread, %2d threads: %.1f GB/s\n", threads, rate(took));
  }
  char* map = static_cast<char*>(mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, 0));
  for (int again = 0; again < 2; again++)
    for (int threads : {8, 16}) {
      std::atomic<size_t> next{0};
      const double took = on(threads, [&](int t) {
        for (size_t at; (at = next.fetch_add(chunk)) < bytes;) stream_copy(p + size_t(t) * chunk, map + at, std::min(chunk, bytes - at));
      });
      printf("mapping%s, %2d threads: %.1f GB/s\n", again ? " touched before" : "", threads, rate(took));
    }
  munmap(map, bytes);
  OK(cudaFreeHost(p));
}

// lanes: each thread has stages of its own.
void lanes(int threads, size_t chunk, int stages, int streams) {
  char* p = pin(size_t(threads * stages) * chunk);
  std::vector<cudaStream_t> s(streams);
  for (auto& x : s) OK(cudaStreamCreateWithFlags(&x, cudaStreamNonBlocking));
  std::atomic<size_t> next{0};
  double best = 1e9;
  std::atomic<int64_t> read_ns{0}, wait_ns{0}, call_ns{0};
  for (int again = 0; again < 2; again++) {
    next = 0, read_ns = wait_ns = call_ns = 0;
    const double took = on(threads, [&](int t) {
      std::vector<cudaEvent_t> done(stages);
      for (auto& e : done) OK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
      int at = 0;
      double r = 0, w = 0, c = 0;
      for (size_t off; (off = next.fetch_add(chunk)) < bytes; at = (at + 1) % stages) {
        const size_t n = std::min(chunk, bytes - off);
        auto a = clock_::now();
        OK(cudaEventSynchronize(done[at]));
        w += since(a), a = clock_::now();
        char* mine = p + size_t(t * stages + at) * chunk;
        read_at(mine, off, n);
        r += since(a), a = clock_::now();
        OK(cudaMemcpyAsync(device + off, mine, n, cudaMemcpyHostToDevice, s[t % streams]));
        OK(cudaEventRecord(done[at], s[t % streams]));
        c += since(a);
      }
      for (auto& e : done) OK(cudaEventSynchronize(e));
      read_ns += int64_t(r * 1e9), wait_ns += int64_t(w * 1e9), call_ns += int64_t(c * 1e9);
    });
    best = std::min(best, took);
  }
  printf("lanes: %2d threads, %d stages of %5.1f MiB, %d streams: %.1f GB/s; of a thread's time reading %.0f ms, waiting %.0f, calls %.0f\n", threads, stages, double(chunk) / MiB, streams, rate(best),
         double(read_ns) / 1e6 / threads, double(wait_ns) / 1e6 / threads, double(call_ns) / 1e6 / threads);
  for (auto& x : s) OK(cudaStreamDestroy(x));
  OK(cudaFreeHost(p));
}

// ring: pieces of stages in order, to whatever thread is free. Stage q takes the memory of stage q - stages once its copy has ended.
void ring(int threads, size_t stage, size_t piece, int stages, bool mapped) {
  char* p = pin(size_t(stages) * stage);
  cudaStream_t s;
  OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  std::vector<cudaEvent_t> done(stages);
  for (auto& e : done) OK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
  const size_t num = (bytes + stage - 1) / stage, pieces = stage / piece;
  char* map = mapped ? static_cast<char*>(mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, 0)) : nullptr;
  double best = 1e9, worst = 0;
  for (int again = 0; again < 2; again++) {
    std::vector<std::atomic<int>> filled(num), sent(num);
    std::atomic<size_t> next{0};
    const double took = on(threads, [&](int) {
      for (size_t i; (i = next++) < num * pieces;) {
        const size_t q = i / pieces, off = i * piece, n = off < bytes ? std::min(piece, bytes - off) : 0;
        if (q >= size_t(stages)) {
          while (!sent[q - stages]) _mm_pause();
          OK(cudaEventSynchronize(done[q % stages]));
        }
        char* to = p + (q % stages) * stage + i % pieces * piece;
        if (mapped) stream_copy(to, map + off, n);
        else read_at(to, off, n);
        if (size_t(++filled[q]) == pieces) {
          OK(cudaMemcpyAsync(device + q * stage, p + (q % stages) * stage, std::min(stage, bytes - q * stage), cudaMemcpyHostToDevice, s));
          OK(cudaEventRecord(done[q % stages], s));
          sent[q] = 1;
        }
      }
    });
    const auto t = clock_::now();
    OK(cudaStreamSynchronize(s));
    best = std::min(best, took + since(t)), worst = std::max(worst, took + since(t));
  }
  printf("ring: %2d threads, %2d stages of %3zu MiB in pieces of %4zu KiB%s: %.1f GB/s, the slower %.1f\n", threads, stages, stage / MiB, piece >> 10, mapped ? ", mapped" : "", rate(best), rate(worst));
  if (map) munmap(map, bytes);
  OK(cudaStreamDestroy(s));
  OK(cudaFreeHost(p));
}

void registers() {
  int can = 0, pageable = 0, tables = 0;
  OK(cudaDeviceGetAttribute(&can, cudaDevAttrHostRegisterReadOnlySupported, 0));
  OK(cudaDeviceGetAttribute(&pageable, cudaDevAttrPageableMemoryAccess, 0));
  OK(cudaDeviceGetAttribute(&tables, cudaDevAttrPageableMemoryAccessUsesHostPageTables, 0));
  printf("read-only registration %d, pageable access %d, by host page tables %d\n", can, pageable, tables);
  cudaStream_t s;
  OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  struct Form { const char* name; int prot, flags; unsigned how; };
  for (const Form& f : {Form{"shared, read-only", PROT_READ, MAP_SHARED, cudaHostRegisterReadOnly}, Form{"shared, writable", PROT_READ | PROT_WRITE, MAP_SHARED, cudaHostRegisterDefault},
                        Form{"private, read-only", PROT_READ, MAP_PRIVATE, cudaHostRegisterReadOnly}}) {
    for (int threads : {1, 4, 16}) {
      const size_t piece = 256 * MiB, part = std::min(bytes, size_t(8) << 30) / piece * piece;
      char* map = static_cast<char*>(mmap(nullptr, part, f.prot, f.flags, file, 0));
      if (map == MAP_FAILED) { perror(f.name); break; }
      std::atomic<size_t> next{0};
      std::atomic<int> failed{0};
      const double took = on(threads, [&](int) {
        for (size_t at; !failed && (at = next.fetch_add(piece)) < part;) {
          const cudaError_t e = cudaHostRegister(map + at, piece, f.how | cudaHostRegisterPortable);
          if (e != cudaSuccess) { failed = e; return; }
        }
      });
      if (failed) {
        printf("register %s: %s\n", f.name, cudaGetErrorName(cudaError_t(failed.load())));
        cudaGetLastError();
        munmap(map, part);
        break;
      }
      auto t = clock_::now();
      for (size_t at = 0; at < part; at += piece) OK(cudaMemcpyAsync(device + at, map + at, piece, cudaMemcpyHostToDevice, s));
      OK(cudaStreamSynchronize(s));
      const double copied = since(t);
      next = 0;
      const double back = on(threads, [&](int) {
        for (size_t at; (at = next.fetch_add(piece)) < part;) OK(cudaHostUnregister(map + at));
      });
      printf("register %s, %2d threads: %.1f ms/GB, copies %.1f GB/s, back %.1f ms/GB\n", f.name, threads, took * 1e12 / double(part), double(part) / 1e9 / copied, back * 1e12 / double(part));
      munmap(map, part);
    }
  }
  OK(cudaStreamDestroy(s));
}

void write_file(const char* name) {
  const int f = open(name, O_RDWR | O_CREAT, 0644);
  if (f < 0 || ftruncate(f, off_t(bytes)) != 0) { perror(name); std::_Exit(2); }
  std::atomic<size_t> next{0};
  const size_t chunk = 16 * MiB;
  const double took = on(16, [&](int t) {
    std::vector<uint64_t> words(chunk / 8);
    uint64_t z = uint64_t(t) + 1;
    for (auto& w : words) w = z = z * 6364136223846793005ull + 1442695040888963407ull;
    for (size_t at; (at = next.fetch_add(chunk)) < bytes;)
      if (pwrite(f, words.data(), std::min(chunk, bytes - at), off_t(at)) <= 0) { perror(name); std::_Exit(2); }
  });
  printf("%s: %.1f GB written at %.1f GB/s\n", name, double(bytes) / 1e9, rate(took));
  close(f);
}

}  // namespace

int main(int n, char** args) {
  if (n < 3 || atof(args[2]) <= 0) return fprintf(stderr, "usage: load FILE GIB [pin copy read lanes ring register]\n"), 1;
  bytes = size_t(atof(args[2]) * 1024) * MiB;
  const auto wants = [&](const char* part) {
    if (n == 3) return true;
    return std::any_of(args + 3, args + n, [&](char* a) { return string(a) == part; });
  };
  struct stat st;
  if (stat(args[1], &st) != 0 || size_t(st.st_size) != bytes) write_file(args[1]);
  file = open(args[1], O_RDWR);
  if (file < 0) return perror(args[1]), 2;
  OK(cudaFree(nullptr));
  OK(cudaMalloc(&device, std::max(bytes, size_t(4) << 30)));
  setvbuf(stdout, nullptr, _IOLBF, 0);
  if (wants("pin")) pins();
  if (wants("copy")) copies();
  if (wants("read")) reads();
  if (wants("lanes")) {
    for (size_t chunk : {MiB / 2, 2 * MiB, 4 * MiB, 8 * MiB, 16 * MiB}) lanes(16, chunk, 2, 1);
    lanes(16, 4 * MiB, 3, 1), lanes(16, 4 * MiB, 2, 2), lanes(12, 4 * MiB, 2, 1), lanes(8, 8 * MiB, 2, 1), lanes(14, 8 * MiB, 2, 1);
  }
  if (wants("ring")) {
    for (int threads : {8, 12, 14, 15, 16}) ring(threads, 16 * MiB, MiB, 8, false);
    ring(15, 8 * MiB, MiB, 8, false), ring(15, 8 * MiB, MiB / 2, 6, false), ring(15, 16 * MiB, MiB / 2, 4, false), ring(15, 16 * MiB, MiB, 6, false), ring(15, 32 * MiB, 2 * MiB, 4, false), ring(15, 64 * MiB, 4 * MiB, 4, false),
        ring(15, 4 * MiB, MiB / 4, 8, false), ring(15, 16 * MiB, MiB, 8, true);
  }
  if (wants("register")) registers();
  return 0;
}
