// Keeps copies of KV blocks of a GPU in pinned host memory and in a file. Copies run on streams of
// their own: those out of the KV cache beside the steps of earlier and before those of later
// submissions, which events order; those into it beside all steps. [engine thread]
//
// A place in host memory is a buffer. What moves from host memory to the file takes its buffer
// along, and the place gets a spare one, so that the engine's thread copies no bytes.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "backends/gpu_llm/cuda/memory.h"
#include "backends/gpu_llm/cuda/stream.h"
#include "backends/gpu_llm/model/cache_blocks.h"
#include "backends/llm_core/engine/block_storage.h"
#include "backends/llm_core/kv_tiers/block_file.h"
#include "backends/llm_core/kv_tiers/work_queue.h"
#include "nereid/status.h"

namespace nereid::gpu {

class GpuBlockStorage : public llm::BlockStorage {
 public:
  // `cache` and `steps`, the stream of the executor's steps on `device`, must outlive the storage.
  // `host_bytes` and `file` may be 0 and null. All of the host memory is allocated here, because
  // pinning pages later would stop the device; a file takes up to 64 MB more. UNAVAILABLE: it
  // cannot be allocated. INVALID_ARG: `host_bytes` holds no block.
  static Result<std::unique_ptr<GpuBlockStorage>> Create(const CacheBlocks& cache, int32_t device,
                                                         cudaStream_t steps, int64_t host_bytes,
                                                         std::unique_ptr<llm::BlockFile> file);
  ~GpuBlockStorage() override;

  int32_t num_host_places() const override { return static_cast<int32_t>(places_.size()); }
  int32_t num_file_places() const override { return file_ == nullptr ? 0 : file_->num_slots(); }
  std::vector<StoredBlock> TakeStored() override;
  uint64_t first_serial() const override { return file_ == nullptr ? 1 : file_->first_serial(); }
  bool FileAccepts() const override;
  void Store(int32_t from, int32_t to, const llm::BlockContent& content) override;
  void Fetch(uint64_t ticket, std::vector<Transfer> transfers) override;
  std::vector<Fetched> Collect(bool waits) override;
  void Finish() override;
  // Makes what is launched on the stream of the steps from now on wait, on the device, until every
  // Store so far has read its block. The executor calls it before a step. Returns the first error
  // of a copy.
  Status BeginStep();

  int64_t pinned_bytes() const { return static_cast<int64_t>(memory_.size_bytes()); }

 private:
  // A copy into the KV cache, and where its bytes are: in a buffer of host memory, or in the file.
  struct CopyIn {
    Transfer transfer;
    char* buffer;  // null: in the file
  };
  // What a fetch waits for on the device: steps and Stores submitted before it.
  struct Before {
    Event steps, stores;
  };

  GpuBlockStorage(const CacheBlocks& cache, int32_t device, cudaStream_t steps,
                  std::unique_ptr<llm::BlockFile> file)
      : cache_(cache), device_(device), steps_(steps), file_(std::move(file)) {}
  Status Allocate(int64_t num_places);
  int32_t first_file_place() const { return cache_.num_blocks + num_host_places(); }
  char*& BufferOf(int32_t place) { return places_[place - cache_.num_blocks]; }
  char* TakeSpare();
  void ReturnSpare(char* buffer);
  // Copies a block of the KV cache to a buffer, after the steps that were submitted so far.
  Status CopyOut(int32_t block, char* to);
  // Writes a buffer to the file when it has its bytes, and makes it a spare one.
  Status WriteLater(char* buffer, int32_t slot, const llm::BlockContent& content);
  Status StoreOrFail(int32_t from, int32_t to, const llm::BlockContent& content);
  Result<Before> RecordBefore();
  // [fetch thread]
  void RunFetch(const Before& before, const std::vector<CopyIn>& copies, Fetched& fetched);
  Status CopyInAll(const std::vector<CopyIn>& copies, Fetched& fetched);
  void Fail(const Status& status);  // [any thread]

  const CacheBlocks cache_;
  const int32_t device_;
  const cudaStream_t steps_;
  const std::unique_ptr<llm::BlockFile> file_;
  PinnedMemory memory_;          // of all buffers
  std::vector<char*> places_;    // the buffer of each place in host memory
  char* fetch_buffers_[2] = {};  // for blocks of the file
  Event fetch_copied_[2];
  Stream stores_, fetches_in_;
  Event steps_submitted_, stores_submitted_;
  bool follows_steps_ = false;  // stores_ waits for the steps submitted so far
  bool has_stores_ = false;     // since BeginStep()
  int32_t num_open_ = 0;        // fetches
  mutable std::mutex mutex_;    // guards the members below
  std::condition_variable changed_;
  std::vector<char*> spares_;  // buffers without content
  std::vector<Fetched> fetched_;
  Status failure_;
  std::optional<llm::WorkQueue> writes_;   // to the file
  std::optional<llm::WorkQueue> fetches_;  // into the KV cache
};

}  // namespace nereid::gpu
