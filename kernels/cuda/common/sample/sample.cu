// SPDX-License-Identifier: MIT OR Apache-2.0
// Family sample: a token, or the likeliest ones, of rows of logits. A row of the sampler (Draw) names a row of logits and a policy;
// internal/sample says what it draws. Up to three launches, each with a block for a tile of a row:
//
//	sample_scan    the largest logit; the row's last block ends greedy rows
//	sample_spread  counts and masses of the tokens that may be drawn, in buckets over x = (logit - max) * scale
//	sample_choose  which buckets matter is known now: their tokens are listed, and the row's last block sorts them
//
// Three sums are asked for in order of likelihood: where the count reaches top-k, where the mass reaches top-p's share, and where it
// exceeds u * total. Each is reached in one bucket, or in a few while the sum before is known by bucket only; all other buckets
// need just their sums.

#include "step.cuh"

#include "row.cuh"

// Rows is a launch's arguments.
struct Rows {
  const float* logits;       // [outs, stride]
  const uint32_t* counts;    // [seats, stride]
  const Edit* edits;         // [seats, num_edits]
  const uint32_t* masks;     // [outs, ceil(stride, 32)]
  int vocab, stride, num_edits;

  __device__ Memory of(const Draw& d) const {
    const int64_t seat = d.seat < 0 ? 0 : d.seat;
    return Memory{logits + int64_t(d.out) * stride, counts + seat * stride, edits + seat * num_edits,
                  d.mask < 0 ? nullptr : masks + int64_t(d.mask) * ceil_div(stride, 32), vocab};
  }
};

// Where a row's outcome goes.
struct Outcome {
  uint32_t* counts;  // [seats, stride]
  int32_t* newest;   // [seats]
  Result* results;   // [draws]
  int stride;
};

template <class T>
__device__ __forceinline__ T fresh(const T* p) { return __ldcg(p); }  // what another block wrote

// Summary is what a row's tiles say together.
struct Summary {
  uint64_t best;
  float least;
  int count;
  double sum, squares;

  __device__ uint32_t top() const { return uint32_t(best >> 32); }
  __device__ int id() const { return int(~uint32_t(best)); }
  // none: every logit is -Inf; odd: one is no number.
  __device__ bool none() const { return top() <= order(-INFINITY); }
  __device__ bool odd() const { return top() >= order(INFINITY); }

  __device__ double deviation() const {
    const double mean = __ddiv_rn(sum, count);
    return __dsqrt_rn(fmax(0.0, __dsub_rn(__ddiv_rn(squares, count), __dmul_rn(mean, mean))));
  }
};

__device__ __forceinline__ Summary summarize(const Tile* tiles, int n) {
  __shared__ Summary shared;
  if (warp_id() == 0) {
    Summary s = {0, INFINITY, 0, 0, 0};
#pragma unroll 1
    for (int t = lane_id(); t < n; t += 32) {
      const Tile* p = tiles + t;
      const uint64_t b = fresh(&p->best);
      s.best = b > s.best ? b : s.best;
      s.least = fminf(s.least, fresh(&p->least));
      s.count += fresh(&p->count);
      s.sum = __dadd_rn(s.sum, fresh(&p->sum));
      s.squares = __dadd_rn(s.squares, fresh(&p->squares));
    }
    s.best = warp_max(s.best), s.least = -warp_max(-s.least);
    s.count = warp_sum(s.count), s.sum = warp_sum(s.sum), s.squares = warp_sum(s.squares);
    if (lane_id() == 0) shared = s;
  }
  __syncthreads();
  return shared;
}

// fail writes why a row has no token, for one thread.
__device__ __forceinline__ void fail(const Outcome& o, int row, const Draw& d, const Summary& s) {
  o.results[row] = Result{s.odd() ? -2 : -1, s.id(), unorder(s.top()), 0, 0, 0};
  if (!(d.flags & kRank) && d.seat >= 0) o.newest[d.seat] = 0;
}

