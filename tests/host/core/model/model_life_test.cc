// Loading and destruction of models: the order of entry points, and the cleanup after a failure.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <thread>

#include "host/core/handle/error.h"
#include "tests/host/core/model/fake_backend.h"
#include "tests/host/core/support/test_client.h"

namespace nereid::core {
namespace {

using Calls = std::vector<std::string>;

constexpr char kTensors[] =
    R"("input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [-1]}],
       "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]}])";

std::string LifeConfig(const std::string& more = "") {
  return StrCat(R"({"backend": "fake", )", kTensors, more, "}");
}

class ModelLifeTest : public testing::Test, public test::ModelFixture {
 protected:
  Calls FailToLoad(const std::string& json, const std::string& reason) {
    const auto model = Load(json);
    EXPECT_FALSE(model.ok());
    EXPECT_NE(model.status().message().find(reason), std::string::npos) << model.status().message();
    WaitForEnds();
    return backend.Calls();
  }
};

TEST_F(ModelLifeTest, CallsEntryPointsInOrder) {
  auto model = Load(LifeConfig(R"(, "instance_group": [{"name": "g", "count": 2}])"));
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(backend.Calls(),
            (Calls{"model_initialize", "instance_initialize g_0", "instance_initialize g_1"}));
  EXPECT_EQ(num_destroyed, 0);
  model->reset();
  WaitForEnds();
  EXPECT_EQ(backend.Calls(),
            (Calls{"model_initialize", "instance_initialize g_0", "instance_initialize g_1",
                   "instance_finalize", "instance_finalize", "model_finalize"}));
  EXPECT_EQ(num_destroyed, 1);
}

TEST_F(ModelLifeTest, FinalisesAModelThatFailedToInitialise) {
  backend.model_initialize = [](auto*) { return UnavailableError("no weights"); };
  EXPECT_EQ(FailToLoad(LifeConfig(), "no weights"), (Calls{"model_initialize", "model_finalize"}));
  EXPECT_EQ(num_destroyed, 1);
}

TEST_F(ModelLifeTest, FinalisesInstancesThatFailedToInitialise) {
  backend.instance_initialize = [](auto*) { return InternalError("out of memory"); };
  EXPECT_EQ(
      FailToLoad(LifeConfig(R"(, "instance_group": [{"name": "g", "count": 3}])"), "out of memory"),
      (Calls{"model_initialize", "instance_initialize g_0", "instance_finalize",
             "model_finalize"}));
}

TEST_F(ModelLifeTest, SurvivesABackendThatThrows) {
  backend.model_initialize = [](auto*) -> Status { throw std::runtime_error("boom"); };
  FailToLoad(LifeConfig(), "boom");
}

// Checks how many of two instances are initialised concurrently.
class ParallelLoadTest : public ModelLifeTest {
 protected:
  ~ParallelLoadTest() override { unsetenv("TRITON_PARALLEL_INSTANCE_LOADING"); }

  // Each initialisation waits for `expected` concurrent ones; the load fails if there are fewer.
  Status LoadTwo(int expected) {
    std::mutex mutex;
    std::condition_variable all_inside;
    int num_inside = 0;
    std::set<std::thread::id> threads;
    backend.instance_initialize = [&](auto*) {
      std::unique_lock lock(mutex);
      ++num_inside;
      threads.insert(std::this_thread::get_id());
      all_inside.notify_all();
      const bool together = all_inside.wait_for(lock, std::chrono::seconds(60),
                                                [&] { return num_inside >= expected; });
      return together ? Status::Ok() : InternalError("alone");
    };
    const auto model = Load(LifeConfig(R"(, "instance_group": [{"name": "g", "count": 2}])"));
    EXPECT_EQ(threads.size(), static_cast<size_t>(expected));
    return model.status();
  }
};

