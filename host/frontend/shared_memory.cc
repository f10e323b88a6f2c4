// The registry of regions; shared_region.h has their memory.
#include "host/frontend/shared_memory.h"

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

Status SharedMemoryManager::CheckNew(const SharedRegionInfo& info) {
  if (!allows_clients_) {
    return UnsupportedError("shared memory region '", info.name,
                            "': this server lets no client register shared memory "
                            "(--allow-client-shm=false)");
  }
  if (info.name.empty()) return InvalidArgError("a shared memory region needs a name");
  const std::lock_guard lock(mutex_);
  return CheckRoom(info);
}

Status SharedMemoryManager::CheckRoom(const SharedRegionInfo& info) {
  std::erase_if(regions_, [](const auto& each) { return each.second.use.expired(); });
  if (regions_.contains(info.name)) {
    return AlreadyExistsError("shared memory region '", info.name, "' already in manager");
  }
  if (regions_.size() >= limits_.max_regions) {
    return UnavailableError("shared memory region '", info.name, "': ", regions_.size(),
                            " regions are registered, at most ", limits_.max_regions,
                            " may be (--client-shm-max-regions)");
  }
  uint64_t num_bytes = 0;
  for (const auto& [name, entry] : regions_) num_bytes += entry.info.size_bytes;
  if (info.size_bytes <= limits_.max_bytes - num_bytes) return Status::Ok();
  return UnavailableError("shared memory region '", info.name, "' has ", info.size_bytes,
                          " bytes, the registered regions have ", num_bytes, ", at most ",
                          limits_.max_bytes, " may be registered (--client-shm-max-bytes)");
}

Status SharedMemoryManager::Add(std::shared_ptr<const SharedRegion> region) {
  auto registration = std::make_shared<const Use>(Use{std::move(region)});
  const SharedRegion& added = *registration->region;
  const std::lock_guard lock(mutex_);
  NEREID_RETURN_IF_ERROR(CheckRoom(added.info()));
  regions_.emplace(added.info().name,
                   Entry{added.kind(), added.info(), registration, registration});
  return Status::Ok();
}

Status SharedMemoryManager::RegisterSystem(const std::string& name, const std::string& key,
                                           uint64_t offset, uint64_t size_bytes) {
  SharedRegionInfo info{name, key, offset, size_bytes, 0};
  NEREID_RETURN_IF_ERROR(CheckNew(info));
  NEREID_ASSIGN_OR_RETURN(auto region, MapSystemRegion(std::move(info)));
  return Add(std::move(region));
}

Status SharedMemoryManager::RegisterCuda(const std::string& name, std::string_view raw_handle,
                                         int64_t device_id, uint64_t size_bytes) {
  SharedRegionInfo info{name, "", 0, size_bytes, device_id};
  NEREID_RETURN_IF_ERROR(CheckNew(info));
  NEREID_ASSIGN_OR_RETURN(auto region, OpenCudaRegion(std::move(info), raw_handle));
  return Add(std::move(region));
}

void SharedMemoryManager::Unregister(SharedMemoryKind kind, const std::string& name) {
  std::vector<std::shared_ptr<const Use>> dropped;  // unmapped after the lock is released
  const std::lock_guard lock(mutex_);
  for (auto& [region_name, entry] : regions_) {
    if (entry.kind != kind || (!name.empty() && region_name != name)) continue;
    dropped.push_back(std::move(entry.registration));
  }
}

const SharedMemoryManager::Entry* SharedMemoryManager::FindEntry(const std::string& name) const {
  const auto found = regions_.find(name);
  return found == regions_.end() || found->second.use.expired() ? nullptr : &found->second;
}

Result<std::vector<SharedRegionInfo>> SharedMemoryManager::Describe(SharedMemoryKind kind,
                                                                    const std::string& name) const {
  std::vector<SharedRegionInfo> regions;
  const std::lock_guard lock(mutex_);
  if (!name.empty()) {
    const Entry* const found = FindEntry(name);
    if (found == nullptr) {
      return NotFoundError("Unable to find ", KindName(kind), " shared memory region: '", name,
                           "'");
    }
    if (found->kind == kind) return std::vector{found->info};
    const bool is_system = found->kind == SharedMemoryKind::kSystem;
    return NotFoundError("The region named '", name, "' is registered as ",
                         is_system ? "system" : "CUDA", " shared memory, not ",
                         is_system ? "CUDA" : "system", " shared memory");
  }
  for (const auto& [region_name, entry] : regions_) {
    if (entry.kind == kind && !entry.use.expired()) regions.push_back(entry.info);
  }
  return regions;
}

Result<MappedRange> SharedMemoryManager::Find(const SharedRange& range) const {
  std::shared_ptr<const Use> use;
  {
    const std::lock_guard lock(mutex_);
    const auto found = regions_.find(range.region);
    if (found != regions_.end()) use = found->second.use.lock();
  }
  if (use == nullptr) {
    return NotFoundError("Unable to find shared memory region: '", range.region, "'");
  }
  const std::shared_ptr<const SharedRegion>& region = use->region;
  const uint64_t region_bytes = region->info().size_bytes;
  if (range.offset >= region_bytes) {
    return InvalidArgError("Invalid offset for shared memory region: '", range.region, "'");
  }
  if (range.size_bytes == 0 || range.size_bytes > region_bytes - range.offset) {
    return InvalidArgError("Invalid offset + byte size for shared memory region: '", range.region,
                           "'");
  }
  NEREID_RETURN_IF_ERROR(region->Check());
  return MappedRange{region,
                     use,
                     region->base() + range.offset,
                     range.size_bytes,
                     region->memory_type(),
                     region->info().device_id};
}

}  // namespace nereid
