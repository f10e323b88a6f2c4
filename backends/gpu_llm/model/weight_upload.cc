// Each thread has a stream and two pinned buffers, and fills one while the other is being copied.
#include "backends/gpu_llm/model/weight_upload.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include "backends/gpu_llm/cuda/stream.h"
#include "base/thread.h"

namespace nereid::gpu {
namespace {

Status UploadSome(const std::vector<UploadJob>& jobs, std::atomic<size_t>& next,
                  int64_t buffer_bytes, const WeightPlace& place, int device) {
  NEREID_RETURN_IF_CUDA_ERROR(cudaSetDevice(device));
  NEREID_ASSIGN_OR_RETURN(const Stream stream, MakeStream());
  NEREID_ASSIGN_OR_RETURN(const PinnedMemory pinned, PinnedMemory::Allocate(2 * buffer_bytes));
  Event done[2];
  for (Event& event : done) {
    NEREID_ASSIGN_OR_RETURN(event, MakeEvent());
  }
  for (int turn = 0;; turn ^= 1) {
    const size_t i = next.fetch_add(1);
    if (i >= jobs.size()) break;
    NEREID_RETURN_IF_CUDA_ERROR(cudaEventSynchronize(done[turn].get()));
    auto* buffer = pinned.as<uint8_t>() + turn * buffer_bytes;
    NEREID_RETURN_IF_ERROR(jobs[i].fill(buffer));
    NEREID_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(place(jobs[i].offset), buffer, jobs[i].size_bytes,
                                                cudaMemcpyDefault, stream.get()));
    NEREID_RETURN_IF_CUDA_ERROR(cudaEventRecord(done[turn].get(), stream.get()));
  }
  NEREID_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream.get()));
  return {};
}

}  // namespace

Status Upload(const std::vector<UploadJob>& jobs, const WeightPlace& place) {
  int64_t buffer_bytes = 0;
  for (const UploadJob& job : jobs) buffer_bytes = std::max(buffer_bytes, job.size_bytes);
  int device = 0;
  NEREID_RETURN_IF_CUDA_ERROR(cudaGetDevice(&device));
  const size_t num_threads = std::clamp<size_t>(std::thread::hardware_concurrency(), 1, 16);
  std::atomic<size_t> next{0};
  std::mutex mutex;
  Status failure;
  const auto upload = [&] {
    if (Status status = UploadSome(jobs, next, buffer_bytes, place, device); !status.ok()) {
      next = jobs.size();
      const std::lock_guard lock(mutex);
      if (failure.ok()) failure = std::move(status);
    }
  };
  std::vector<std::thread> threads;
  if (jobs.size() > 1) {
    StartThreads(
        std::min(num_threads, jobs.size()) - 1, [&upload](size_t) { upload(); }, threads);
  }
  upload();  // and the jobs of threads that the system has not started
  for (std::thread& thread : threads) thread.join();
  return failure;
}

}  // namespace nereid::gpu
