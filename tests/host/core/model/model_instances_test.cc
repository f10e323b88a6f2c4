// Instances of a model: passive instances, threads, rate limiter, warm-up of sequence models,
// custom batching libraries.
#include <gtest/gtest.h>

#include <deque>
#include <filesystem>
#include <map>
#include <thread>
#include <utility>

#include "host/core/handle/error.h"
#include "tests/host/core/model/fake_backend.h"
#include "tests/host/core/support/test_client.h"
#include "tests/support/test_folder.h"

namespace nereid::core {
namespace {

using test::NameOf;
using test::ReadFloat;
using test::TestClient;
using test::TestRequest;
using Requests = std::vector<TRITONBACKEND_Request*>;

std::string InstancesConfig(const std::string& more) {
  return StrCat(R"({"backend": "fake", "max_batch_size": 8,
  "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [-1]}],
  "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]}])",
                more, "}");
}

uint32_t NumDims(TRITONBACKEND_Request* request, const char* name) {
  TRITONBACKEND_Input* input = nullptr;
  uint32_t num_dims = 0;
  EXPECT_TRUE(TakeError(TRITONBACKEND_RequestInput(request, name, &input)).ok()) << name;
  EXPECT_TRUE(TakeError(TRITONBACKEND_InputProperties(input, nullptr, nullptr, nullptr, &num_dims,
                                                      nullptr, nullptr))
                  .ok());
  return num_dims;
}

class ModelInstancesTest : public testing::Test, public test::ModelFixture {
 protected:
  void TearDown() override {
    requests_.clear();
    WaitForEnds();
  }
  void Send(const std::shared_ptr<Model>& model) {
    InferRequest& request =
        requests_.emplace_back(model, &client_, "r", std::vector<int64_t>{1, 1}).request;
    ASSERT_TRUE(request.Prepare().ok());
    ASSERT_TRUE(model->Enqueue(&request).ok());
  }

