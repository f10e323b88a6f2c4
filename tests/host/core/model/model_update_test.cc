// Updates of instances while a model serves, CPU binding of instance threads, and DEVICE_BLOCKING
// backends.
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <set>
#include <thread>

#include "base/host_binding.h"
#include "host/core/config/config_loader.h"
#include "host/core/handle/error.h"
#include "host/core/model/instance_thread.h"
#include "host/core/scheduling/fifo_scheduler.h"
#include "tests/host/core/model/serving_fixture.h"

namespace nereid::core {
namespace {

using test::kEnd;
using test::kStart;
using test::NameOf;
using Requests = std::vector<TRITONBACKEND_Request*>;

std::string UpdateConfig(const std::string& groups, const std::string& more = "") {
  return StrCat(R"({"backend": "fake", "max_batch_size": 1,
  "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [-1]}],
  "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]}],
  "instance_group": [)",
                groups, "]", more, "}");
}

std::string Cpu(int count, const std::string& more = "") {
  return StrCat(R"({"name": "g", "kind": "KIND_CPU", "count": )", count, more, "}");
}

// Blocks callers until `count` of them have arrived.
class Barrier {
 public:
  explicit Barrier(int count) : num_missing_(count) {}
  bool ArriveAndWait() {
    std::unique_lock lock(mutex_);
    if (--num_missing_ == 0) complete_.notify_all();
    return complete_.wait_for(lock, std::chrono::seconds(60), [this] { return num_missing_ <= 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable complete_;
  int num_missing_;
};

bool Eventually(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

class ModelUpdateTest : public test::ServingFixture {
 protected:
  Status Update(const std::string& json) {
    NEREID_ASSIGN_OR_RETURN(const ModelConfig config, config::ReadModelConfig({"m", "", "", json}));
    return model_->UpdateInstances(config);
  }
  int64_t NumCalls(const std::string& call) {
    const auto calls = backend.Calls();
    return std::count(calls.begin(), calls.end(), call);
  }
  // Executes `count` requests, which must run concurrently; returns the names of the instances.
  std::set<std::string> ExecutingInstances(int count) {
    Barrier barrier(count);
    std::mutex mutex;
    std::set<std::string> names;
    backend.execute = [&](auto* instance, Requests requests) {
      EXPECT_TRUE(barrier.ArriveAndWait());
      {
        std::lock_guard lock(mutex);
        names.insert(NameOf(instance));
      }
      for (auto* request : requests) test::AnswerIdentity(instance, request);
      return Status::Ok();
    };
    for (int i = 0; i < count; ++i) SendOne();
    num_sent_ += count;
    EXPECT_EQ(client_.WaitFor(num_sent_).size(), num_sent_);
    return names;
  }

  size_t num_sent_ = 0;
};

TEST_F(ModelUpdateTest, AddsAndRemovesInstancesAndKeepsTheOthers) {
  for (const char* scheduler : {"", R"(, "dynamic_batching": {})"}) {
    const int64_t before = NumCalls("instance_finalize");
    const int64_t num_initialized = NumCalls("instance_initialize g_0");
    Start(UpdateConfig(Cpu(1), scheduler));
    EXPECT_EQ(ExecutingInstances(1), std::set<std::string>{"g_0"});
    ASSERT_TRUE(Update(UpdateConfig(Cpu(3), scheduler)).ok());
    EXPECT_EQ(ExecutingInstances(3), (std::set<std::string>{"g_0", "g_1", "g_2"}));
    EXPECT_NE(model_->ConfigJson().find(R"("count":3)"), std::string::npos);
    ASSERT_TRUE(Update(UpdateConfig(Cpu(1), scheduler)).ok());
    EXPECT_EQ(NumCalls("instance_finalize"), before + 2)
        << "the update does not wait for their end";
    EXPECT_EQ(ExecutingInstances(1), std::set<std::string>{"g_0"});
    EXPECT_EQ(NumCalls("instance_initialize g_0"), num_initialized + 1)
        << "it was not created again";
    EXPECT_TRUE(model_->CheckReady().ok());
    End();
  }
  EXPECT_EQ(NumCalls("model_initialize"), 2);
}

TEST_F(ModelUpdateTest, ChangesNothingWhenAnInstanceFailsToInitialise) {
  Start(UpdateConfig(Cpu(1)));
  backend.instance_initialize = [](auto* instance) {
    return NameOf(instance) == "g_2" ? UnavailableError("no room for ", NameOf(instance))
                                     : Status::Ok();
  };
  EXPECT_EQ(Update(UpdateConfig(Cpu(3))).message(), "no room for g_2");
  EXPECT_NE(model_->ConfigJson().find(R"("count":1)"), std::string::npos);
  EXPECT_EQ(NumCalls("instance_finalize"), 2) << "g_1 and g_2";
  EXPECT_EQ(ExecutingInstances(1), std::set<std::string>{"g_0"});
}

TEST_F(ModelUpdateTest, ServesWithAnInstanceOnlyAfterItsWarmUpSucceeded) {
  const std::string warmup =
      R"(, "model_warmup": [{"name": "w", "batch_size": 1,
      "inputs": {"IN": {"data_type": "TYPE_FP32", "dims": [1], "zero_data": true}}}])";
  Start(UpdateConfig(Cpu(1), warmup));
  backend.execute = [&](auto* instance, Requests requests) {
    if (NameOf(instance) == "g_0") {
      for (auto* request : requests) test::AnswerIdentity(instance, request);
      return Status::Ok();
    }
    // While the new instance warms up, the other one executes the requests.
    for (int i = 0; i < 4; ++i) SendOne();
    EXPECT_EQ(client_.WaitFor(4).size(), 4U);
    return InternalError("too cold");
  };
  const Status status = Update(UpdateConfig(Cpu(2), warmup));
  EXPECT_NE(status.message().find("too cold"), std::string::npos) << status.message();
  EXPECT_EQ(NumCalls("instance_finalize"), 1);
  num_sent_ = 4;
  EXPECT_EQ(ExecutingInstances(1), std::set<std::string>{"g_0"});
  backend.execute = nullptr;
  EXPECT_TRUE(Update(UpdateConfig(Cpu(2), warmup)).ok());
  EXPECT_EQ(ExecutingInstances(2).size(), 2U);
}

TEST_F(ModelUpdateTest, FinalizesARemovedInstanceAfterItsLastRequestIsReleased) {
  std::mutex mutex;
  std::vector<std::pair<TRITONBACKEND_ModelInstance*, TRITONBACKEND_Request*>> num_initialized;
  Start(UpdateConfig(StrCat(R"({"name": "a", "kind": "KIND_CPU", "count": 1})")));
  backend.execute = [&](auto* instance, Requests requests) {
    std::lock_guard lock(mutex);
    num_initialized.emplace_back(instance, requests[0]);
    return Status::Ok();
  };
  SendOne();
  ASSERT_TRUE(Eventually([&] {
    std::lock_guard lock(mutex);
    return num_initialized.size() == 1;
  }));
  ASSERT_TRUE(Update(UpdateConfig(R"({"name": "b", "kind": "KIND_CPU", "count": 1})")).ok());
  WaitForEnds();  // no reaper thread waits for the instance
  EXPECT_EQ(NumCalls("instance_finalize"), 0);
  test::AnswerIdentity(num_initialized[0].first, num_initialized[0].second);
  EXPECT_TRUE(Eventually([&] { return NumCalls("instance_finalize") == 1; }));
  EXPECT_EQ(client_.WaitFor(1).size(), 1U);
}

TEST_F(ModelUpdateTest, KeepsOpenSequencesOnTheirInstance) {
  const std::string sequences = R"(, "sequence_batching": {"oldest": {"max_candidate_sequences": 1},
    "max_sequence_idle_microseconds": 3600000000})";
  std::mutex mutex;
  std::map<uint64_t, std::set<std::string>> instances_of_sequence;
  backend.execute = [&](auto* instance, Requests requests) {
    for (auto* request : requests) {
      uint64_t id = 0;
      EXPECT_EQ(TRITONBACKEND_RequestCorrelationId(request, &id), nullptr);
      {
        std::lock_guard lock(mutex);
        instances_of_sequence[id].insert(NameOf(instance));
      }
      test::AnswerIdentity(instance, request);
    }
    return Status::Ok();
  };
  Start(UpdateConfig(Cpu(2), sequences));
  SendOne(1, kStart);
  SendOne(2, kStart);
  EXPECT_EQ(client_.WaitFor(2).size(), 2U);
  ASSERT_TRUE(Update(UpdateConfig(Cpu(1), sequences)).ok());
  SendOne(3, kStart | kEnd);  // waits for the remaining slot
  EXPECT_EQ(NumCalls("instance_finalize"), 0);
  SendOne(1, kEnd);
  SendOne(2, kEnd);
  EXPECT_EQ(client_.WaitFor(5).size(), 5U);
  EXPECT_TRUE(Eventually([&] { return NumCalls("instance_finalize") == 1; }));
  SendOne(4, kStart | kEnd);
  EXPECT_EQ(client_.WaitFor(6).size(), 6U);
  ASSERT_TRUE(Update(UpdateConfig(Cpu(3), sequences)).ok());
  for (const uint64_t id : {5, 6, 7}) SendOne(id, kStart);
  EXPECT_EQ(client_.WaitFor(9).size(), 9U);
  std::lock_guard lock(mutex);
  EXPECT_EQ(instances_of_sequence[1], std::set<std::string>{"g_0"});
  EXPECT_EQ(instances_of_sequence[2], std::set<std::string>{"g_1"});
  EXPECT_EQ(instances_of_sequence[3], std::set<std::string>{"g_0"});
  EXPECT_EQ(instances_of_sequence[4], std::set<std::string>{"g_0"});
  std::set<std::string> all;
  for (const uint64_t id : {5, 6, 7})
    all.insert(instances_of_sequence[id].begin(), instances_of_sequence[id].end());
  EXPECT_EQ(all, (std::set<std::string>{"g_0", "g_1", "g_2"}));
}

TEST_F(ModelUpdateTest, LosesNoRequestWhileInstancesChange) {
  Start(UpdateConfig(Cpu(2), R"(, "dynamic_batching": {})"));
  constexpr size_t kNumRequests = 200;
  std::thread sender([&] {
    for (size_t i = 0; i < kNumRequests; ++i) SendOne();
  });
  for (const int count : {4, 1, 3, 2, 5, 1}) {
    EXPECT_TRUE(Update(UpdateConfig(Cpu(count), R"(, "dynamic_batching": {})")).ok());
  }
  sender.join();
  const auto answers = client_.WaitFor(kNumRequests);
  EXPECT_EQ(answers.size(), kNumRequests);
  for (const auto& answer : answers) EXPECT_TRUE(answer.error.ok()) << answer.error.message();
}

// Returns the cores that the calling thread may use.
std::vector<int> CurrentThreadCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

TEST_F(ModelUpdateTest, BindsInstanceThreadsByHostPolicy) {
  const std::vector<int> load_thread_cores = CurrentThreadCores();
  ASSERT_FALSE(load_thread_cores.empty());
  const int core = load_thread_cores.back();
  services = std::make_unique<CoreServices>(nullptr, [core] {
    CoreOptions options;
    options.host_policies["narrow"] = {{"cpu-cores", std::to_string(core)}};
    return options;
  }());
  std::mutex mutex;
  std::map<std::string, std::vector<int>> cores;
  const auto record = [&](auto* instance, const char* what) {
    std::lock_guard lock(mutex);
    cores[NameOf(instance) + what] = CurrentThreadCores();
  };
  backend.instance_initialize = [&](auto* instance) {
    record(instance, " initialised");
    return Status::Ok();
  };
  Barrier barrier(2);
  backend.execute = [&](auto* instance, Requests requests) {
    EXPECT_TRUE(barrier.ArriveAndWait());
    record(instance, " runs");
    for (auto* request : requests) test::AnswerIdentity(instance, request);
    return Status::Ok();
  };
  Start(UpdateConfig(R"({"name": "bound", "kind": "KIND_CPU", "count": 1, "host_policy": "narrow"},
                  {"name": "free", "kind": "KIND_CPU", "count": 1})"));
  EXPECT_EQ(CurrentThreadCores(), load_thread_cores) << "the load thread is unchanged";
  SendOne();
  SendOne();
  EXPECT_EQ(client_.WaitFor(2).size(), 2U);
  std::lock_guard lock(mutex);
  EXPECT_EQ(cores["bound_0 initialised"], std::vector<int>{core});
  EXPECT_EQ(cores["bound_0 runs"], std::vector<int>{core});
  EXPECT_EQ(cores["free_0 initialised"], load_thread_cores);
  EXPECT_EQ(cores["free_0 runs"], load_thread_cores);
}

TEST_F(ModelUpdateTest, InstanceThreadsDoNotInheritTheSendersCpuBinding) {
  const std::vector<int> load_thread_cores = CurrentThreadCores();
  std::vector<int> cores;
  backend.execute = [&](auto* instance, Requests requests) {
    cores = CurrentThreadCores();
    for (auto* request : requests) test::AnswerIdentity(instance, request);
    return Status::Ok();
  };
  Start(UpdateConfig(Cpu(1)));
  std::thread([&] {
    ASSERT_TRUE(BindThread({"narrow", {load_thread_cores.back()}, -1}).ok());
    SendOne();
  }).join();
  EXPECT_EQ(client_.WaitFor(1).size(), 1U);
  End();
  EXPECT_EQ(cores, load_thread_cores);
}

TEST_F(ModelUpdateTest, SerializesExecutionsThatShareADeviceMutex) {
  Start(UpdateConfig(Cpu(1)));
  std::atomic<int> inside{0}, max_inside{0};
  backend.execute = [&](auto* instance, Requests requests) {
    max_inside = std::max<int>(max_inside, ++inside);
    for (int i = 0; i < 10; ++i) std::this_thread::yield();
    --inside;
    for (auto* request : requests) test::AnswerIdentity(instance, request);
    return Status::Ok();
  };
  const auto device_mutex = std::make_shared<std::mutex>();
  FifoScheduler scheduler(/*num_instances=*/2, &services->timeout_thread);
  std::deque<Instance> instances;
  std::deque<InstanceThread> threads;
  for (int i = 0; i < 3; ++i) {
    InstanceSpec spec;
    spec.name = StrCat("i", i);
    instances.emplace_back(spec, model_->backend(), ToHandle(model_.get()),
                           &model_->statistics().AddShard());
    threads.emplace_back(
        &instances.back(), i, &scheduler, nullptr, device_mutex, [] { return Status::Ok(); },
        std::shared_future<bool>(), [] {});
    ASSERT_TRUE(threads.back().Start().ok());
  }
  for (int i = 0; i < 40; ++i) {
    InferRequest* const request = Make({1, 1});
    ASSERT_TRUE(request->Prepare().ok());
    model_->OnAccepted();
    ASSERT_TRUE(scheduler.Enqueue(request).ok());
  }
  EXPECT_EQ(client_.WaitFor(40).size(), 40U);
  EXPECT_EQ(max_inside, 1);
  scheduler.Stop();
}

}  // namespace
}  // namespace nereid::core
