// A backend inside the test process: its entry points record each call and run functions of the
// test. One per process at a time.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "host/core/backend/backend.h"
#include "host/core/model/model.h"
#include "nereid/status.h"

namespace nereid::core::test {

struct FakeBackend {
  // The calls of entry points, in order: "model_initialize", "execute 2", ...
  std::vector<std::string> Calls();
  void Record(const std::string& call);

  // Called by the entry points. If empty, the entry point succeeds.
  std::function<Status(TRITONBACKEND_Model*)> model_initialize;
  std::function<Status(TRITONBACKEND_ModelInstance*)> instance_initialize;
  std::function<Status(TRITONBACKEND_ModelInstance*)> instance_ready;
  // If empty, answers each request with OUT = IN.
  std::function<Status(TRITONBACKEND_ModelInstance*, std::vector<TRITONBACKEND_Request*>)> execute;
  std::function<void()> finalize;
  bool parallel_instances = false;
  uint32_t max_serial_requests = 0;  // not 0: exports the entry points for serial execution
  bool executes_inline = false;      // true: exports the inline entry point, which runs `execute`
  // If not empty, exports the entry point for posted input buffers, which returns the result.
  std::function<void*(uint64_t size_bytes)> posted_input;
  std::atomic<int> num_released{0};

  static BackendEntryPoints EntryPoints();
  // The instance that the entry points use.
  static FakeBackend* current;

 private:
  std::mutex mutex_;  // guards calls_
  std::vector<std::string> calls_;
};

// Sends the final response with OUT = IN, reports statistics and releases the request.
void AnswerIdentity(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request);

std::string NameOf(TRITONBACKEND_ModelInstance* instance);

// Returns the first value of the request's FP32 input `name`.
float ReadFloat(TRITONBACKEND_Request* request, const char* name);

// Core services with the fake backend under the name "fake", and models loaded from JSON
// configurations.
class ModelFixture {
 public:
  ModelFixture();
  // Waits until every model is destroyed: a thread may hold a reference for some time after the
  // test has released its own.
  ~ModelFixture();

  Result<std::shared_ptr<Model>> Load(const std::string& json, const std::string& model_dir = "");
  // Waits until every model without references is destroyed.
  void WaitForEnds() { services->reaper.WaitIdle(); }

  FakeBackend backend;
  std::unique_ptr<CoreServices> services;
  std::atomic<int> num_loads{0};
  std::atomic<int> num_destroyed{0};
};

}  // namespace nereid::core::test