TEST_F(ParallelLoadTest, InitialisesInstancesAtTheSameTimeWhereTheBackendAllows) {
  backend.parallel_instances = true;
  const Status status = LoadTwo(2);
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST_F(ParallelLoadTest, EnvironmentVariableOverridesTheBackend) {
  ASSERT_EQ(setenv("TRITON_PARALLEL_INSTANCE_LOADING", "1", 1), 0);
  EXPECT_TRUE(LoadTwo(2).ok());
  backend.parallel_instances = true;
  ASSERT_EQ(setenv("TRITON_PARALLEL_INSTANCE_LOADING", "0", 1), 0);
  EXPECT_TRUE(LoadTwo(1).ok());
}

TEST_F(ParallelLoadTest, IgnoresAnEmptyEnvironmentVariable) {
  ASSERT_EQ(setenv("TRITON_PARALLEL_INSTANCE_LOADING", "", 1), 0);
  backend.parallel_instances = true;
  EXPECT_TRUE(LoadTwo(2).ok());
}

TEST_F(ModelLifeTest, UsesTheConfigurationThatABackendCompletes) {
  backend.model_initialize = [](TRITONBACKEND_Model* model) {
    TRITONSERVER_Message* message = nullptr;
    const std::string json = StrCat(R"({"max_batch_size": 4, )", kTensors,
                                    R"(, "model_transaction_policy": {"decoupled": true}})");
    EXPECT_EQ(TRITONSERVER_MessageNewFromSerializedJson(&message, json.data(), json.size()),
              nullptr);
    Status status = TakeError(TRITONBACKEND_ModelSetConfig(model, 1, message));
    EXPECT_EQ(TRITONSERVER_MessageDelete(message), nullptr);
    return status;
  };
  const auto model = Load(R"({"backend": "fake"})");
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ((*model)->schema().max_batch_size, 4);
  EXPECT_TRUE((*model)->schema().decoupled);
  EXPECT_EQ((*model)->schema().inputs.size(), 1U);
  EXPECT_EQ((*model)->SetConfig("{}").code(), StatusCode::kUnsupported);
}

TEST_F(ModelLifeTest, RefusesGpusThatDoNotExist) {
  FailToLoad(LifeConfig(R"(, "instance_group": [{"kind": "KIND_GPU", "gpus": [77]}])"), "77");
}

TEST_F(ModelLifeTest, AsksEveryInstanceWhetherItIsReady) {
  const auto model = Load(LifeConfig());
  ASSERT_TRUE(model.ok());
  EXPECT_TRUE((*model)->CheckReady().ok());
  backend.instance_ready = [](auto*) { return UnavailableError("reloading"); };
  EXPECT_EQ((*model)->CheckReady().message(), "reloading");
}

TEST_F(ModelLifeTest, WarmsEveryInstanceUpBeforeItServes) {
  const auto model = Load(LifeConfig(R"(, "instance_group": [{"name": "g", "count": 2}],
    "model_warmup": [{"name": "w", "batch_size": 1, "count": 3,
      "inputs": {"IN": {"data_type": "TYPE_FP32", "dims": [4], "random_data": true}}}])"));
  ASSERT_TRUE(model.ok()) << model.status().message();
  const Calls calls = backend.Calls();
  EXPECT_EQ(std::count(calls.begin(), calls.end(), "execute 1"), 6);
  EXPECT_EQ((*model)->num_inflight(), 0U);
}

TEST_F(ModelLifeTest, SkipsWarmUpSamplesWithoutRequests) {
  const auto model = Load(LifeConfig(R"(, "model_warmup": [{"name": "w",
      "inputs": {"IN": {"data_type": "TYPE_FP32", "dims": [-1], "random_data": true}}}])"));
  ASSERT_TRUE(model.ok()) << model.status().message();
  const Calls calls = backend.Calls();
  EXPECT_EQ(std::count(calls.begin(), calls.end(), "execute 1"), 0);
}

TEST_F(ModelLifeTest, FailsToLoadWhenWarmUpFails) {
  backend.execute = [](auto*, auto) { return InternalError("bad kernel"); };
  FailToLoad(LifeConfig(R"(, "model_warmup": [{"name": "w", "batch_size": 1,
      "inputs": {"IN": {"data_type": "TYPE_FP32", "dims": [4], "zero_data": true}}}])"),
             "instance 'm_0': failed to run warmup sample 'w': bad kernel");
  FailToLoad(LifeConfig(R"(, "model_warmup": [{"name": "w", "batch_size": 1,
      "inputs": {"IN": {"data_type": "TYPE_INT8", "dims": [4], "zero_data": true}}}])"),
             "data-type is 'INT8'");
  FailToLoad(LifeConfig(R"(, "model_warmup": [{"name": "w", "batch_size": 1,
      "inputs": {"IN": {"data_type": "TYPE_FP32", "dims": [4], "input_data_file": "none"}}}])"),
             "cannot open");
}

