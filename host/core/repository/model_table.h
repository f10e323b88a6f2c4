// The table of models by name: every known model and its serving versions. Readers (one look-up per
// request) wait neither for each other nor for a load. They copy a pointer from a snapshot; each
// group of threads has its own slot with that snapshot. [any thread]
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "nereid/status.h"

namespace nereid::core {

class Model;  // model/model.h

class ModelTable {
 public:
  static constexpr int64_t kLatest = -1;
  using VersionMap = std::map<int64_t, std::shared_ptr<Model>>;

  ModelTable();

  // Returns the serving version `version`, or the highest one for kLatest. With model namespacing,
  // `name` is a qualified (model_name.h) or plain name. INVALID_ARG lists the candidates of a plain
  // name that serves in several repositories. NOT_FOUND if the name or version is unknown;
  // UNAVAILABLE if the version is known but does not serve. The result keeps the model alive.
  // Release it before only the model's instance threads would hold references.
  Result<std::shared_ptr<Model>> Find(std::string_view name, int64_t version) const;

  // Serving versions of one model in ascending order; NOT_FOUND if the name is unknown.
  Result<std::vector<int64_t>> Versions(std::string_view name) const;

  // The models of these versions. Errors as for Versions.
  Result<std::vector<std::shared_ptr<Model>>> Serving(std::string_view name) const;

  // All serving models, ordered by name, then version.
  std::vector<std::shared_ptr<Model>> All() const;

  // Replaces the serving versions of `name` and the known versions that do not serve, atomically.
  // With empty sets the name stays known ("has no available versions"). Called only by the
  // lifecycle.
  void Publish(const std::string& name, VersionMap versions, std::set<int64_t> not_serving = {});

 private:
  struct ModelEntry {
    std::string name;
    VersionMap versions;
    std::set<int64_t> not_serving;
  };
  // Shares unchanged entries with the previous snapshot: a copy costs one pointer per model.
  struct Snapshot {
    std::vector<std::shared_ptr<const ModelEntry>> models;  // ordered by name
    // plain name -> qualified names; empty without model namespacing
    std::map<std::string, std::set<std::string>, std::less<>> qualified;

    const ModelEntry* Lookup(std::string_view name) const;  // null: unknown
    Result<const ModelEntry*> Resolve(std::string_view name) const;
    void Set(std::shared_ptr<const ModelEntry> model);
  };

  // Aligned, so that threads of different slots share no cache line.
  struct alignas(64) Slot {
    mutable std::mutex mutex;  // guards snapshot
    std::shared_ptr<const Snapshot> snapshot;
  };
  static constexpr size_t kNumSlots = 16;

  const Slot& ThreadSlot() const;

  std::mutex write_mutex_;  // one writer at a time
  std::array<Slot, kNumSlots> slots_;
};

}  // namespace nereid::core
