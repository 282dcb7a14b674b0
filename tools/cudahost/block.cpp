// SPDX-License-Identifier: MIT OR Apache-2.0
// Runs the threads of a block as fibers of one operating system thread, and the blocks of a grid on all processors. Blocks of a
// cluster run at the same time, each on an operating system thread of its own, and so do as many of a grid as there are multiprocessors.
#include "block.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace cudahost {
namespace {

constexpr size_t kStack = 256 << 10;  // of a fiber; the kernel maps only what is touched

// fiber_switch saves the callee-saved registers and the stack pointer, and takes up another fiber's (System V x86-64).
extern "C" void cudahost_fiber_switch(void** save, void* load);
asm(R"(
.text
.globl cudahost_fiber_switch
.hidden cudahost_fiber_switch
cudahost_fiber_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");

enum State { kReady, kBarrier, kWarp, kDone };

struct Fiber {
  Place place;
  void* sp;
  State state;
  unsigned phase;       // of the cluster's barrier, when it arrived there
  uint64_t result[32];  // of its last exchange
};

// Cluster is a barrier of blocks that run at the same time, one or more, and where their shared memory is.
struct Cluster {
  struct Memory {
    std::atomic<char*> shared{nullptr}, statics{nullptr};  // while the block runs
  };
  std::mutex mu;
  int threads, arrived = 0;  // threads that have not left
  std::atomic<unsigned> phase{0};
  std::vector<Memory> memory;

  Cluster(unsigned blocks, int threads) : threads(blocks * threads), memory(blocks) {}
  void count(int came, int left) {
    std::lock_guard<std::mutex> lock(mu);
    arrived += came, threads -= left;
    if (arrived == threads) arrived = 0, phase++;
  }
};

// Warp holds what the lanes that wait in an exchange gave.
struct Warp {
  uint64_t slot[32];
  unsigned arrived;
};

// Worker is an operating system thread's block.
struct Worker {
  void* scheduler;
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  std::vector<char> shared;
  char* stacks = nullptr;
  size_t num_stacks = 0;
  int current = 0;
  int done = 0, at_barrier = 0, spinning = 0;
  const Entry* entry;
  void** params;
  Cluster* cluster;
  ~Worker() {
    if (stacks) munmap(stacks, num_stacks * kStack);
  }
};

thread_local Worker worker;
thread_local Place* place;

void yield() {
  Fiber& f = worker.fibers[worker.current];
  cudahost_fiber_switch(&f.sp, worker.scheduler);
  place = &worker.fibers[worker.current].place;
}

void fiber_main() {
  Worker& w = worker;
  w.entry->call(w.params);
  w.fibers[w.current].state = kDone;
  w.done++;
  w.cluster->count(0, 1);
  yield();
  abort();
}

// prepare puts a fiber at the start of fiber_main.
void prepare(Worker& w, int i) {
  void** top = reinterpret_cast<void**>(w.stacks + (size_t(i) + 1) * kStack);
  *--top = nullptr;  // keeps the stack 16-byte aligned at fiber_main's entry
  *--top = reinterpret_cast<void*>(fiber_main);
  for (int r = 0; r < 6; r++) *--top = nullptr;
  w.fibers[i].sp = top;
  w.fibers[i].state = kReady;
}

void stuck(const Worker& w) {
  fprintf(stderr, "kernel %s: block (%u, %u, %u) is stuck: %d of %zu threads done, %d at a barrier\n", w.entry->name, place->block_idx.x,
          place->block_idx.y, place->block_idx.z, w.done, w.fibers.size(), w.at_barrier);
  abort();
}

void run_block(const Entry* e, void** params, dim3 grid, dim3 block, dim3 at, size_t shared, Cluster& cluster) {
  Worker& w = worker;
  const int n = int(block.x * block.y * block.z);
  if (w.num_stacks < size_t(n)) {
    if (w.stacks) munmap(w.stacks, w.num_stacks * kStack);
    w.stacks = static_cast<char*>(mmap(nullptr, n * kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (w.stacks == MAP_FAILED) abort();
    w.num_stacks = n;
  }
  w.fibers.resize(n);
  w.warps.assign((n + 31) / 32, Warp{});
  w.shared.assign(shared + 1024, char(0xA5));  // what nobody wrote is not zero
  w.entry = e, w.params = params, w.done = w.at_barrier = 0, w.cluster = &cluster;
  char* dynamic = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(w.shared.data()) + 1023) & ~uintptr_t(1023));
  const unsigned blocks = unsigned(cluster.memory.size()), rank = at.x % blocks;
  Cluster::Memory& memory = cluster.memory[rank];
  memory.statics = e->statics(), memory.shared = dynamic;
  for (int i = 0; i < n; i++) {
    unsigned t = unsigned(i);
    w.fibers[i].place = Place{dim3(t % block.x, t / block.x % block.y, t / (block.x * block.y)), at, block, grid, dynamic, shared, rank, blocks};
    prepare(w, i);
  }
  auto moved_at = std::chrono::steady_clock::now();
  while (w.done < n) {
    bool moved = false;
    w.spinning = 0;
    int ran = 0;
    for (int i = 0; i < n; i++) {
      if (w.fibers[i].state != kReady) continue;
      moved = true, ran++;
      w.current = i;
      place = &w.fibers[i].place;
      cudahost_fiber_switch(&w.scheduler, w.fibers[i].sp);
    }
    if (w.at_barrier > 0 && w.at_barrier + w.done == n) {  // threads that left count as arrived
      moved = true;
      w.at_barrier = 0;
      for (Fiber& f : w.fibers)
        if (f.state == kBarrier) f.state = kReady;
    }
    if (ran > w.spinning) moved_at = std::chrono::steady_clock::now();
    if (!moved || std::chrono::steady_clock::now() - moved_at > std::chrono::minutes(1)) stuck(w);
    if (ran == w.spinning) std::this_thread::yield();  // all wait for other blocks
  }
  memory.shared = memory.statics = nullptr;
}

}  // namespace

extern "C" Place* cudahost_place() { return place; }

extern "C" void cudahost_barrier() {
  worker.fibers[worker.current].state = kBarrier;
  worker.at_barrier++;
  yield();
}

extern "C" void cudahost_cluster_arrive() {
  Worker& w = worker;
  w.fibers[w.current].phase = w.cluster->phase;
  w.cluster->count(1, 0);
}

extern "C" void cudahost_cluster_wait() {
  Worker& w = worker;
  while (w.cluster->phase == w.fibers[w.current].phase) {
    w.spinning++;
    yield();
  }
}

extern "C" void* cudahost_cluster_place(const void* p, unsigned rank) {
  const char* at = static_cast<const char*>(p);
  const std::vector<Cluster::Memory>& all = worker.cluster->memory;
  const size_t from_shared = size_t(at - static_cast<char*>(place->shared));
  char* const shared = rank < all.size() ? all[rank].shared.load() : nullptr;
  char* const statics = shared ? all[rank].statics.load() : nullptr;
  if (!statics) {
    fprintf(stderr, "kernel %s: block (%u, %u, %u) reaches for the shared memory of block %u of its cluster, which has not begun or has left\n",
            worker.entry->name, place->block_idx.x, place->block_idx.y, place->block_idx.z, rank);
    abort();
  }
  return from_shared < place->shared_bytes ? shared + from_shared : statics + (at - all[place->rank].statics.load());
}

extern "C" void cudahost_pause() {
  worker.spinning++;
  yield();
}

extern "C" const uint64_t* cudahost_exchange(unsigned mask, uint64_t value) {
  Worker& w = worker;
  const int lane = w.current & 31, first = w.current - lane;
  const int there = int(w.fibers.size()) - first;
  if (there < 32) mask &= (1u << there) - 1;
  Fiber* lanes = &w.fibers[first];
  Warp& warp = w.warps[first / 32];
  warp.slot[lane] = value;
  warp.arrived |= 1u << lane;
  if ((warp.arrived & mask) != mask) {
    lanes[lane].state = kWarp;
    yield();
    return w.fibers[w.current].result;
  }
  warp.arrived &= ~mask;
  for (int l = 0; l < 32; l++) {
    if (!(mask >> l & 1)) continue;
    memcpy(lanes[l].result, warp.slot, sizeof warp.slot);
    lanes[l].state = kReady;
  }
  return lanes[lane].result;
}

void run_grid(const Entry* e, void** params, dim3 grid, dim3 block, size_t shared, unsigned cluster) {
  const uint64_t blocks = uint64_t(grid.x) * grid.y * grid.z;
  const int threads = int(block.x * block.y * block.z);
  auto run = [&](uint64_t b, Cluster& c) {
    run_block(e, params, grid, block, dim3(unsigned(b % grid.x), unsigned(b / grid.x % grid.y), unsigned(b / grid.x / grid.y)), shared, c);
  };
  if (cluster > 1) {
    for (uint64_t b = 0; b < blocks; b += cluster) {
      Cluster c(cluster, threads);
      std::vector<std::thread> all;
      for (unsigned i = 0; i < cluster; i++) all.emplace_back(run, b + i, std::ref(c));
      for (auto& t : all) t.join();
    }
    return;
  }
  std::atomic<uint64_t> next{0};
  auto work = [&] {
    for (uint64_t b; (b = next++) < blocks;) {
      Cluster alone(1, threads);
      run(b, alone);
    }
  };
  const unsigned cores = blocks < kMultiprocessors ? 1 : std::max(kMultiprocessors, std::thread::hardware_concurrency());
  std::vector<std::thread> more;
  for (unsigned i = 1; i < cores; i++) more.emplace_back(work);
  work();
  for (auto& t : more) t.join();
}

}  // namespace cudahost