  TestClient client_;
  std::deque<TestRequest> requests_;
};

// The secondary devices of an instance as its backend sees them, for example
// "KIND_NVDLA:3,KIND_NVDLA:0,".
std::string SecondaryDevices(TRITONBACKEND_ModelInstance* instance) {
  uint32_t count = 0;
  EXPECT_EQ(TRITONBACKEND_ModelInstanceSecondaryDeviceCount(instance, &count), nullptr);
  std::string text;
  const char* kind = nullptr;
  int64_t id = -1;
  for (uint32_t i = 0; i < count; ++i) {
    EXPECT_EQ(TRITONBACKEND_ModelInstanceSecondaryDeviceProperties(instance, i, &kind, &id),
              nullptr);
    text += StrCat(kind, ":", id, ",");
  }
  EXPECT_FALSE(
      TakeError(TRITONBACKEND_ModelInstanceSecondaryDeviceProperties(instance, count, &kind, &id))
          .ok());
  return text;
}

TEST_F(ModelInstancesTest, ReportsSecondaryDevicesToTheBackend) {
  std::map<std::string, std::string> devices;
  backend.instance_initialize = [&](auto* instance) {
    devices[NameOf(instance)] = SecondaryDevices(instance);
    return Status::Ok();
  };
  const auto model = Load(InstancesConfig(R"(, "instance_group": [
    {"name": "two", "kind": "KIND_CPU",
     "secondary_devices": [{"device_id": 3}, {"kind": "KIND_NVDLA"}]},
    {"name": "none", "kind": "KIND_CPU"}])"));
  ASSERT_TRUE(model.ok()) << model.status().message();
  const std::map<std::string, std::string> expected{{"none_0", ""},
                                                    {"two_0", "KIND_NVDLA:3,KIND_NVDLA:0,"}};
  EXPECT_EQ(devices, expected);
}

std::set<std::string> Threads() {
  std::set<std::string> ids;
  for (const auto& each : std::filesystem::directory_iterator("/proc/self/task")) {
    ids.insert(each.path().filename());
  }
  return ids;
}

// Counts new threads. Threads of a previous test may still be in the kernel's list.
size_t NumThreadsSince(const std::set<std::string>& before) {
  size_t count = 0;
  for (const std::string& id : Threads()) count += before.count(id) == 0 ? 1 : 0;
  return count;
}

TEST_F(ModelInstancesTest, StartsThreadsWithTheFirstRequest) {
  std::thread([] {}).join();  // a sanitizer may start its own thread with the first one
  const std::set<std::string> before = Threads();
  auto model = Load(InstancesConfig(R"(, "instance_group": [{"count": 3, "kind": "KIND_CPU"}])"));
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(NumThreadsSince(before), 0U);
  Send(*model);
  EXPECT_EQ(client_.WaitFor(1).size(), 1U);
  EXPECT_EQ(NumThreadsSince(before), 3U);
}

TEST_F(ModelInstancesTest, EndsAModelThatGotNoRequest) {
  auto model = Load(InstancesConfig(R"(, "instance_group": [{"count": 2, "kind": "KIND_CPU"}])"));
  ASSERT_TRUE(model.ok()) << model.status().message();
  model->reset();
  WaitForEnds();
  EXPECT_EQ(num_destroyed, 1);
}

TEST_F(ModelInstancesTest, PassiveInstancesAreInitialisedButNeverExecute) {
  std::mutex mutex;
  std::set<std::string> executing;
  backend.execute = [&](auto* instance, Requests requests) {
    {
      std::lock_guard lock(mutex);
      executing.insert(NameOf(instance));
    }
    for (auto* request : requests) test::AnswerIdentity(instance, request);
    return Status::Ok();
  };
  const auto model = Load(InstancesConfig(R"(, "instance_group": [
    {"name": "idle", "kind": "KIND_MODEL", "passive": true},
    {"name": "busy", "kind": "KIND_MODEL", "count": 2}])"));
  ASSERT_TRUE(model.ok()) << model.status().message();
  for (int i = 0; i < 20; ++i) Send(*model);
  EXPECT_EQ(client_.WaitFor(20).size(), 20U);
  const auto calls = backend.Calls();
  EXPECT_EQ(std::count(calls.begin(), calls.end(), "instance_initialize idle_0"), 1);
  std::lock_guard lock(mutex);
  EXPECT_FALSE(executing.contains("idle_0"));
}

TEST_F(ModelInstancesTest, RefusesAModelWithOnlyPassiveInstances) {
  const auto model =
      Load(InstancesConfig(R"(, "instance_group": [{"kind": "KIND_MODEL", "passive": true}])"));
  EXPECT_EQ(model.status().message(),
            "model 'm' has only passive instances, which execute no requests");
}

TEST_F(ModelInstancesTest, InstancesThatShareAResourceExecuteOneAtATime) {
  services = std::make_unique<CoreServices>(nullptr, [] {
    CoreOptions options;
    options.rate_limit = true;
    return options;
  }());
  std::atomic<int> inside{0}, max_inside{0};
  backend.execute = [&](auto* instance, Requests requests) {
    max_inside = std::max<int>(max_inside, ++inside);
    for (int i = 0; i < 10; ++i) std::this_thread::yield();
    --inside;
    for (auto* request : requests) test::AnswerIdentity(instance, request);
    return Status::Ok();
  };
  const auto model = Load(InstancesConfig(R"(, "instance_group": [{"kind": "KIND_CPU", "count": 3,
    "rate_limiter": {"resources": [{"name": "R", "count": 1}]}}])"));
  ASSERT_TRUE(model.ok()) << model.status().message();
  for (int i = 0; i < 30; ++i) Send(*model);
  EXPECT_EQ(client_.WaitFor(30).size(), 30U);
  EXPECT_EQ(max_inside, 1);
}

TEST_F(ModelInstancesTest, HoldsRateLimiterResourcesOnlyDuringAnExecution) {
  services = std::make_unique<CoreServices>(nullptr, [] {
    CoreOptions options;
    options.rate_limit = true;
    return options;
  }());
  Requests unanswered;  // the backend answers once it has three requests
  backend.execute = [&](auto* instance, Requests requests) {
    unanswered.insert(unanswered.end(), requests.begin(), requests.end());
    if (unanswered.size() < 3) return Status::Ok();
    for (auto* request : std::exchange(unanswered, {})) test::AnswerIdentity(instance, request);
    return Status::Ok();
  };
  const auto model = Load(InstancesConfig(R"(, "instance_group": [{"kind": "KIND_CPU",
    "rate_limiter": {"resources": [{"name": "R", "count": 1}]}}])"));
  ASSERT_TRUE(model.ok()) << model.status().message();
  for (int i = 0; i < 3; ++i) Send(*model);
  EXPECT_EQ(client_.WaitFor(3).size(), 3U);
}

