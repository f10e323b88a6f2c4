// Keeps copies of KV blocks in host memory and in a file, for an executor whose KV cache the CPU
// can read. Copies run on threads of their own, beside the steps of other blocks. [engine thread]
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "backends/llm_core/engine/block_storage.h"
#include "backends/llm_core/kv_tiers/block_file.h"
#include "backends/llm_core/kv_tiers/work_queue.h"
#include "nereid/status.h"

namespace nereid::llm {

// The blocks of a KV cache as bytes. Different blocks may be copied at the same time. [any thread]
class BlockMemory {
 public:
  virtual ~BlockMemory() = default;
  virtual int64_t block_bytes() const = 0;
  virtual int32_t num_blocks() const = 0;
  virtual void ReadBlock(int32_t block, std::span<std::byte> to) const = 0;
  virtual void WriteBlock(int32_t block, std::span<const std::byte> from) const = 0;
};

class HostBlockStorage : public BlockStorage {
 public:
  // `memory` must outlive the storage. `host_bytes` and `file` may be 0 and null. The address range
  // is reserved; pages are allocated when places are first written. UNAVAILABLE: it cannot be
  // reserved. INVALID_ARG: `host_bytes` holds no block.
  static Result<std::unique_ptr<HostBlockStorage>> Create(const BlockMemory* memory,
                                                          int64_t host_bytes,
                                                          std::unique_ptr<BlockFile> file);
  ~HostBlockStorage() override;

  int32_t num_host_places() const override { return num_host_places_; }
  int32_t num_file_places() const override { return file_ == nullptr ? 0 : file_->num_slots(); }
  std::vector<StoredBlock> TakeStored() override;
  uint64_t first_serial() const override { return file_ == nullptr ? 1 : file_->first_serial(); }
  bool FileAccepts() const override;
  void Store(int32_t from, int32_t to, const BlockContent& content) override;
  void Fetch(uint64_t ticket, std::vector<Transfer> transfers) override;
  std::vector<Fetched> Collect(bool waits) override;
  void Finish() override;
  // Waits until every Store has read its block. The executor calls it before a step.
  void FinishReads() { copies_->WaitFor(copies_->num_pushed()); }

  // Bytes of host memory that the places may take.
  int64_t host_bytes() const { return num_host_places_ * memory_->block_bytes(); }

 private:
  HostBlockStorage(const BlockMemory* memory, std::unique_ptr<BlockFile> file)
      : memory_(memory), file_(std::move(file)) {}
  int32_t first_file_place() const { return memory_->num_blocks() + num_host_places_; }
  std::span<std::byte> HostPlace(int32_t place) const;
  // Copies the transfers of one fetch. [fetch thread]
  void Run(uint64_t ticket, const std::vector<Transfer>& transfers, Fetched& fetched) const;

  const BlockMemory* const memory_;
  const std::unique_ptr<BlockFile> file_;
  int32_t num_host_places_ = 0;
  std::byte* host_ = nullptr;
  int32_t num_open_ = 0;  // fetches
  std::mutex mutex_;      // guards the members below
  std::condition_variable ended_;
  std::vector<Fetched> fetched_;
  // A job of one may push to the next one, so that they end in this order.
  std::optional<WorkQueue> writes_;   // to the file
  std::optional<WorkQueue> copies_;   // from the KV cache and from host memory
  std::optional<WorkQueue> fetches_;  // into the KV cache
};

}  // namespace nereid::llm
