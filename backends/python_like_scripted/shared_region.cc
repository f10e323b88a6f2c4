#include "backends/python_like_scripted/shared_region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

namespace nereid::python {
namespace {

constexpr uint64_t kMaxAllocationBytes = uint64_t{1} << 46;  // of one block

uint64_t RoundUp(uint64_t value, uint64_t step) {
  return (value + step - 1) / step * step;
}

std::atomic_ref<uint8_t> InUse(std::byte* header) {
  return std::atomic_ref<uint8_t>(*reinterpret_cast<uint8_t*>(header));
}

std::atomic_ref<uint8_t> NumReaders(std::byte* header) {
  return InUse(header + 1);
}

Status ErrnoError(const char* what, uint64_t size_bytes) {
  return UnavailableError("shared memory of ", size_bytes, " bytes: ", what, ": ",
                          std::strerror(errno));
}

// The text of Triton's error, which scripts look for.
Status RegionFullError(const std::string& region, uint64_t size_bytes, const std::string& why) {
  return UnavailableError("Failed to increase the shared memory pool size for key '", region,
                          "' to ", size_bytes, " bytes: ", why);
}

}  // namespace

Result<std::shared_ptr<SharedMapping>> SharedMapping::Of(int fd, uint64_t size_bytes) {
  void* base = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) return ErrnoError("mmap", size_bytes);
  return std::shared_ptr<SharedMapping>(
      new SharedMapping(static_cast<std::byte*>(base), size_bytes));
}

SharedMapping::~SharedMapping() {
  munmap(base_, size_bytes_);
}

void SharedBlock::Release() const {
  if (mapping != nullptr) InUse(data() - kBlockHeaderBytes).store(0, std::memory_order_release);
}

void SharedBlock::Use() const {
  InUse(data() - kBlockHeaderBytes).store(1, std::memory_order_release);
}

bool SharedBlock::is_in_use() const {
  return InUse(data() - kBlockHeaderBytes).load(std::memory_order_acquire) != 0;
}

void SharedBlock::AddReader() const {
  NumReaders(data() - kBlockHeaderBytes).fetch_add(1, std::memory_order_relaxed);
}

void SharedBlock::RemoveReader() const {
  NumReaders(data() - kBlockHeaderBytes).fetch_sub(1, std::memory_order_release);
}

Result<std::unique_ptr<SharedRegion>> SharedRegion::Create(const std::string& name,
                                                           uint64_t initial_bytes,
                                                           uint64_t growth_bytes,
                                                           uint64_t max_bytes) {
  std::string file_name = name.substr(0, 200);
  UniqueFd fd(memfd_create(file_name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const uint64_t size_bytes = RoundUp(std::max<uint64_t>(initial_bytes, 4096), 4096);
  if (!fd.is_open()) return ErrnoError("memfd_create", size_bytes);
  if (ftruncate(fd.get(), static_cast<off_t>(size_bytes)) != 0) {
    return ErrnoError("ftruncate", size_bytes);
  }
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) != 0) {
    return ErrnoError("sealing", size_bytes);
  }
  NEREID_ASSIGN_OR_RETURN(auto mapping, SharedMapping::Of(fd.get(), size_bytes));
  return std::unique_ptr<SharedRegion>(new SharedRegion(
      std::move(file_name), std::move(fd), std::move(mapping),
      RoundUp(std::max<uint64_t>(growth_bytes, 4096), 4096), RoundUp(max_bytes, 4096)));
}

Result<SharedBlock> SharedRegion::Allocate(uint64_t size_bytes) {
  if (size_bytes > kMaxAllocationBytes) {
    return UnavailableError("shared memory: ", size_bytes, " bytes are too many");
  }
  for (;;) {
    const Allocation place = TryTake(size_bytes);
    if (place.block.has_value()) return *place.block;
    NEREID_RETURN_IF_ERROR(Grow(place.needed_bytes));
  }
}

std::optional<SharedBlock> SharedRegion::TryAllocate(uint64_t size_bytes) {
  if (size_bytes > kMaxAllocationBytes) return std::nullopt;
  const Allocation place = TryTake(size_bytes);
  if (place.block.has_value()) return place.block;
  std::lock_guard lock(mutex_);
  missed_bytes_ = std::max(missed_bytes_, place.needed_bytes);
  return std::nullopt;
}

