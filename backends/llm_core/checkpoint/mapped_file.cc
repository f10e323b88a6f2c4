// Read-only mmap of a whole file.
#include "backends/llm_core/checkpoint/mapped_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>

#include "base/file_content.h"

namespace nereid::llm {

Result<MappedFile> MappedFile::Open(const std::string& path) {
  size_t size_bytes = 0;
  NEREID_ASSIGN_OR_RETURN(const UniqueFd fd, OpenRegularFile(path, &size_bytes));
  void* data = nullptr;
  if (size_bytes > 0) {
    data = ::mmap(nullptr, size_bytes, PROT_READ, MAP_SHARED, fd.get(), 0);
    if (data == MAP_FAILED) {
      return UnavailableError("cannot map '", path, "' (", size_bytes,
                              " bytes): ", std::strerror(errno));
    }
  }
  return MappedFile(path, static_cast<const uint8_t*>(data), size_bytes);
}

MappedFile::MappedFile(std::string path, const uint8_t* data, size_t size_bytes)
    : path_(std::move(path)),
      data_(data),
      size_bytes_(size_bytes),
      sigbus_guard_(std::make_unique<SigbusGuard>(data, size_bytes, PROT_READ)) {}

Status MappedFile::CheckIntact() const {
  if (!sigbus_guard_->has_replaced_pages()) return {};
  return UnavailableError("'", path_,
                          "' was truncated or became unreadable after it was opened with ",
                          size_bytes_, " bytes");
}

void MappedFile::DropPages(std::span<const uint8_t> part) const {
  const std::less_equal<const uint8_t*> before;
  const uint8_t* const end = part.data() + part.size();
  if (part.empty() || !before(data_, part.data()) || !before(end, data_ + size_bytes_)) return;
  ReleasePages(part);
}

void ReleasePages(std::span<const uint8_t> part) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(part.data());
  const uintptr_t first = (begin + page - 1) / page * page;
  const uintptr_t last = (begin + part.size()) / page * page;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

MappedFile::~MappedFile() {
  sigbus_guard_.reset();
  if (data_ != nullptr) ::munmap(const_cast<uint8_t*>(data_), size_bytes_);
}

}  // namespace nereid::llm