// give writes a row's token, for one thread.
__device__ __forceinline__ void give(const Outcome& o, int row, const Draw& d, const Memory& m, int id, float top) {
  o.results[row] = Result{id, 0, m.logits[id], top, 0, 0};
  if (d.seat < 0) return;
  o.newest[d.seat] = id;
  if (d.flags & kCounts) {
    uint32_t* c = o.counts + int64_t(d.seat) * o.stride + id;
    *c = (*c | 0x80000000u) + 1;
  }
}

// ------------------------------------------------------------------------------------------------------------------ scan

// scan gives what a tile's logits say, to thread 0.
__device__ __forceinline__ Tile scan(Stage& v, int first, bool sums) {
  __shared__ uint64_t bests[kThreads / 32];
  __shared__ float leasts[kThreads / 32];
  Tile t = {0, INFINITY, 0, 0, 0};
#pragma unroll 2
  for (int j = 0; j < kEach; j++) {
    const uint64_t b = uint64_t(order(v.mine(j))) << 32 | ~uint32_t(first + j);
    t.best = b > t.best ? b : t.best;
    if (v.mine(j) > -INFINITY) t.least = fminf(t.least, v.mine(j));
  }
  t.best = warp_max(t.best), t.least = -warp_max(-t.least);
  if (lane_id() == 0) bests[warp_id()] = t.best, leasts[warp_id()] = t.least;
  __syncthreads();
  if (warp_id() == 0) {
    const int l = lane_id() % (kThreads / 32);
    t.best = warp_max(bests[l]), t.least = -warp_max(-leasts[l]);
  }
  if (sums) {
#pragma unroll 1
    for (int j = 0; j < kEach; j++) {
      const double x = v.mine(j);
      if (!(x > -INFINITY)) continue;
      t.count++, t.sum = __dadd_rn(t.sum, x), t.squares = __dadd_rn(t.squares, __dmul_rn(x, x));
    }
    t.count = block_sum(t.count), t.sum = block_sum(t.sum), t.squares = block_sum(t.squares);
  }
  return t;
}

// Grid: tiles, draws; kThreads threads. Leaves the row's buckets empty.
extern "C" __global__ void __launch_bounds__(kThreads, 2) sample_scan(
    const int32_t* __restrict__ head,    // [8] rows, seqs, outs, draws
    const Draw* __restrict__ draws,      // [draws]
    const float* __restrict__ logits,    // [outs, stride]
    uint32_t* counts,                    // [seats, stride]
    const Edit* __restrict__ edits,      // [seats, num_edits]
    const uint32_t* __restrict__ masks,  // [outs, ceil(stride, 32)]
    int32_t* newest,                     // [seats]
    Result* results,                     // [draws]
    Tile* tiles,                         // [draws, tiles]
    uint32_t* bucket_counts,             // [draws, kBuckets]
    uint64_t* bucket_masses,             // [draws, kBuckets]
    uint32_t* state,                     // [draws, 4] blocks that have scanned, chosen; listed tokens
    int32_t vocab, int32_t stride, int32_t num_edits) {
  __shared__ Draw d;
  __shared__ Stage v;
  begin();
  const int row = blockIdx.y, tile = blockIdx.x;
  if (!shared_draw(d, head, draws, row)) return;
  const Memory m = Rows{logits, counts, edits, masks, vocab, stride, num_edits}.of(d);
  stage(v, d, m, tile);
  const Tile t = scan(v, tile * kTile + threadIdx.x * kEach, d.sigmas > 0);
  tiles += int64_t(row) * gridDim.x;
  if (threadIdx.x == 0) tiles[tile] = t;
  if (!(d.flags & kGreedy)) {
#pragma unroll 1
    for (int b = tile * kThreads + threadIdx.x; b < kBuckets; b += gridDim.x * kThreads)
      bucket_counts[int64_t(row) * kBuckets + b] = 0, bucket_masses[int64_t(row) * kBuckets + b] = 0;
    return;
  }
  if (!last(state + 4 * row, gridDim.x)) return;
  const Summary s = summarize(tiles, gridDim.x);
  if (threadIdx.x != 0) return;
  const Outcome o = {counts, newest, results, stride};
  if (s.none() || s.odd())
    fail(o, row, d, s);
  else
    give(o, row, d, m, s.id(), unorder(s.top()));
}

// ---------------------------------------------------------------------------------------------------------------- spread

