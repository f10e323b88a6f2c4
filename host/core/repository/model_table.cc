#include "host/core/repository/model_table.h"

#include <algorithm>
#include <atomic>

#include "host/core/repository/folders.h"

namespace nereid::core {

ModelTable::ModelTable() {
  auto empty = std::make_shared<const Snapshot>();
  for (Slot& slot : slots_) slot.snapshot = empty;
}

const ModelTable::Slot& ModelTable::ThreadSlot() const {
  static std::atomic<size_t> next{0};
  static thread_local const size_t index = next.fetch_add(1, std::memory_order_relaxed) % kNumSlots;
  return slots_[index];
}

const ModelTable::ModelEntry* ModelTable::Snapshot::Lookup(std::string_view name) const {
  const auto it = std::lower_bound(models.begin(), models.end(), name,
                                   [](const auto& model, auto key) { return model->name < key; });
  return it == models.end() || (*it)->name != name ? nullptr : it->get();
}

void ModelTable::Snapshot::Set(std::shared_ptr<const ModelEntry> model) {
  const auto it =
      std::lower_bound(models.begin(), models.end(), model->name,
                       [](const auto& known, const auto& key) { return known->name < key; });
  if (it != models.end() && (*it)->name == model->name) {
    *it = std::move(model);
  } else {
    models.insert(it, std::move(model));
  }
}

// [under the mutex of the snapshot's slot]
Result<const ModelTable::ModelEntry*> ModelTable::Snapshot::Resolve(std::string_view name) const {
  if (const ModelEntry* model = Lookup(name)) return model;
  const ModelEntry* known = nullptr;
  std::string serving;  // keys of serving models
  if (const auto it = qualified.find(name); it != qualified.end()) {
    size_t num_serving = 0;
    for (const std::string& key : it->second) {
      const ModelEntry& model = *Lookup(key);
      if (known == nullptr || !model.versions.empty()) known = &model;
      if (model.versions.empty()) continue;
      ++num_serving;
      serving += StrCat(serving.empty() ? "'" : ", '", key, "'");
    }
    if (num_serving > 1) {
      return InvalidArgError("There are ", num_serving, " identifiers of model '", name,
                             "' in global map, model namespace must be provided to resolve "
                             "ambiguity: ",
                             serving);
    }
  }
  if (known != nullptr) return known;
  return NotFoundError("Request for unknown model: '", name, "' is not found");
}

Result<std::shared_ptr<Model>> ModelTable::Find(std::string_view name, int64_t version) const {
  const Slot& slot = ThreadSlot();
  std::lock_guard lock(slot.mutex);
  NEREID_ASSIGN_OR_RETURN(const ModelEntry* model, slot.snapshot->Resolve(name));
  if (version == kLatest) {
    if (!model->versions.empty()) return model->versions.rbegin()->second;
    return NotFoundError("Request for unknown model: '", name, "' has no available versions");
  }
  const auto found = model->versions.find(version);
  if (found != model->versions.end()) return found->second;
  if (model->not_serving.count(version) > 0) {
    return UnavailableError("Request for unknown model: '", name, "' version ", version,
                            " is not at ready state");
  }
  return NotFoundError("Request for unknown model: '", name, "' version ", version,
                       " is not found");
}

Result<std::vector<int64_t>> ModelTable::Versions(std::string_view name) const {
  const Slot& slot = ThreadSlot();
  std::lock_guard lock(slot.mutex);
  NEREID_ASSIGN_OR_RETURN(const ModelEntry* entry, slot.snapshot->Resolve(name));
  std::vector<int64_t> versions;
  for (const auto& [version, model] : entry->versions) versions.push_back(version);
  return versions;
}

Result<std::vector<std::shared_ptr<Model>>> ModelTable::Serving(std::string_view name) const {
  const Slot& slot = ThreadSlot();
  std::lock_guard lock(slot.mutex);
  NEREID_ASSIGN_OR_RETURN(const ModelEntry* entry, slot.snapshot->Resolve(name));
  std::vector<std::shared_ptr<Model>> models;
  for (const auto& [version, model] : entry->versions) models.push_back(model);
  return models;
}

std::vector<std::shared_ptr<Model>> ModelTable::All() const {
  const Slot& slot = ThreadSlot();
  std::lock_guard lock(slot.mutex);
  std::vector<std::shared_ptr<Model>> models;
  for (const auto& entry : slot.snapshot->models) {
    for (const auto& [version, model] : entry->versions) models.push_back(model);
  }
  return models;
}

void ModelTable::Publish(const std::string& name, VersionMap versions,
                         std::set<int64_t> not_serving) {
  std::lock_guard write_lock(write_mutex_);
  auto next = std::make_shared<Snapshot>(*slots_[0].snapshot);
  next->Set(std::make_shared<const ModelEntry>(
      ModelEntry{name, std::move(versions), std::move(not_serving)}));
  if (IsQualified(name)) next->qualified[std::string(PlainName(name))].insert(name);
  std::shared_ptr<const Snapshot> old;  // released last, outside the locks of all slots
  for (Slot& slot : slots_) {
    std::shared_ptr<const Snapshot> fresh = next;
    std::lock_guard lock(slot.mutex);
    slot.snapshot.swap(fresh);
    if (old == nullptr) old = std::move(fresh);
  }
}

}  // namespace nereid::core
