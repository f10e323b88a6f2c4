// The registry of regions; shared_region.h has their memory.
#include "host/frontend/shared_memory.h"

#include <iterator>
#include <utility>

#include "host/frontend/shared_region.h"

namespace nereid {
namespace {

std::string_view KindName(SharedMemoryKind kind) {
  return kind == SharedMemoryKind::kSystem ? "system" : "cuda";
}

}  // namespace

Status MappedRange::CheckIntact() const {
  return region == nullptr ? Status::Ok() : region->CheckIntact();
}

const SharedOutput* FindShared(std::span<const SharedOutput> outputs, std::string_view tensor) {
  for (const SharedOutput& output : outputs) {
    if (output.tensor == tensor) return &output;
  }
  return nullptr;
}

Result<OutputBuffer> AllocateShared(std::span<const SharedOutput> outputs,
                                    const OutputRequest& output) {
  const SharedOutput* const found = FindShared(outputs, output.tensor_name);
  if (found == nullptr) return OutputBuffer{nullptr};
  const MappedRange& range = found->range;
  if (output.size_bytes > range.size_bytes) {
    return InternalError("shared memory size specified with the request for output '",
                         output.tensor_name, "' (", range.size_bytes, " bytes) should be at least ",
                         output.size_bytes, " bytes to hold the results");
  }
  return OutputBuffer{range.base, range.memory_type, range.memory_type_id, nullptr};
}

Status SharedMemoryManager::CheckNew(const std::string& name) const {
  if (!allows_clients_) {
    return UnsupportedError("shared memory region '", name,
                            "': this server lets no client register shared memory "
                            "(--allow-client-shm=false)");
  }
  if (name.empty()) return InvalidArgError("a shared memory region needs a name");
  const std::lock_guard lock(mutex_);
  if (!regions_.contains(name)) return Status::Ok();
  return AlreadyExistsError("shared memory region '", name, "' already in manager");
}

Status SharedMemoryManager::Add(std::shared_ptr<const SharedRegion> region) {
  const std::string& name = region->info().name;
  const std::lock_guard lock(mutex_);
  if (regions_.emplace(name, Entry{region}).second) return Status::Ok();
  return AlreadyExistsError("shared memory region '", name, "' already in manager");
}

Status SharedMemoryManager::RegisterSystem(const std::string& name, const std::string& key,
                                           uint64_t offset, uint64_t size_bytes) {
  NEREID_RETURN_IF_ERROR(CheckNew(name));
  NEREID_ASSIGN_OR_RETURN(auto region, MapSystemRegion({name, key, offset, size_bytes, 0}));
  return Add(std::move(region));
}

Status SharedMemoryManager::RegisterCuda(const std::string& name, std::string_view raw_handle,
                                         int64_t device_id, uint64_t size_bytes) {
  NEREID_RETURN_IF_ERROR(CheckNew(name));
  NEREID_ASSIGN_OR_RETURN(auto region,
                          OpenCudaRegion({name, "", 0, size_bytes, device_id}, raw_handle));
  return Add(std::move(region));
}

Status SharedMemoryManager::Unregister(SharedMemoryKind kind, const std::string& name) {
  std::vector<Entry> removed;  // unmapped after the lock is released
  std::string in_use;
  const std::lock_guard lock(mutex_);
  auto region = name.empty() ? regions_.begin() : regions_.find(name);
  while (region != regions_.end()) {
    const auto next = std::next(region);
    if (region->second.region->kind() == kind) {
      // New uses start only under the lock, so a count of one cannot grow here.
      if (region->second.use_count.use_count() > 1) {
        in_use += region->first + " ,";
      } else {
        removed.push_back(std::move(region->second));
        regions_.erase(region);
      }
    }
    region = name.empty() ? next : regions_.end();
  }
  if (in_use.empty()) return Status::Ok();
  if (!name.empty()) {
    return InternalError("Cannot unregister shared memory region '", name,
                         "', it is currently in use.");
  }
  return InternalError("Failed to unregister the following ", KindName(kind),
                       " shared memory regions: ", in_use);
}

Result<std::vector<SharedRegionInfo>> SharedMemoryManager::Describe(SharedMemoryKind kind,
                                                                    const std::string& name) const {
  std::vector<SharedRegionInfo> regions;
  const std::lock_guard lock(mutex_);
  if (!name.empty()) {
    const auto found = regions_.find(name);
    if (found == regions_.end()) {
      return NotFoundError("Unable to find ", KindName(kind), " shared memory region: '", name,
                           "'");
    }
    const bool is_system = found->second.region->kind() == SharedMemoryKind::kSystem;
    if (found->second.region->kind() == kind) return std::vector{found->second.region->info()};
    return NotFoundError("The region named '", name, "' is registered as ",
                         is_system ? "system" : "CUDA", " shared memory, not ",
                         is_system ? "CUDA" : "system", " shared memory");
  }
  for (const auto& [region_name, entry] : regions_) {
    if (entry.region->kind() == kind) regions.push_back(entry.region->info());
  }
  return regions;
}

Result<MappedRange> SharedMemoryManager::Find(const SharedRange& range) const {
  Entry entry{nullptr, nullptr};
  {
    const std::lock_guard lock(mutex_);
    const auto found = regions_.find(range.region);
    if (found != regions_.end()) entry = found->second;
  }
  const std::shared_ptr<const SharedRegion>& region = entry.region;
  if (region == nullptr) {
    return NotFoundError("Unable to find shared memory region: '", range.region, "'");
  }
  const uint64_t region_bytes = region->info().size_bytes;
  if (range.offset >= region_bytes) {
    return InvalidArgError("Invalid offset for shared memory region: '", range.region, "'");
  }
  if (range.size_bytes == 0 || range.size_bytes > region_bytes - range.offset) {
    return InvalidArgError("Invalid offset + byte size for shared memory region: '", range.region,
                           "'");
  }
  NEREID_RETURN_IF_ERROR(region->Check());
  char* const base = region->base() + range.offset;
  const TRITONSERVER_MemoryType memory_type = region->memory_type();
  const int64_t device_id = region->info().device_id;
  return MappedRange{entry.region, entry.use_count, base, range.size_bytes, memory_type, device_id};
}

}  // namespace nereid
