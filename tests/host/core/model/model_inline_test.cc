// Inline execution: models whose backend exports the inline entry point execute requests on the
// calling thread.
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

#include "host/core/config/config_loader.h"
#include "tests/host/core/model/serving_fixture.h"

namespace nereid::core {
namespace {

using Requests = std::vector<TRITONBACKEND_Request*>;

std::string InlineConfig(int num_instances, const std::string& more = "") {
  return StrCat(R"({"backend": "fake", "max_batch_size": 4,
  "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [-1]}],
  "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]}],
  "instance_group": [{"kind": "KIND_CPU", "count": )",
                num_instances, "}]", more, "}");
}

class ModelInlineTest : public test::ServingFixture {
 protected:
  void Start(const std::string& json) {
    backend.executes_inline = true;
    backend.execute = [this](auto* instance, Requests requests) {
      {
        std::lock_guard lock(mutex_);
        threads_.insert(std::this_thread::get_id());
      }
      for (auto* request : requests) test::AnswerIdentity(instance, request);
      return Status::Ok();
    };
    ServingFixture::Start(json);
  }
  InferRequest* Make() {
    InferRequest* const request = ServingFixture::Make({1, 2});
    EXPECT_TRUE(request->Prepare().ok());
    return request;
  }
  Status Send() { return model_->Enqueue(Make()); }

  std::mutex mutex_;
  std::set<std::thread::id> threads_;  // threads that called `execute`
};

TEST_F(ModelInlineTest, ExecutesOnTheThreadThatEnqueuesTheRequest) {
  Start(InlineConfig(1));
  ASSERT_TRUE(Send().ok());
  const auto answers = client_.WaitFor(1);
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_TRUE(answers[0].error.ok());
  EXPECT_EQ(threads_, std::set{std::this_thread::get_id()});
  EXPECT_EQ(model_->num_inflight(), 0U);
}

TEST_F(ModelInlineTest, ServesSeveralThreadsAtOnce) {
  Start(InlineConfig(1));
  std::condition_variable all_inside;
  int num_inside = 0;
  backend.execute = [&](auto* instance, Requests requests) {
    std::unique_lock lock(mutex_);
    ++num_inside;
    all_inside.notify_all();
    EXPECT_TRUE(
        all_inside.wait_for(lock, std::chrono::seconds(60), [&] { return num_inside == 3; }));
    lock.unlock();
    for (auto* request : requests) test::AnswerIdentity(instance, request);
    return Status::Ok();
  };
  std::vector<InferRequest*> requests{Make(), Make(), Make()};
  std::vector<std::thread> threads;
  for (InferRequest* request : requests) {
    threads.emplace_back([this, request] { EXPECT_TRUE(model_->Enqueue(request).ok()); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(client_.WaitFor(3).size(), 3U);
}

TEST_F(ModelInlineTest, FailsTheRequestWithTheBackendsError) {
  Start(InlineConfig(1));
  backend.execute = [](auto*, Requests) { return UnavailableError("no step is ready"); };
  ASSERT_TRUE(Send().ok());
  const auto answers = client_.WaitFor(1);
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].error.message(), "no step is ready");
  EXPECT_EQ(model_->num_inflight(), 0U);
}

TEST_F(ModelInlineTest, ServesWhileItsInstancesChange) {
  Start(InlineConfig(1));
  const auto other = config::ReadModelConfig({"m", "", "", InlineConfig(2)});
  ASSERT_TRUE(other.ok()) << other.status().message();
  std::atomic<bool> done = false;
  std::thread updates([&] {
    const auto one = config::ReadModelConfig({"m", "", "", InlineConfig(1)});
    for (int i = 0; i < 10; ++i) {
      EXPECT_TRUE(model_->UpdateInstances(i % 2 == 0 ? *other : *one).ok());
    }
    done = true;
  });
  size_t num_sent = 0;
  while (!done || num_sent < 100) {
    ASSERT_TRUE(Send().ok());
    ++num_sent;
  }
  updates.join();
  EXPECT_EQ(client_.WaitFor(num_sent).size(), num_sent);
}

TEST_F(ModelInlineTest, BatchesOnInstanceThreads) {
  Start(InlineConfig(1, R"(, "dynamic_batching": {})"));
  ASSERT_TRUE(Send().ok());
  EXPECT_EQ(client_.WaitFor(1).size(), 1U);
  EXPECT_EQ(threads_.count(std::this_thread::get_id()), 0U);
}

}  // namespace
}  // namespace nereid::core