// View is how a row's logits become x, and x buckets.
struct View {
  float top, scale, low, per_bucket;

  __device__ View(const Draw& d, const Summary& s) : top(unorder(s.top())), scale(d.scale), low(d.low) {
    if (d.sigmas > 0) low = fmaxf(low, float(__dmul_rn(__dmul_rn(-double(d.sigmas), s.deviation()), double(d.scale))));
    // The likeliest ones of a row lie closer than any x that may be drawn.
    const float span = fminf(d.flags & kRank ? -kCutoff : -low, __fmul_rn(__fsub_rn(top, s.least), scale));
    per_bucket = fminf(kBuckets / span, 1e30f);
  }
  __device__ float x(float v) const { return __fmul_rn(__fsub_rn(v, top), scale); }
  __device__ bool has(float v, float x) const { return v > -INFINITY && x >= low; }
  __device__ int bucket(float x) const { return int(fminf(__fmul_rn(-x, per_bucket), kBuckets - 1)); }
};

// Grid: tiles, draws; kThreads threads.
extern "C" __global__ void __launch_bounds__(kThreads, 2) sample_spread(
    const int32_t* __restrict__ head,     // [8]
    const Draw* __restrict__ draws,       // [draws]
    const float* __restrict__ logits,     // [outs, stride]
    const uint32_t* __restrict__ counts,  // [seats, stride]
    const Edit* __restrict__ edits,       // [seats, num_edits]
    const uint32_t* __restrict__ masks,   // [outs, ceil(stride, 32)]
    const Tile* tiles,                    // [draws, tiles]
    uint32_t* bucket_counts,              // [draws, kBuckets] of rows with a top-k
    uint64_t* bucket_masses,              // [draws, kBuckets]
    int32_t vocab, int32_t stride, int32_t num_edits) {
  __shared__ Draw d;
  __shared__ Stage v;
  __shared__ uint32_t low[kBuckets], high[kBuckets], count[kBuckets], powers[256];
  begin();
  const int row = blockIdx.y, tile = blockIdx.x;
  if (!shared_draw(d, head, draws, row)) return;
  if (d.flags & kGreedy) return;
  stage(v, d, Rows{logits, counts, edits, masks, vocab, stride, num_edits}.of(d), tile);
  make_powers(powers);
#pragma unroll 1
  for (int b = threadIdx.x; b < kBuckets; b += kThreads) low[b] = high[b] = count[b] = 0;
  const Summary s = summarize(tiles + int64_t(row) * gridDim.x, gridDim.x);
  if (s.none() || s.odd()) return;
  const View view(d, s);
#pragma unroll 2
  for (int j = 0; j < kEach; j++) {
    const float x = view.x(v.mine(j));
    if (!view.has(v.mine(j), x)) continue;
    const int b = view.bucket(x);
    const uint64_t w = mass(powers, x);
    const uint32_t before = atomicAdd(&low[b], uint32_t(w));
    const uint32_t up = uint32_t(w >> 32) + (before + uint32_t(w) < before);
    if (up) atomicAdd(&high[b], up);
    if (d.top_k) atomicAdd(&count[b], 1u);
  }
  __syncthreads();
#pragma unroll 1
  for (int b = threadIdx.x; b < kBuckets; b += kThreads) {
    const uint64_t w = uint64_t(high[b]) << 32 | low[b];
    if (w) atomicAdd(reinterpret_cast<unsigned long long*>(bucket_masses + int64_t(row) * kBuckets + b), (unsigned long long)w);
    if (count[b]) atomicAdd(bucket_counts + int64_t(row) * kBuckets + b, count[b]);
  }
}

// ---------------------------------------------------------------------------------------------------------------- choose

// Shared is a block's memory.
struct Shared {
  uint64_t masses[kBuckets];  // through each bucket
  union {
    uint64_t list[kList];  // places
    Stage stage;
  };
  uint32_t counts[kBuckets];  // through each bucket
  uint32_t powers[256];
};
static_assert(sizeof(Shared) == 58368, "as the manifest says");

