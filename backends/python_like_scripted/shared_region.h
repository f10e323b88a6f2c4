// Memory that host and worker share: an anonymous file (memfd), so that nothing has a name in
// /dev/shm and all of it is gone with its last process. Tensors lie in blocks behind a header whose
// first byte says who still needs them: the writer sets it, the reader clears it, and only the
// writer hands blocks out. No message is needed to give memory back. The second byte counts who in
// the host still reads a block that the host wrote and the worker handed back.
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

namespace nereid::scripted {

// Also the alignment of tensors.
inline constexpr uint64_t kBlockHeaderBytes = 64;

// One mapping of the whole file as it was then; later ones see the same bytes. [any thread]
class Mapping {
 public:
  static Result<std::shared_ptr<Mapping>> Of(int fd, uint64_t size_bytes);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::byte* base() const { return base_; }
  uint64_t size_bytes() const { return size_bytes_; }

 private:
  Mapping(std::byte* base, uint64_t size_bytes) : base_(base), size_bytes_(size_bytes) {}
  std::byte* const base_;
  const uint64_t size_bytes_;
};

// A tensor's place; the mapping lives as long as this.
struct Block {
  std::shared_ptr<Mapping> mapping;
  uint64_t offset = 0;  // of the tensor's first byte
  uint64_t size_bytes = 0;

  std::byte* data() const { return mapping->base() + offset; }
  // Gives the memory back to whoever handed it out.
  void Release() const;
  // The worker has it from now on.
  void Use() const;
  bool is_in_use() const;
  // Of one that the host handed out: until the last reader is dropped it is in use, whatever the
  // worker says.
  void AddReader() const;
  void DropReader() const;
};

class SharedRegion {
 public:
  // `name` is what /proc and errors show. The file can grow and not shrink: no reader ever meets a
  // hole. Allocate lets it grow to `max_bytes` at most (0: without limit).
  static Result<std::unique_ptr<SharedRegion>> Create(const std::string& name,
                                                      uint64_t initial_bytes, uint64_t growth_bytes,
                                                      uint64_t max_bytes = 0);
  int fd() const { return fd_.get(); }

  // Of the region that the host writes. UNAVAILABLE when memory, or what
  // is allowed of it, ran out. [any thread]
  Result<Block> Allocate(uint64_t size_bytes);
  // The same where no memory has to be got for it; else nothing, and the next GrowAsMissed gets
  // what was missing. Waits for nobody's growth. [any thread]
  std::optional<Block> AllocateAtOnce(uint64_t size_bytes);
  Status GrowAsMissed();  // [any thread]
  // Of the region that the worker writes: checks what it claims. [any thread]
  Result<Block> Find(uint64_t offset, uint64_t size_bytes);

 private:
  SharedRegion(std::string name, UniqueFd fd, std::shared_ptr<Mapping> mapping,
               uint64_t growth_bytes, uint64_t max_bytes)
      : name_(std::move(name)),
        fd_(std::move(fd)),
        mapping_(std::move(mapping)),
        growth_bytes_(growth_bytes),
        max_bytes_(max_bytes) {}
  // A block, or how long the file has to be for it.
  struct Place {
    std::optional<Block> block;
    uint64_t needed_bytes = 0;
  };
  Place Take(uint64_t size_bytes);
  // To `size_bytes` at least.
  Status Grow(uint64_t size_bytes);

  const std::string name_;
  const UniqueFd fd_;
  std::mutex growth_mutex_;  // of who gets memory, which takes long; taken before the other
  std::mutex mutex_;         // guards what follows; held for a moment
  std::shared_ptr<Mapping> mapping_;   // the newest
  std::map<uint64_t, uint64_t> used_;  // blocks handed out, header included: begin -> end
  uint64_t missed_bytes_ = 0;          // how long the file would have had to be
  const uint64_t growth_bytes_;
  const uint64_t max_bytes_;
};

}  // namespace nereid::scripted
