// A file that keeps the content of KV blocks beyond the end of the process. It belongs to one
// checkpoint and one format of the KV cache, has a fixed number of slots, and every slot has
// checksums: a file that is truncated, damaged or of another model only has less to offer.
//
// Layout, in the byte order of the machine: a page with the FileHeader, then slots of equal size. A
// slot is a SlotHeader, its token ids, and the block's bytes from the next multiple of 64 on.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/llm_core/engine/block_storage.h"
#include "nereid/status.h"
#include "nereid/unique_fd.h"

namespace nereid::llm {

struct BlockFileOptions {
  std::string path;
  int64_t max_bytes = 0;  // of the file
  int32_t block_size = 0;
  int64_t block_bytes = 0;
  // 64 hexadecimal digits that differ wherever the same tokens give other bytes.
  std::string identity;
  std::function<void(const std::string&)> log;  // receives what is worth a line
};

class BlockFile {
 public:
  // What a slot has, without the block's bytes.
  struct Stored {
    int32_t slot = 0;
    BlockContent content;
  };

  // Opens or creates the file, and reads what it has. INVALID_ARG: `max_bytes` holds no block, or
  // the file is not one of this kind; it is left as it is. UNAVAILABLE: another process uses it, or
  // it cannot be opened.
  static Result<std::unique_ptr<BlockFile>> Open(BlockFileOptions options);

  int32_t num_slots() const { return num_slots_; }
  uint64_t first_serial() const { return first_serial_; }
  // Each content after its parent; only those whose parents are there, too.
  std::vector<Stored> TakeStored() { return std::move(stored_); }

  // Writes the slot. Logs the first error. Returns false after an error. [one thread]
  bool Write(int32_t slot, const BlockContent& content, std::span<const std::byte> block);
  // Reads the slot into `block`. False, with a line in the log: it does not have this content.
  // [any thread; not while the slot is written]
  bool Read(int32_t slot, uint64_t serial, std::span<std::byte> block) const;
  bool has_failed() const { return has_failed_.load(std::memory_order_relaxed); }

 private:
  struct FileHeader;
  struct SlotHeader;

  explicit BlockFile(BlockFileOptions options, UniqueFd fd)
      : options_(std::move(options)), fd_(std::move(fd)) {}
  Status Initialize();
  // Whether the file is of this kind, checkpoint and format; says why not. `run` receives the
  // number of times that it was opened.
  Result<bool> CheckHeader(uint64_t& run) const;
  Status WriteHeader(uint64_t run);
  void ReadSlots();
  bool ReadSlotHeader(int32_t slot, SlotHeader& header, std::vector<int32_t>& token_ids) const;
  int64_t SlotOffset(int32_t slot) const;

  BlockFileOptions options_;
  UniqueFd fd_;
  int64_t payload_offset_ = 0;  // in a slot
  int64_t slot_bytes_ = 0;
  int32_t num_slots_ = 0;
  uint64_t first_serial_ = 1;
  std::vector<Stored> stored_;
  std::atomic<bool> has_failed_{false};
};

}  // namespace nereid::llm