// before is the sum of v over the threads before this one.
template <class T>
__device__ __forceinline__ T before(T v) {
  __shared__ T sums[kThreads / 32];
  T s = v;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const T u = __shfl_up_sync(kAllLanes, s, d);
    if (lane_id() >= d) s += u;
  }
  if (lane_id() == 31) sums[warp_id()] = s;
  __syncthreads();
  s -= v;
#pragma unroll 1
  for (int w = 0; w < warp_id(); w++) s += sums[w];
  __syncthreads();
  return s;
}

// through makes to[b] the sum of from[0 … b].
template <class T>
__device__ __forceinline__ void through(T* to, const T* from) {
  constexpr int n = kBuckets / kThreads;
  T v[n], sum = 0;
#pragma unroll
  for (int i = 0; i < n; i++) v[i] = sum += from[threadIdx.x * n + i];
  const T rest = before(sum);
#pragma unroll
  for (int i = 0; i < n; i++) to[threadIdx.x * n + i] = rest + v[i];
  __syncthreads();
}

// reach is the first bucket through which the sum is at least goal, which the total is.
template <class T>
__device__ __forceinline__ int reach(const T* through, T goal) {
  __shared__ int found;
#pragma unroll 1
  for (int b = threadIdx.x; b < kBuckets; b += kThreads)
    if (through[b] >= goal && (b == 0 || through[b - 1] < goal)) found = b;
  __syncthreads();
  const int b = found;
  __syncthreads();
  return b;
}

__device__ __forceinline__ uint64_t part(uint64_t of, uint64_t share) {
  const uint64_t p = high64(of, share);
  return p ? p : 1;
}

// Window is buckets that matter.
struct Window {
  int first = 1, last = 0;
  __device__ bool has(int b) const { return first <= b && b <= last; }
};

// Chooser is a block's work on a row.
struct Chooser {
  const Draw& d;
  const Memory& m;
  const View& view;
  Shared& shared;
  uint32_t top;  // order of the largest logit
  int tiles;
  uint64_t u;

  __device__ uint64_t total() const { return shared.masses[kBuckets - 1]; }
  __device__ uint32_t all() const { return shared.counts[kBuckets - 1]; }
  __device__ bool cut() const { return d.top_k && d.top_k < all(); }
  __device__ uint32_t best() const { return min(d.top_k, all()); }

  // windows finds where each of the three sums may be reached.
  __device__ void windows(Window (&w)[3]) const {
    if (d.flags & kRank) {
      if (best()) w[0].first = 0, w[0].last = reach(shared.counts, best());
      return;
    }
    uint64_t least = total(), most = total();
    if (cut()) {
      const int b = w[0].first = w[0].last = reach(shared.counts, d.top_k);
      least = (b ? shared.masses[b - 1] : 0) + 1, most = shared.masses[b];
    }
    if (d.top_p) {
      least = part(least, d.top_p);
      w[1].first = reach(shared.masses, least), w[1].last = reach(shared.masses, part(most, d.top_p));
      most = min(most, shared.masses[w[1].last]);
    }
    w[2].first = reach(shared.masses, high64(least, u) + 1), w[2].last = reach(shared.masses, high64(most, u) + 1);
  }

  // sort brings the n places of the list, at most kList, into order; the rest of a power of two is ~0.
  __device__ int sort(int n) const {
    int size = 1;
    while (size < n) size *= 2;
#pragma unroll 1
    for (int i = n + threadIdx.x; i < size; i += kThreads) shared.list[i] = ~uint64_t(0);
    __syncthreads();
#pragma unroll 1
    for (int k = 2; k <= size; k *= 2)
#pragma unroll 1
      for (int j = k / 2; j > 0; j /= 2) {
#pragma unroll 1
        for (int i = threadIdx.x; i < size / 2; i += kThreads) {
          const int a = i + (i & -j);  // i / j * 2 * j + i % j
          const uint64_t p = shared.list[a], q = shared.list[a + j];
          if ((p > q) == ((a & k) == 0)) shared.list[a] = q, shared.list[a + j] = p;
        }
        __syncthreads();
      }
    return size;
  }

  __device__ float logit(uint64_t place) const { return logit_at(top, place); }
  __device__ float x(uint64_t place) const { return view.x(logit(place)); }

