// A file mapped read-only into memory. Move-only; the mapping lives as long as the object. [any
// thread]
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/sigbus_guard.h"
#include "nereid/status.h"

namespace nereid::llm {

class MappedFile {
 public:
  // NOT_FOUND if the file does not exist; INVALID_ARG if it is not a regular file.
  static Result<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept
      : path_(std::move(other.path_)),
        data_(std::exchange(other.data_, nullptr)),
        size_bytes_(std::exchange(other.size_bytes_, 0)),
        sigbus_guard_(std::move(other.sigbus_guard_)) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(data_, other.data_);
    std::swap(size_bytes_, other.size_bytes_);
    std::swap(sigbus_guard_, other.sigbus_guard_);
    return *this;
  }
  ~MappedFile();

  std::span<const uint8_t> bytes() const { return {data_, size_bytes_}; }
  // UNAVAILABLE if bytes were read that the file had lost since Open; they were read as zeros.
  Status CheckIntact() const;
  // Releases the whole pages of `part` from the memory of this process. A later read loads them
  // again. No effect if `part` is not in this file.
  void DropPages(std::span<const uint8_t> part) const;

 private:
  MappedFile(std::string path, const uint8_t* data, size_t size_bytes);

  std::string path_;
  const uint8_t* data_ = nullptr;
  size_t size_bytes_ = 0;
  std::unique_ptr<SigbusGuard> sigbus_guard_;
};

// Returns the whole pages of `part` to the kernel. Pages of a file are loaded again by the next
// read; pages of other memory become zeros.
void ReleasePages(std::span<const uint8_t> part);

}  // namespace nereid::llm
