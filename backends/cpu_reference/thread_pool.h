// A few threads that share the loops of one engine. Between steps they sleep; within a step they
// spin, for loops follow each other within a microsecond. Chunks of a loop are taken in turn, so
// that a thread that comes late (or not at all) delays nobody.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace nereid::cpu {

class ThreadPool {
 public:
  // `num_threads` counts the caller's thread; at least 1.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Wakes the workers, and lets them sleep again: around a step. [owner's thread]
  void BeginStep();
  void EndStep();

  // body(chunk, thread) for every chunk in [0, num_chunks), each once, on any thread; `thread` is
  // in [0, num_threads). Returns when all are done. Not reentrant. [owner's thread]
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

  // Cuts [0, count) into ranges of a multiple of `grain`, several a thread, and calls
  // body(first, last, thread) for each. Few ranges begin seldom, many wait less for a late thread.
  template <typename Body>
  void ParallelRanges(int64_t count, int64_t grain, const Body& body,
                      int64_t ranges_per_thread = 4) {
    const int64_t units = (count + grain - 1) / grain;
    const int64_t wanted = num_threads() == 1 ? 1 : num_threads() * ranges_per_thread;
    const int64_t units_per_range = (units + wanted - 1) / (wanted > 0 ? wanted : 1);
    if (units_per_range == 0) return;
    const int64_t size = units_per_range * grain;
    ParallelFor((count + size - 1) / size, [&](int64_t chunk, int thread) {
      const int64_t first = chunk * size;
      body(first, first + size < count ? first + size : count, thread);
    });
  }

 private:
  using Call = void (*)(const void* context, int64_t chunk, int thread);

  // One loop. Two of them alternate: a worker that still looks at the last one never sees the next
  // one being written.
  struct Loop {
    Call call = nullptr;
    const void* context = nullptr;
    alignas(64) std::atomic<int64_t> num_done{0};
  };

  void Run(int64_t num_chunks, const void* context, Call call);
  // Takes and runs chunks until none is left.
  void Work(int thread);
  void WorkerMain(int thread);

  // epoch (24 bits) | number of chunks (20) | next chunk (20): one fetch_add takes a chunk and
  // tells of which loop it is.
  alignas(64) std::atomic<uint64_t> state_{0};
  alignas(64) std::atomic<uint32_t> awake_{0};  // odd within a step; -> sleepers wait on it
  std::atomic<bool> stop_{false};
  uint64_t epoch_ = 0;
  Loop loops_[2];
  std::vector<std::thread> workers_;
};

}  // namespace nereid::cpu
