// System shared-memory region: a mapped range of a POSIX shared memory object.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <optional>

#include "base/sigbus_guard.h"
#include "host/frontend/shared_region.h"

namespace nereid {
namespace {

// Objects that the Python backend shares with its worker processes are not available to clients.
constexpr std::string_view kReservedPrefix = "triton_python_backend_shm_region_";

bool IsReserved(std::string_view key) {
  while (key.starts_with('/')) key.remove_prefix(1);
  return key.starts_with(kReservedPrefix);
}

Result<uint64_t> ObjectBytes(int fd, const std::string& key) {
  struct stat status {};
  if (fstat(fd, &status) != 0) {
    return InternalError("Invalid shared memory region: '", key, "'");
  }
  return static_cast<uint64_t>(status.st_size);
}

// If the object was truncated before `address`, this makes the region's guard replace the page.
// Other threads may write to the memory meanwhile, because clients may let requests share it.
__attribute__((no_sanitize("thread"))) void ReadByte(const char* address) {
  static_cast<void>(*static_cast<const volatile char*>(address));
}

class SystemRegion final : public SharedRegion {
 public:
  // Takes ownership of the mapping. It starts at a page boundary, `page_offset_bytes` before the
  // region. The region keeps no descriptor, so that clients cannot use up those of the process.
  SystemRegion(SharedRegionInfo info, void* mapping, size_t page_offset_bytes)
      : SharedRegion(SharedMemoryKind::kSystem, std::move(info)),
        mapping_(mapping),
        page_offset_bytes_(page_offset_bytes),
        sigbus_guard_(std::in_place, mapping, page_offset_bytes + this->info().size_bytes,
                      PROT_READ | PROT_WRITE) {}
  ~SystemRegion() override {
    sigbus_guard_.reset();
    munmap(mapping_, page_offset_bytes_ + this->info().size_bytes);
  }

  char* base() const override { return static_cast<char*>(mapping_) + page_offset_bytes_; }
  TRITONSERVER_MemoryType memory_type() const override { return TRITONSERVER_MEMORY_CPU; }

  Status Check() const override {
    ReadByte(base() + info().size_bytes - 1);
    return CheckIntact();
  }

  // Pages that were replaced after truncation no longer belong to the object, even if it grows
  // again.
  Status CheckIntact() const override {
    if (!sigbus_guard_->has_replaced_pages()) return Status::Ok();
    return InvalidArgError("shared memory region '", info().name, "': '", info().key,
                           "' was truncated and lost pages: register it again");
  }

 private:
  void* const mapping_;
  const size_t page_offset_bytes_;
  std::optional<SigbusGuard> sigbus_guard_;
};

// The mapping outlives `fd`.
Result<std::shared_ptr<const SharedRegion>> Map(SharedRegionInfo info, int fd) {
  NEREID_ASSIGN_OR_RETURN(const uint64_t object_bytes, ObjectBytes(fd, info.key));
  if (info.offset > object_bytes || info.size_bytes > object_bytes - info.offset ||
      info.size_bytes == 0) {
    return InvalidArgError("failed to register shared memory region '", info.name,
                           "': invalid args: '", info.key, "' has ", object_bytes,
                           " bytes, got offset ", info.offset, " and byte_size ", info.size_bytes);
  }
  const size_t page_offset_bytes = info.offset % static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* const mapping = mmap(nullptr, page_offset_bytes + info.size_bytes, PROT_READ | PROT_WRITE,
                             MAP_SHARED, fd, static_cast<off_t>(info.offset - page_offset_bytes));
  if (mapping == MAP_FAILED) {
    return InternalError("unable to map shared memory region '", info.name, "'");
  }
  return std::shared_ptr<const SharedRegion>(
      std::make_shared<SystemRegion>(std::move(info), mapping, page_offset_bytes));
}

}  // namespace

Result<std::shared_ptr<const SharedRegion>> MapSystemRegion(SharedRegionInfo info) {
  if (IsReserved(info.key)) {
    return InvalidArgError("cannot register shared memory region '", info.name, "' with key '",
                           info.key, "': the key is reserved");
  }
  const int fd = info.key.find('\0') == std::string::npos
                     ? shm_open(info.key.c_str(), O_RDWR | O_CLOEXEC, 0)
                     : -1;
  if (fd < 0) return InternalError("Unable to open shared memory region: '", info.key, "'");
  auto region = Map(std::move(info), fd);
  close(fd);
  return region;
}

}  // namespace nereid
