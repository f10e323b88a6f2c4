// The LoRA adapters that clients have loaded and unloaded while the server runs, beside those of
// the models' configurations. A model that is loaded again has only those of its configuration: a
// request with another name is then refused by its engine. [any thread]
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace nereid::openai {

class LoadedAdapters {
 public:
  // `is_configured`: whether the model's configuration names the adapter.
  void Add(const std::string& model, const std::string& adapter, bool is_configured) {
    Set(model, adapter, true, is_configured);
  }
  void Remove(const std::string& model, const std::string& adapter, bool is_configured) {
    Set(model, adapter, false, is_configured);
  }

  // Changes the names of the model's configuration to those that it has now, in order.
  void Apply(const std::string& model, std::vector<std::string>& adapters) const;
  // Another number after each change.
  uint64_t version() const { return version_.load(std::memory_order_acquire); }

 private:
  void Set(const std::string& model, const std::string& adapter, bool is_loaded,
           bool is_configured);

  mutable std::mutex mutex_;  // guards changes_
  // By model, then adapter: whether it is loaded, where the configuration says otherwise.
  std::map<std::string, std::map<std::string, bool>> changes_;
  std::atomic<uint64_t> version_{0};
};

}  // namespace nereid::openai
