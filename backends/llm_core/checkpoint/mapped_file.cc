// Read-only mmap of a whole file.
#include "backends/llm_core/checkpoint/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>

namespace nereid::llm {

Result<MappedFile> MappedFile::Open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return NotFoundError("cannot open '", path, "': ", std::strerror(errno));
  struct stat info = {};
  void* data = nullptr;
  Status status;
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    status = InvalidArgError("'", path, "' is not a regular file");
  } else if (info.st_size > 0) {
    data = ::mmap(nullptr, info.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) {
      status = UnavailableError("cannot map '", path, "' (", info.st_size,
                                " bytes): ", std::strerror(errno));
    }
  }
  ::close(fd);
  if (!status.ok()) return status;
  return MappedFile(path, static_cast<const uint8_t*>(data), info.st_size);
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