TEST_F(ModelInstancesTest, WarmsUpASequenceModelWithWholeSequences) {
  std::vector<std::string> seen;
  backend.execute = [&](auto* instance, Requests requests) {
    for (auto* request : requests) {
      seen.push_back(StrCat(ReadFloat(request, "START"), " ", ReadFloat(request, "END"), " ",
                            ReadFloat(request, "SI"), " ", NumDims(request, "START"), " ",
                            NumDims(request, "END")));
      test::AnswerIdentity(instance, request);
    }
    return Status::Ok();
  };
  const auto model =
      Load(InstancesConfig(R"(, "sequence_batching": {"direct": {}, "control_input": [
      {"name": "START", "control": [{"kind": "CONTROL_SEQUENCE_START", "fp32_false_true": [0, 1]}]},
      {"name": "END", "control": [{"kind": "CONTROL_SEQUENCE_END", "fp32_false_true": [0, 1]}]}],
    "state": [{"input_name": "SI", "output_name": "SO", "data_type": "TYPE_FP32", "dims": [1]}]},
    "model_warmup": [{"name": "w", "batch_size": 2, "count": 2, "inputs": {
      "IN": {"data_type": "TYPE_FP32", "dims": [4], "zero_data": true},
      "END": {"data_type": "TYPE_FP32", "dims": [1], "zero_data": true}}}])"));
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(seen, std::vector<std::string>(4, "1 0 0 2 2")) << "the sample overrides END";
  EXPECT_EQ((*model)->num_inflight(), 0U);
}

TEST_F(ModelInstancesTest, BatchingLibraryClosesBatches) {
  const TestFolder parent;
  const std::string folder = parent.path().string();
  std::filesystem::create_directory(folder + "/lib");
  std::filesystem::copy(NEREID_TEST_BATCHERS "/batch_of_three.so", folder + "/lib/three.so");
  const auto config = [](const char* path) {
    return InstancesConfig(StrCat(R"(, "dynamic_batching": {}, "parameters": {
      "TRITON_BATCH_STRATEGY_PATH": {"string_value": ")",
                                  path,
                                  R"("}}, "instance_group": [{"kind": "KIND_CPU", "count": 1}])"));
  };
  std::mutex gate;
  gate.lock();
  std::vector<size_t> sizes;
  backend.execute = [&](auto* instance, Requests requests) {
    {
      std::lock_guard wait(gate);
      sizes.push_back(requests.size());
    }
    for (auto* request : requests) test::AnswerIdentity(instance, request);
    return Status::Ok();
  };
  {
    const auto model = Load(config("lib/three.so"), folder);
    ASSERT_TRUE(model.ok()) << model.status().message();
    const size_t calls = backend.Calls().size();
    Send(*model);
    while (backend.Calls().size() == calls) std::this_thread::yield();
    for (int i = 0; i < 7; ++i) Send(*model);
    gate.unlock();
    EXPECT_EQ(client_.WaitFor(8).size(), 8U);
    EXPECT_EQ(sizes, (std::vector<size_t>{1, 3, 3, 1}));
  }
  EXPECT_NE(Load(config("lib/none.so"), folder).status().message().find("not found: lib/none.so"),
            std::string::npos);
  EXPECT_NE(Load(config("../three.so"), folder).status().message().find("not found: ../three.so"),
            std::string::npos);
  requests_.clear();
}

}  // namespace
}  // namespace nereid::core
