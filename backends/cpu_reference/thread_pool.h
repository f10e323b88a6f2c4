// A thread pool for the parallel loops of one engine. The workers sleep between steps and spin
// within a step, because loops follow each other within a microsecond. Threads take the chunks of a
// loop one by one, so that a late thread delays no other.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace nereid::cpu {

// Loops with fewer multiply-adds than this are not parallelized.
inline constexpr int64_t kMinSharedWork = 1 << 15;

// `num_threads`, or, for 0, as many threads as this process may use processors.
int32_t ChooseNumThreads(int32_t num_threads);

class ThreadPool {
 public:
  // `num_threads` includes the caller's thread; at least 1. The pool has fewer where the system
  // starts no more.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Mark the begin and end of a step, between which the workers stay awake. [owner's thread]
  void BeginStep();
  void EndStep();

  // Calls body(chunk, thread) once for every chunk in [0, num_chunks), on any thread, with `thread`
  // in [0, num_threads). Returns when all calls are done. Not reentrant. [owner's thread]
  template <typename Body>
  void ParallelFor(int64_t num_chunks, const Body& body) {
    if (num_chunks == 1 || workers_.empty()) {
      for (int64_t chunk = 0; chunk < num_chunks; ++chunk) body(chunk, 0);
      return;
    }
    Run(num_chunks, &body, [](const void* context, int64_t chunk, int thread) {
      (*static_cast<const Body*>(context))(chunk, thread);
    });
  }

  // Splits [0, count) into ranges whose size is a multiple of `grain`, several per thread, and
  // calls body(first, last, thread) for each. Fewer ranges have less overhead; more ranges wait
  // less for a late thread.
  template <typename Body>
  void ParallelRanges(int64_t count, int64_t grain, const Body& body,
                      int64_t ranges_per_thread = 4) {
    const int64_t units = (count + grain - 1) / grain;
    const int64_t num_ranges = num_threads() == 1 ? 1 : num_threads() * ranges_per_thread;
    const int64_t units_per_range = (units + num_ranges - 1) / (num_ranges > 0 ? num_ranges : 1);
    if (units_per_range == 0) return;
    const int64_t size = units_per_range * grain;
    ParallelFor((count + size - 1) / size, [&](int64_t chunk, int thread) {
      const int64_t first = chunk * size;
      body(first, first + size < count ? first + size : count, thread);
    });
  }

 private:
  using Call = void (*)(const void* context, int64_t chunk, int thread);

  // One parallel loop. Two slots alternate, so that a worker that still reads the last loop never
  // sees the next one being written.
  struct Loop {
    Call call = nullptr;
    const void* context = nullptr;
    alignas(64) std::atomic<int64_t> num_done{0};
  };

  void Run(int64_t num_chunks, const void* context, Call call);
  // Takes and runs chunks until none is left.
  void RunChunks(int thread);
  void WorkerMain(int thread);

  // epoch (24 bits) | number of chunks (20) | next chunk (20). One fetch_add takes a chunk and
  // identifies its loop.
  alignas(64) std::atomic<uint64_t> state_{0};
  alignas(64) std::atomic<uint32_t> awake_{0};  // odd within a step; sleeping workers wait on it
  std::atomic<bool> stop_{false};
  uint64_t epoch_ = 0;
  Loop loops_[2];
  std::vector<std::thread> workers_;
};

}  // namespace nereid::cpu