  // pick draws from a sorted list of whole buckets. A thread has consecutive places; it goes through them once for the sums before
  // them, and once for each of the three sums that are asked for. The first place of a bucket stands for the buckets that were left
  // out before it, too.
  __device__ int pick(int size) const {
    __shared__ uint64_t sum;
    __shared__ int chosen;
    const int each = ceil_div(size, kThreads), end = min(size, int(threadIdx.x + 1) * each);
    uint64_t mass_before = 0, of = total(), goal = 0;
    uint32_t count_before = 0;
    enum { kSums, kTopK, kTopP, kDraw };
#pragma unroll 1
    for (int ask = kSums; ask <= kDraw; ask++) {
      if (ask == kTopK && !cut() || ask == kTopP && !d.top_p) continue;
      if (ask >= kTopP) goal = ask == kTopP ? part(of, d.top_p) : high64(of, u) + 1;
      uint64_t masses = mass_before;
      uint32_t counts = count_before;
#pragma unroll 1
      for (int at = threadIdx.x * each; at < end; at++) {
        const uint64_t p = shared.list[at];
        if (p == ~uint64_t(0)) break;
        const float here = x(p);
        const int b = view.bucket(here), previous = at ? view.bucket(x(shared.list[at - 1])) : -1;
        if (b != previous) {
          masses += (b ? shared.masses[b - 1] : 0) - (previous < 0 ? 0 : shared.masses[previous]);
          if (d.top_k) counts += (b ? shared.counts[b - 1] : 0) - (previous < 0 ? 0 : shared.counts[previous]);
        }
        const uint64_t w = mass(shared.powers, here);
        masses += w, counts++;
        if (ask == kTopK ? counts == d.top_k : ask != kSums && masses >= goal && masses - w < goal) sum = masses, chosen = id_at(p);
      }
      if (ask == kSums) {
        mass_before = before(masses), count_before = before(counts);
        continue;
      }
      __syncthreads();
      of = sum;
      __syncthreads();
    }
    return chosen;
  }

  // sum adds up the tokens up to a place, over the whole row: their masses, or each once.
  __device__ uint64_t sum(uint64_t through, bool masses) const {
    uint64_t s = 0;
#pragma unroll 1
    for (int t = 0; t < tiles; t++) {
      stage(shared.stage, d, m, t);
#pragma unroll 1
      for (int j = 0; j < kEach; j++) {
        const float v = shared.stage.mine(j), at = view.x(v);
        if (view.has(v, at) && place(top, v, t * kTile + threadIdx.x * kEach + j) <= through) s += masses ? mass(shared.powers, at) : 1;
      }
    }
    return block_sum(s);
  }

  // seek finds the place at which a sum reaches goal, by a pass over the row for each bit.
  __device__ uint64_t seek(uint64_t goal, bool masses) const {
    uint64_t low = 0, high = (uint64_t(1) << (32 + kIdBits)) - 1;
#pragma unroll 1
    while (low < high) {
      const uint64_t mid = (low + high) / 2;
      if (sum(mid, masses) >= goal)
        high = mid;
      else
        low = mid + 1;
    }
    return low;
  }

  // search draws where a bucket holds more tokens than a list does, as when all logits are nearly one: slow, and right. Of kRank it
  // makes the list, whose places are those up to the last one that is wanted.
  __device__ int search() const {
    uint64_t of = total(), end = 0;
    const bool rank = d.flags & kRank;
#pragma unroll 1
    for (int ask = 0; ask < 3; ask++) {
      if (ask == 0 ? !cut() && !rank : rank || ask == 1 && !d.top_p) continue;
      end = seek(ask == 0 ? best() : ask == 1 ? part(of, d.top_p) : high64(of, u) + 1, ask > 0);
      of = sum(end, true);
    }
    if (rank) collect(end);
    return id_at(end);
  }

