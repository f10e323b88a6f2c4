#include "repository/model_table.h"

#include <atomic>

namespace nereid {

ModelTable::ModelTable() {
  auto empty = std::make_shared<const Snapshot>();
  for (Slot& slot : slots_) slot.snapshot = empty;
}

const ModelTable::Slot& ModelTable::MySlot() const {
  static std::atomic<size_t> next{0};
  static thread_local const size_t index = next.fetch_add(1, std::memory_order_relaxed) % kNumSlots;
  return slots_[index];
}

Result<std::shared_ptr<Model>> ModelTable::Find(std::string_view name, int64_t version) const {
  const Slot& slot = MySlot();
  std::lock_guard lock(slot.mutex);
  const auto it = slot.snapshot->find(name);
  if (it == slot.snapshot->end()) {
    return NotFoundError("Request for unknown model: '", name, "' is not found");
  }
  const VersionMap& versions = it->second;
  if (version == kLatest) {
    if (!versions.empty()) return versions.rbegin()->second;
    return NotFoundError("Request for unknown model: '", name, "' has no available versions");
  }
  const auto found = versions.find(version);
  if (found != versions.end()) return found->second;
  return NotFoundError("Request for unknown model: '", name, "' version ", version,
                       " is not found");
}

Result<std::vector<int64_t>> ModelTable::Versions(std::string_view name) const {
  const Slot& slot = MySlot();
  std::lock_guard lock(slot.mutex);
  const auto it = slot.snapshot->find(name);
  if (it == slot.snapshot->end()) {
    return NotFoundError("Request for unknown model: '", name, "' is not found");
  }
  std::vector<int64_t> versions;
  for (const auto& [version, model] : it->second) versions.push_back(version);
  return versions;
}

std::vector<std::shared_ptr<Model>> ModelTable::All() const {
  const Slot& slot = MySlot();
  std::lock_guard lock(slot.mutex);
  std::vector<std::shared_ptr<Model>> models;
  for (const auto& [name, versions] : *slot.snapshot) {
    for (const auto& [version, model] : versions) models.push_back(model);
  }
  return models;
}

void ModelTable::Publish(const std::string& name, VersionMap versions) {
  std::lock_guard write_lock(write_mutex_);
  auto next = std::make_shared<Snapshot>(*slots_[0].snapshot);
  (*next)[name] = std::move(versions);
  std::shared_ptr<const Snapshot> old;  // dropped last, outside of every slot's lock
  for (Slot& slot : slots_) {
    std::shared_ptr<const Snapshot> fresh = next;
    std::lock_guard lock(slot.mutex);
    slot.snapshot.swap(fresh);
    if (old == nullptr) old = std::move(fresh);
  }
}

}  // namespace nereid
