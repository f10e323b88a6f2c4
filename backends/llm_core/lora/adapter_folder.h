// Follows a folder whose subfolders are LoRA adapters, each under the name of its subfolder: an
// adapter that appears or changes is loaded, one that disappears is unloaded.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "backends/llm_core/lora/adapter_registry.h"
#include "nereid/status.h"

namespace nereid::llm {

class AdapterFolder {
 public:
  // Called with the error if an adapter cannot be loaded, once for each change of its files.
  using OnError = std::function<void(const Status&)>;

  // `registry` must outlive the object. Loads what is there, then looks again in every period on a
  // thread of its own. NOT_FOUND if `folder` is no folder.
  static Result<std::unique_ptr<AdapterFolder>> Open(std::string folder, AdapterRegistry& registry,
                                                     OnError on_error,
                                                     std::chrono::milliseconds period);
  ~AdapterFolder();
  AdapterFolder(const AdapterFolder&) = delete;
  AdapterFolder& operator=(const AdapterFolder&) = delete;

 private:
  AdapterFolder(std::string folder, AdapterRegistry& registry, OnError on_error)
      : folder_(std::move(folder)), registry_(registry), on_error_(std::move(on_error)) {}

  // Compares the folder with what was loaded from it.
  void Scan();
  void Watch(std::chrono::milliseconds period);

  const std::string folder_;
  AdapterRegistry& registry_;
  const OnError on_error_;
  // The state of each adapter's files when it was loaded or refused. Read by one thread at a time.
  std::map<std::string, std::string> seen_;
  std::mutex mutex_;  // guards stop_
  std::condition_variable stopped_;
  bool stop_ = false;
  std::thread thread_;  // last member: the thread uses the others
};

}  // namespace nereid::llm