Status SharedRegion::GrowForMissedAllocations() {
  std::unique_lock lock(mutex_);
  const uint64_t missed_bytes = std::exchange(missed_bytes_, 0);
  lock.unlock();
  return missed_bytes == 0 ? Status() : Grow(missed_bytes);
}

// First fit: recently used memory is used again, while it is in the cache.
SharedRegion::Allocation SharedRegion::TryTake(uint64_t size_bytes) {
  const uint64_t needed_bytes = kBlockHeaderBytes + RoundUp(size_bytes, kBlockHeaderBytes);
  std::lock_guard lock(mutex_);
  uint64_t begin = 0;
  for (auto it = used_.begin(); it != used_.end();) {
    std::byte* const header = mapping_->base() + it->first;
    if (InUse(header).load(std::memory_order_acquire) == 0 &&
        NumReaders(header).load(std::memory_order_acquire) == 0) {
      it = used_.erase(it);
      continue;
    }
    if (it->first - begin >= needed_bytes) break;
    begin = it->second;
    ++it;
  }
  const uint64_t end = begin + needed_bytes;
  if (end > mapping_->size_bytes()) return {std::nullopt, end};
  used_.emplace(begin, end);
  NumReaders(mapping_->base() + begin).store(0, std::memory_order_relaxed);
  InUse(mapping_->base() + begin).store(1, std::memory_order_release);
  return {SharedBlock{mapping_, begin + kBlockHeaderBytes, size_bytes}, end};
}

// posix_fallocate reserves the memory, so that exhausted memory is an error here and not a SIGBUS
// later.
Status SharedRegion::Grow(uint64_t size_bytes) {
  std::lock_guard growth_lock(growth_mutex_);
  uint64_t old_bytes = 0;
  {
    std::lock_guard lock(mutex_);
    old_bytes = mapping_->size_bytes();
  }
  if (old_bytes >= size_bytes) return {};  // another thread has grown it
  uint64_t new_bytes = RoundUp(std::max(size_bytes, old_bytes + growth_bytes_), 4096);
  if (max_bytes_ != 0 && size_bytes > max_bytes_) {
    return RegionFullError(name_, new_bytes,
                           StrCat("at most ", max_bytes_, " are allowed by shm-max-byte-size"));
  }
  if (max_bytes_ != 0) new_bytes = std::min(new_bytes, max_bytes_);
  const int error = posix_fallocate(fd_.get(), static_cast<off_t>(old_bytes),
                                    static_cast<off_t>(new_bytes - old_bytes));
  if (error != 0) {
    return RegionFullError(name_, new_bytes, std::strerror(error));
  }
  NEREID_ASSIGN_OR_RETURN(auto mapping, SharedMapping::Of(fd_.get(), new_bytes));
  std::lock_guard lock(mutex_);
  if (mapping->size_bytes() > mapping_->size_bytes()) mapping_.swap(mapping);
  return {};
}

Result<SharedBlock> SharedRegion::Find(uint64_t offset, uint64_t size_bytes) {
  const bool is_sane = offset >= kBlockHeaderBytes && offset % kBlockHeaderBytes == 0 &&
                       size_bytes <= std::numeric_limits<uint64_t>::max() - offset;
  std::lock_guard lock(mutex_);
  if (is_sane && offset + size_bytes > mapping_->size_bytes()) {
    struct stat file {};
    if (fstat(fd_.get(), &file) != 0) return ErrnoError("fstat", offset + size_bytes);
    if (offset + size_bytes <= static_cast<uint64_t>(file.st_size)) {
      NEREID_ASSIGN_OR_RETURN(mapping_,
                              SharedMapping::Of(fd_.get(), static_cast<uint64_t>(file.st_size)));
    }
  }
  if (!is_sane || offset + size_bytes > mapping_->size_bytes()) {
    return InvalidArgError("a message names ", size_bytes, " bytes at ", offset,
                           " of shared memory, which has ", mapping_->size_bytes());
  }
  return SharedBlock{mapping_, offset, size_bytes};
}

}  // namespace nereid::python
