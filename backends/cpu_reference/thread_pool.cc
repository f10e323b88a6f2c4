// Fork and join through one atomic word.
#include "backends/cpu_reference/thread_pool.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>

#include "base/thread.h"

namespace nereid::cpu {
namespace {

constexpr int kIndexBits = 20;
constexpr uint64_t kIndexMask = (uint64_t{1} << kIndexBits) - 1;
// Leaves room in the counter for attempts that find no chunk.
constexpr int64_t kMaxChunks = 1 << 16;
constexpr int kSpinsBeforeYield = 1000;  // about ten microseconds
constexpr int kYieldsBeforeSleep = 20;

uint64_t NextChunk(uint64_t state) {
  return state & kIndexMask;
}
uint64_t NumChunks(uint64_t state) {
  return state >> kIndexBits & kIndexMask;
}
uint64_t Epoch(uint64_t state) {
  return state >> (2 * kIndexBits);
}

void Pause() {
  __builtin_ia32_pause();
}

}  // namespace

int32_t ChooseNumThreads(int32_t num_threads) {
  if (num_threads > 0) return num_threads;
  cpu_set_t usable;
  if (sched_getaffinity(0, sizeof(usable), &usable) == 0) return std::max(1, CPU_COUNT(&usable));
  return std::max<int32_t>(1, static_cast<int32_t>(sysconf(_SC_NPROCESSORS_ONLN)));
}

ThreadPool::ThreadPool(int num_threads) {
  StartThreads(
      static_cast<size_t>(std::max(num_threads - 1, 0)),
      [this](size_t worker) { WorkerMain(static_cast<int>(worker) + 1); }, workers_);
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  awake_.fetch_add(2);
  awake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::BeginStep() {
  if (workers_.empty()) return;
  awake_.fetch_or(1);
  awake_.notify_all();
}

void ThreadPool::EndStep() {
  if (!workers_.empty()) awake_.fetch_add(1);
}

void ThreadPool::Run(int64_t num_chunks, const void* context, Call call) {
  for (int64_t first = 0; first < num_chunks; first += kMaxChunks) {
    // A loop has at most kMaxChunks chunks. Longer ones, which only huge prompts need, run in
    // parts.
    const int64_t count = std::min(kMaxChunks, num_chunks - first);
    struct ShiftedCall {
      const void* context;
      Call call;
      int64_t first;
    } const shifted = {context, call, first};
    epoch_ = (epoch_ + 1) & 0xffffff;
    Loop& loop = loops_[epoch_ & 1];
    loop.context = &shifted;
    loop.call = [](const void* part, int64_t chunk, int thread) {
      const auto& p = *static_cast<const ShiftedCall*>(part);
      p.call(p.context, p.first + chunk, thread);
    };
    loop.num_done.store(0, std::memory_order_relaxed);
    state_.store(epoch_ << (2 * kIndexBits) | static_cast<uint64_t>(count) << kIndexBits,
                 std::memory_order_release);
    RunChunks(0);
    for (int spins = 0; loop.num_done.load(std::memory_order_acquire) != count; ++spins) {
      spins < kSpinsBeforeYield ? Pause() : static_cast<void>(sched_yield());
    }
  }
}

void ThreadPool::RunChunks(int thread) {
  Loop* loop = nullptr;
  int64_t num_taken = 0;
  while (true) {
    const uint64_t seen = state_.load(std::memory_order_relaxed);
    if (NextChunk(seen) >= NumChunks(seen)) break;
    const uint64_t taken = state_.fetch_add(1, std::memory_order_acq_rel);
    if (NextChunk(taken) >= NumChunks(taken)) break;
    // The chunk is not done until num_done is increased below, so that the loop and its slot stay
    // unchanged meanwhile.
    loop = &loops_[Epoch(taken) & 1];
    loop->call(loop->context, static_cast<int64_t>(NextChunk(taken)), thread);
    ++num_taken;
  }
  if (loop != nullptr) loop->num_done.fetch_add(num_taken, std::memory_order_acq_rel);
}

void ThreadPool::WorkerMain(int thread) {
  int spins = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    const uint32_t awake = awake_.load(std::memory_order_acquire);
    const uint64_t state = state_.load(std::memory_order_relaxed);
    if (NextChunk(state) < NumChunks(state)) {
      RunChunks(thread);
      spins = 0;
    } else if (++spins < kSpinsBeforeYield) {
      Pause();
    } else if ((awake & 1) != 0 || spins < kSpinsBeforeYield + kYieldsBeforeSleep) {
      sched_yield();
    } else {
      awake_.wait(awake, std::memory_order_acquire);
      spins = 0;
    }
  }
}

}  // namespace nereid::cpu
