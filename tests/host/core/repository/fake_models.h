// Fake models and a fake loader: the test decides which loads succeed, fail or block.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "host/core/repository/model_repository.h"
#include "tests/support/test_folder.h"

namespace nereid::core {

// Replaces the class of model/model.h, which this program does not link.
class Model {
 public:
  std::string name;
  int64_t version = 0;
  int serial = 0;  // number of this load in the process, from 1
  ModelConfig config;
  std::string path;
  std::shared_ptr<void> lifetime;
};

class FakeLoader : public ModelLoader {
 public:
  Result<std::shared_ptr<Model>> Load(ModelLoadRequest request) override {
    std::unique_lock lock(mutex_);
    const std::string key = StrCat(request.name, ":", request.version);
    order.push_back(key);
    ++num_running_;
    max_running = std::max(max_running, num_running_);
    changed_.notify_all();
    changed_.wait(lock, [&] { return blocked_.count(request.name) == 0; });
    --num_running_;
    if (const auto it = failures_.find(key); it != failures_.end()) return it->second;
    auto model = std::make_shared<Model>();
    *model = {request.name,   request.version,    ++serial_,
              request.config, request.model_path, request.lifetime};
    return model;
  }

  Status UpdateInstances(Model* model, const ModelConfig& config) override {
    std::lock_guard lock(mutex_);
    updates.push_back(StrCat(model->name, ":", model->version));
    if (!update_error.ok()) return update_error;
    model->config = config;
    return Status::Ok();
  }

  void Fail(const std::string& key, Status status) {
    std::lock_guard lock(mutex_);
    failures_.insert_or_assign(key, std::move(status));
  }
  void ClearFailures() {
    std::lock_guard lock(mutex_);
    failures_.clear();
  }
  // Loads of `name` block until UnblockLoad.
  void BlockLoad(const std::string& name) {
    std::lock_guard lock(mutex_);
    blocked_.insert(name);
  }
  void UnblockLoad(const std::string& name) {
    std::lock_guard lock(mutex_);
    blocked_.erase(name);
    changed_.notify_all();
  }
  void WaitForLoads(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return order.size() >= count; });
  }

  std::vector<std::string> updates;  // "<name>:<version>" in the order of UpdateInstances calls
  Status update_error;
  std::vector<std::string> order;  // "<name>:<version>" in the order of Load calls
  int max_running = 0;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Status> failures_;
  std::set<std::string> blocked_;
  int num_running_ = 0;
  int serial_ = 0;
};

// The load parameter `config` for an ensemble with one step.
inline Parameter EnsembleOver(const std::string& step) {
  return {"config", StrCat(R"({"platform": "ensemble", "ensemble_scheduling": {"step": [{)",
                           R"("model_name": ")", step, R"(", "model_version": -1, )",
                           R"("input_map": {"a": "a"}, "output_map": {"a": "b"}}]}})")};
}

// Repositories on disk, a fake loader, a lifecycle and a model table.
class RepositoryTest : public testing::Test {
 protected:
  RepositoryTest() { std::filesystem::create_directories(root_ / "repo"); }

  std::string repo(const std::string& name = "repo") const { return (root_ / name).string(); }

  void Write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  void AddModel(const std::string& name, std::vector<int> versions = {1},
                const std::string& config = "backend: 'b'",
                const std::string& repo = "repo") const {
    Write(StrCat(repo, "/", name, "/config.pbtxt"), config);
    for (const int version : versions) {
      Write(StrCat(repo, "/", name, "/", version, "/model.bin"), "x");
    }
  }
  void AddEnsemble(const std::string& name, const std::vector<std::string>& steps) const {
    std::string config = "platform: 'ensemble' ensemble_scheduling {";
    for (const std::string& step : steps) {
      config += StrCat(
          " step { model_name: '", step,
          "' model_version: -1 input_map { key: 'a' value: 'a' } output_map { key: 'a' value: '",
          step, "' } }");
    }
    Write(StrCat("repo/", name, "/config.pbtxt"), config + " }");
  }

  std::shared_ptr<Model> Find(const std::string& name,
                              int64_t version = ModelTable::kLatest) const {
    const auto model = table_.Find(name, version);
    return model.ok() ? model.value() : nullptr;
  }

  // The model index as text, for example "a:1 READY; b:1 UNAVAILABLE (reason); c".
  std::string Index(bool ready_only = false) const {
    std::string text;
    for (const IndexEntry& entry : repository_.Index(ready_only)) {
      text += StrCat(text.empty() ? "" : "; ", entry.name);
      if (entry.version > 0)
        text += StrCat(":", entry.version, " ", ModelStateName(entry.status.state));
      if (!entry.status.reason.empty()) text += StrCat(" (", entry.status.reason, ")");
    }
    return text;
  }

  const TestFolder folder_;
  const std::filesystem::path root_ = folder_.path();
  ModelTable table_;
  FakeLoader loader_;
  ModelLifecycle lifecycle_{&table_, &loader_, 4, 0};
  ModelRepository repository_{{{repo(), {}}}, {}, &lifecycle_};
};

}  // namespace nereid::core
