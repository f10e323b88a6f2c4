// A file mapped read-only into memory. Move-only; the mapping lives as long as the object.
// [any thread]
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/lost_pages.h"
#include "nereid/status.h"

namespace nereid::llm {

class MappedFile {
 public:
  // NOT_FOUND when the file does not exist; INVALID_ARG when it is not a regular file.
  static Result<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept
      : path_(std::move(other.path_)),
        data_(std::exchange(other.data_, nullptr)),
        size_bytes_(std::exchange(other.size_bytes_, 0)),
        lost_(std::move(other.lost_)) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(data_, other.data_);
    std::swap(size_bytes_, other.size_bytes_);
    std::swap(lost_, other.lost_);
    return *this;
  }
  ~MappedFile();

  std::span<const uint8_t> bytes() const { return {data_, size_bytes_}; }
  // An error where bytes were read that the file had lost meanwhile: they were zeros.
  Status CheckWhole() const;
  // The whole pages of `part` leave this process' memory; who reads them again has them back.
  // Nothing happens where `part` is not of this file.
  void LetGo(std::span<const uint8_t> part) const;

 private:
  MappedFile(std::string path, const uint8_t* data, size_t size_bytes);

  std::string path_;
  const uint8_t* data_ = nullptr;
  size_t size_bytes_ = 0;
  std::unique_ptr<LostPages> lost_;
};

// Gives the whole pages of `part` back to the kernel. Those of a file are read again by whoever
// looks at them; those of other memory become zeros.
void ReleasePages(std::span<const uint8_t> part);

}  // namespace nereid::llm
