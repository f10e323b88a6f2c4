// Memory that host and worker share: an anonymous file (memfd), which has no name in /dev/shm and
// disappears with the last process that uses it. Tensors are in blocks. The first byte of a block's
// header says whether the block is in use: the writer sets it, the reader clears it, and only the
// writer allocates blocks. Releasing a block needs no message. The second byte counts the readers
// in the host of a block that the host wrote and the worker sent back.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "nereid/status.h"
#include "nereid/unique_fd.h"

namespace nereid::python {

// The size of a block's header, which is also the alignment of tensors.
inline constexpr uint64_t kBlockHeaderBytes = 64;

// A mapping of the whole file at its size at that time. Later, longer mappings show the same bytes.
// [any thread]
class SharedMapping {
 public:
  static Result<std::shared_ptr<SharedMapping>> Of(int fd, uint64_t size_bytes);
  ~SharedMapping();
  SharedMapping(const SharedMapping&) = delete;
  SharedMapping& operator=(const SharedMapping&) = delete;

  std::byte* base() const { return base_; }
  uint64_t size_bytes() const { return size_bytes_; }

 private:
  SharedMapping(std::byte* base, uint64_t size_bytes) : base_(base), size_bytes_(size_bytes) {}
  std::byte* const base_;
  const uint64_t size_bytes_;
};

// The location of a tensor. It keeps the mapping alive.
struct SharedBlock {
  std::shared_ptr<SharedMapping> mapping;
  uint64_t offset = 0;  // of the tensor's first byte in the file
  uint64_t size_bytes = 0;

  std::byte* data() const { return mapping->base() + offset; }
  // Releases the block to the side that allocated it.
  void Release() const;
  // Marks the block as in use by the worker.
  void Use() const;
  bool is_in_use() const;
  // For a block that the host allocated: while it has readers it is in use, even if the worker has
  // released it.
  void AddReader() const;
  void RemoveReader() const;
};

class SharedRegion {
 public:
  // `name` appears in /proc and in errors. The file can grow but not shrink, so that no access can
  // fail. Allocate grows it to at most `max_bytes` (0: without limit).
  static Result<std::unique_ptr<SharedRegion>> Create(const std::string& name,
                                                      uint64_t initial_bytes, uint64_t growth_bytes,
                                                      uint64_t max_bytes = 0);
  int fd() const { return fd_.get(); }

  // Allocates a block; for the region that the host writes. UNAVAILABLE if the machine's memory or
  // `max_bytes` is exhausted. [any thread]
  Result<SharedBlock> Allocate(uint64_t size_bytes);
  // Does the same as Allocate, but returns nothing if the file would have to grow; the next
  // GrowForMissedAllocations grows it. Does not wait while another thread grows the file. [any
  // thread]
  std::optional<SharedBlock> TryAllocate(uint64_t size_bytes);
  Status GrowForMissedAllocations();  // [any thread]
  // Checks and returns a location that the worker sent; for the region that the worker writes. [any
  // thread]
  Result<SharedBlock> Find(uint64_t offset, uint64_t size_bytes);

 private:
  SharedRegion(std::string name, UniqueFd fd, std::shared_ptr<SharedMapping> mapping,
               uint64_t growth_bytes, uint64_t max_bytes)
      : name_(std::move(name)),
        fd_(std::move(fd)),
        mapping_(std::move(mapping)),
        growth_bytes_(growth_bytes),
        max_bytes_(max_bytes) {}
  // A block, or the file size that it would need.
  struct Allocation {
    std::optional<SharedBlock> block;
    uint64_t needed_bytes = 0;
  };
  Allocation TryTake(uint64_t size_bytes);
  // Grows the file to at least `size_bytes`.
  Status Grow(uint64_t size_bytes);

  const std::string name_;
  const UniqueFd fd_;
  std::mutex growth_mutex_;  // held while the file grows, which takes long; locked before mutex_
  std::mutex mutex_;         // guards the members below; held only briefly
  std::shared_ptr<SharedMapping> mapping_;  // the newest and longest
  std::map<uint64_t, uint64_t> used_;       // allocated blocks with their headers: begin -> end
  uint64_t missed_bytes_ = 0;               // file size that TryAllocate lacked
  const uint64_t growth_bytes_;
  const uint64_t max_bytes_;
};

}  // namespace nereid::python
