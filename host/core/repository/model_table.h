// What can be asked by name: every known model and its serving versions. Readers (one look-up a
// request) never wait for each other or for a load: they copy a pointer out of a snapshot, of which
// each group of threads has its own slot. [any thread]
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

namespace nereid {

class Model;  // model/model.h

class ModelTable {
 public:
  static constexpr int64_t kLatest = -1;
  using VersionMap = std::map<int64_t, std::shared_ptr<Model>>;

  ModelTable();

  // The serving version `version`, or the highest one for kLatest. Where repositories are
  // namespaces, `name` may be qualified (model_name.h) or plain; a plain name that models of
  // several repositories serve under is INVALID_ARG and the error names them. NOT_FOUND names the
  // model, the version and what is there, UNAVAILABLE a version that is known and does not serve.
  // The pointer keeps the model alive: drop it before its own
  // instance threads would be the last to hold it.
  Result<std::shared_ptr<Model>> Find(std::string_view name, int64_t version) const;

  // Serving versions of one model in ascending order; NOT_FOUND when the name is unknown.
  Result<std::vector<int64_t>> Versions(std::string_view name) const;

  // Those models. [as Versions]
  Result<std::vector<std::shared_ptr<Model>>> Serving(std::string_view name) const;

  // Every serving model, by name, then version.
  std::vector<std::shared_ptr<Model>> All() const;

  // Writers: the lifecycle alone. Replaces the set of serving versions of `name` at once, and that
  // of those that are known but do not serve; empty sets keep the name known ("has no available
  // versions").
  void Publish(const std::string& name, VersionMap versions, std::set<int64_t> not_serving = {});

 private:
  struct Named {
    std::string name;
    VersionMap versions;
    std::set<int64_t> not_serving;
  };
  // Shares what did not change with the snapshot before it: a copy costs a pointer a model.
  struct Snapshot {
    std::vector<std::shared_ptr<const Named>> models;  // by name
    // Plain name -> the qualified ones; empty where repositories are no namespaces.
    std::map<std::string, std::set<std::string>, std::less<>> qualified;

    const Named* Lookup(std::string_view name) const;  // null: unknown
    Result<const Named*> Resolve(std::string_view name) const;
    void Set(std::shared_ptr<const Named> model);
  };

  // Padded, so that threads of different slots share no cache line.
  struct alignas(64) Slot {
    mutable std::mutex mutex;  // guards snapshot
    std::shared_ptr<const Snapshot> snapshot;
  };
  static constexpr size_t kNumSlots = 16;

  const Slot& MySlot() const;

  std::mutex write_mutex_;  // one writer at a time
  std::array<Slot, kNumSlots> slots_;
};

}  // namespace nereid