  // collect lists the places up to end, at most kBest.
  __device__ void collect(uint64_t end) const {
    __shared__ int listed;
    if (threadIdx.x == 0) listed = 0;
    __syncthreads();
#pragma unroll 1
    for (int t = 0; t < tiles; t++) {
      const int base = t * kTile + threadIdx.x * kEach;
#pragma unroll 1
      for (int j = 0; j < kEach && base + j < m.vocab; j++) {
        const float v = m.logits[base + j];
        const uint64_t p = place(top, v, base + j);
        if (v > -INFINITY && p <= end) shared.list[atomicAdd(&listed, 1)] = p;
      }
    }
    __syncthreads();
  }
};

// Grid: tiles, draws; kThreads threads; sizeof(Shared) bytes.
extern "C" __global__ void __launch_bounds__(kThreads, 2) sample_choose(
    const int32_t* __restrict__ head,    // [8]
    const Draw* __restrict__ draws,      // [draws]
    const float* __restrict__ logits,    // [outs, stride]
    uint32_t* counts,                    // [seats, stride]
    const Edit* __restrict__ edits,      // [seats, num_edits]
    const uint32_t* __restrict__ masks,  // [outs, ceil(stride, 32)]
    int32_t* newest,                     // [seats]
    Result* results,                     // [draws]
    Best* bests,                         // [draws, kBest] of kRank
    const Tile* tiles,                   // [draws, tiles]
    const uint32_t* bucket_counts,       // [draws, kBuckets]
    const uint64_t* bucket_masses,       // [draws, kBuckets]
    uint32_t* state,                     // [draws, 4]
    uint64_t* list,                      // [draws, kList]
    int32_t vocab, int32_t stride, int32_t num_edits) {
  extern __shared__ uint64_t memory[];
  __shared__ Draw d;
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  begin();
  const int row = blockIdx.y, tile = blockIdx.x;
  if (!shared_draw(d, head, draws, row)) return;
  if (d.flags & kGreedy) return;
  const Outcome o = {counts, newest, results, stride};
  const Memory m = Rows{logits, counts, edits, masks, vocab, stride, num_edits}.of(d);
  stage(shared.stage, d, m, tile);
  make_powers(shared.powers);
  const Summary s = summarize(tiles + int64_t(row) * gridDim.x, gridDim.x);
  if (s.none() || s.odd()) {
    if (tile == 0 && threadIdx.x == 0) fail(o, row, d, s);
    return;
  }
  if (d.top_k) through(shared.counts, bucket_counts + int64_t(row) * kBuckets);
  through(shared.masses, bucket_masses + int64_t(row) * kBuckets);
  const View view(d, s);
  const Chooser c{d, m, view, shared, s.top(), int(gridDim.x), random64(d.seed, d.index)};
  Window w[3];
  c.windows(w);

  uint32_t *listed = state + 4 * row + 2;
  list += int64_t(row) * kList;
#pragma unroll 1
  for (int j = 0; j < kEach; j++) {
    const float v = shared.stage.mine(j), x = view.x(v);
    if (!view.has(v, x)) continue;
    const int b = view.bucket(x);
    if (!w[0].has(b) && !w[1].has(b) && !w[2].has(b)) continue;
    const uint32_t at = atomicAdd(listed, 1u);
    if (at < kList) list[at] = place(s.top(), v, tile * kTile + threadIdx.x * kEach + j);
  }
  if (!last(state + 4 * row + 1, gridDim.x)) return;

  uint32_t n = fresh(listed);
  const bool fits = n <= kList;
  __syncthreads();
  if (threadIdx.x == 0) *listed = 0;
  if (fits)
  #pragma unroll 1
  for (uint32_t i = threadIdx.x; i < n; i += kThreads) shared.list[i] = fresh(list + i);
  int id = fits ? 0 : c.search();
  if (d.flags & kRank) {
    const int best = c.best();
    c.sort(fits ? n : best);
#pragma unroll 1
    for (int i = threadIdx.x; i < best; i += kThreads) bests[int64_t(row) * kBest + i] = Best{id_at(shared.list[i]), c.logit(shared.list[i])};
    if (threadIdx.x == 0) results[row] = Result{best, 0, d.token < 0 ? 0 : m.logits[d.token], unorder(s.top()), c.total(), 0};
    return;
  }
  if (fits) id = c.pick(c.sort(n));
  if (threadIdx.x == 0) give(o, row, d, m, id, unorder(s.top()));
}