TEST_F(ModelLifeTest, RefusesInvalidWarmUpSamples) {
  const auto sample = [](const char* batch_size, const char* input) {
    return LifeConfig(StrCat(R"(, "max_batch_size": 4,
                            "model_warmup": [{"name": "w", "batch_size": )",
                             batch_size, R"(, "inputs": {"IN": {)", input,
                             R"(, "random_data": true}}}])"));
  };
  FailToLoad(sample("1", R"("data_type": "TYPE_FP32", "dims": [-1])"),
             "warmup setting expects all variable-size dimensions are specified for input 'IN'");
  FailToLoad(sample("1", R"("data_type": "TYPE_FP32", "dims": [1152921504606846976])"),
             "input 'IN': has 1152921504606846976 elements");
  FailToLoad(sample("1", R"("dims": [4])"), "input 'IN': has no data_type");
  FailToLoad(sample("1000", R"("data_type": "TYPE_FP32", "dims": [4])"),
             "batch size 1000, max allowed is 4");
}

TEST_F(ModelLifeTest, LastReferenceMayBeDroppedOnAnInstanceThread) {
  for (int round = 0; round < 20; ++round) {
    test::TestClient client;
    {
      auto model = Load(LifeConfig());
      ASSERT_TRUE(model.ok());
      // The request is released and deleted on the instance thread, which drops the last reference
      // to the model.
      auto* owner = new test::TestRequest(*model, &client, "r", {1});
      owner->request.set_release_callback(
          [](TRITONSERVER_InferenceRequest*, uint32_t, void* self) {
            delete static_cast<test::TestRequest*>(self);
          },
          owner);
      ASSERT_TRUE(owner->request.Prepare().ok());
      ASSERT_TRUE((*model)->Enqueue(&owner->request).ok());
    }
    while (num_destroyed <= round) std::this_thread::yield();
    WaitForEnds();
    EXPECT_EQ(client.answers().size(), 1U);
  }
}

TEST_F(ModelLifeTest, OutlivesRequestsThatTheBackendHasNotReleased) {
  std::vector<TRITONBACKEND_Request*> unreleased;
  std::mutex mutex;
  backend.execute = [&](auto*, std::vector<TRITONBACKEND_Request*> requests) {
    std::lock_guard lock(mutex);
    unreleased.insert(unreleased.end(), requests.begin(), requests.end());
    return Status::Ok();
  };
  test::TestClient client;
  auto model = Load(LifeConfig());
  ASSERT_TRUE(model.ok());
  auto owner = std::make_unique<test::TestRequest>(*model, &client, "r", std::vector<int64_t>{1});
  ASSERT_TRUE(owner->request.Prepare().ok());
  ASSERT_TRUE((*model)->Enqueue(&owner->request).ok());
  while (std::lock_guard(mutex), unreleased.empty()) std::this_thread::yield();
  EXPECT_EQ((*model)->num_inflight(), 1U);
  model->reset();
  WaitForEnds();
  EXPECT_EQ(num_destroyed, 0);
  EXPECT_EQ(TRITONBACKEND_RequestRelease(unreleased[0], TRITONSERVER_REQUEST_RELEASE_ALL), nullptr);
  client.WaitFor(1);
  owner.reset();
  WaitForEnds();
  EXPECT_EQ(num_destroyed, 1);
}

}  // namespace
}  // namespace nereid::core
