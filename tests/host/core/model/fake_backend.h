// A backend inside the test: entry points that record each call and do what the test says. One at a
// time in a process.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "host/core/backend/backend.h"
#include "host/core/model/model.h"
#include "nereid/status.h"

namespace nereid::test {

struct FakeBackend {
  // Each entry point that was called, in order: "model_initialize", "execute 2", ...
  std::vector<std::string> Calls();
  void Record(const std::string& call);

  // What the entry points do; empty: succeed.
  std::function<Status(TRITONBACKEND_Model*)> model_initialize;
  std::function<Status(TRITONBACKEND_ModelInstance*)> instance_initialize;
  std::function<Status(TRITONBACKEND_ModelInstance*)> instance_ready;
  // Empty: answers each request with OUT = IN.
  std::function<Status(TRITONBACKEND_ModelInstance*, std::vector<TRITONBACKEND_Request*>)> execute;
  std::function<void()> finalize;
  bool parallel_instances = false;
  uint32_t most_in_turn = 0;     // not 0: has the entry points for requests in turn, too
  bool executes_inline = false;  // has the inline entry point too, which does the same
  // Not empty: has the entry point for inputs too, and this is where they go; null: nowhere.
  std::function<void*(uint64_t size_bytes)> offer_input;
  std::atomic<int> num_given_back{0};

  static BackendEntryPoints EntryPoints();
  // The one that the entry points speak to.
  static FakeBackend* current;

 private:
  std::mutex mutex_;  // guards calls_
  std::vector<std::string> calls_;
};

// OUT = IN, final; statistics reported; released.
void AnswerIdentity(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request);

// Services with the fake backend under the name "fake", and models made from JSON.
class ModelFixture {
 public:
  ModelFixture();
  // Waits for the last of every model: a thread may hold a reference to one for some time after
  // the test has dropped its own.
  ~ModelFixture();

  Result<std::shared_ptr<Model>> Load(const std::string& json, const std::string& model_dir = "");
  // Waits until everything of every dropped model has ended.
  void WaitForEnds() { services->reaper.WaitIdle(); }

  FakeBackend backend;
  std::unique_ptr<CoreServices> services;
  std::atomic<int> num_made{0};
  std::atomic<int> num_destroyed{0};
};

}  // namespace nereid::test
