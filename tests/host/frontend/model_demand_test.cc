// Tests of models that are loaded when a request names them.
#include "host/frontend/model_demand.h"

#include <gtest/gtest.h>

#include <future>
#include <set>

namespace nereid {
namespace {

// Remembers the loads and unloads that it was asked for.
class FakeControl final : public ModelControl {
 public:
  struct State {
    std::mutex mutex;
    std::set<std::string> ready, broken, used;
    std::vector<std::string> changes;
  };
  explicit FakeControl(State& state) : state_(state) {}

  bool IsReady(const std::string& name) const override {
    const std::scoped_lock lock(state_.mutex);
    return state_.ready.contains(name);
  }
  bool WasUsedWithin(const std::string& name, std::chrono::seconds) const override {
    const std::scoped_lock lock(state_.mutex);
    return state_.used.contains(name);
  }
  Status Load(const std::string& name) override {
    const std::scoped_lock lock(state_.mutex);
    state_.changes.push_back("+" + name);
    if (state_.broken.contains(name)) return InternalError("'", name, "' is broken");
    state_.ready.insert(name);
    return Status::Ok();
  }
  Status Unload(const std::string& name) override {
    const std::scoped_lock lock(state_.mutex);
    state_.changes.push_back("-" + name);
    state_.ready.erase(name);
    return Status::Ok();
  }

 private:
  State& state_;
};

class ModelDemandTest : public testing::Test {
 protected:
  void Start(uint64_t max_bytes, std::chrono::seconds max_idle = std::chrono::seconds(0)) {
    demand_ = std::make_unique<ModelDemand>(
        ModelDemandOptions{{{"a", 6}, {"b", 5}, {"c", 4}}, max_bytes, max_idle},
        std::make_unique<FakeControl>(state_));
  }

  using Promise = std::promise<Result<ModelDemand::Lease>>;
  using Future = std::future<Result<ModelDemand::Lease>>;

  // The lease, at once or later.
  Future Use(const std::string& name) {
    auto promise = std::make_shared<Promise>();
    Future future = promise->get_future();
    Result<ModelDemand::Lease> lease = demand_->Use(
        name,
        [promise](Result<ModelDemand::Lease> later) { promise->set_value(std::move(later)); });
    if (!lease.ok() || *lease != nullptr) promise->set_value(std::move(lease));
    return future;
  }
  ModelDemand::Lease Get(const std::string& name) {
    Result<ModelDemand::Lease> lease = Use(name).get();
    EXPECT_TRUE(lease.ok()) << lease.status().message();
    return lease.ok() ? *lease : nullptr;
  }
  std::vector<std::string> Changes() {
    const std::scoped_lock lock(state_.mutex);
    return state_.changes;
  }
  static bool IsPending(const Future& future) {
    return future.wait_for(std::chrono::milliseconds(0)) != std::future_status::ready;
  }

  FakeControl::State state_;
  std::unique_ptr<ModelDemand> demand_;
};

TEST_F(ModelDemandTest, AModelIsLoadedWhenARequestNamesIt) {
  Start(0);
  EXPECT_TRUE(demand_->Knows("a"));
  EXPECT_FALSE(demand_->Knows("d"));
  EXPECT_NE(Get("a"), nullptr);
  EXPECT_NE(Get("a"), nullptr);
  EXPECT_NE(Get("b"), nullptr);
  EXPECT_EQ(Changes(), (std::vector<std::string>{"+a", "+b"}));
}

TEST_F(ModelDemandTest, TheModelThatWasUsedLongestAgoLeaves) {
  Start(11);
  Get("a");
  Get("b");
  Get("a");
  Get("c");  // 6 + 5 + 4 exceed 11
  EXPECT_EQ(Changes(), (std::vector<std::string>{"+a", "+b", "-b", "+c"}));
}

TEST_F(ModelDemandTest, AModelAnswersItsRequestsBeforeItLeaves) {
  Start(6);
  ModelDemand::Lease in_use = Get("a");
  Future b = Use("b");
  // Once `a` has to leave, further requests for it wait. Otherwise `b` might never be loaded.
  Future a = Use("a");
  while (!IsPending(a)) a = Use("a");
  EXPECT_TRUE(IsPending(b));
  in_use.reset();
  EXPECT_TRUE(b.get().ok());  // the result releases its lease
  EXPECT_TRUE(a.get().ok());
  EXPECT_EQ(Changes(), (std::vector<std::string>{"+a", "-a", "+b", "-b", "+a"}));
}

TEST_F(ModelDemandTest, AnotherModelWithoutRequestsLeavesFirst) {
  Start(11);
  const ModelDemand::Lease in_use = Get("a");
  Get("b");
  Get("c");
  EXPECT_EQ(Changes(), (std::vector<std::string>{"+a", "+b", "-b", "+c"}));
}

TEST_F(ModelDemandTest, AFailedLoadIsReportedToThoseWhoWait) {
  Start(0);
  state_.broken = {"b"};
  const Result<ModelDemand::Lease> lease = Use("b").get();
  ASSERT_FALSE(lease.ok());
  EXPECT_EQ(lease.status().message(), "'b' is broken");
  EXPECT_NE(Get("a"), nullptr);
}

TEST_F(ModelDemandTest, AStopEndsRequestsThatWaitAndRefusesLaterOnes) {
  Start(6);
  ModelDemand::Lease in_use = Get("a");
  Future waiting = Use("b");
  demand_->Stop();
  EXPECT_EQ(waiting.get().status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(Use("a").get().status().code(), StatusCode::kUnavailable);
  in_use.reset();
}

TEST_F(ModelDemandTest, AModelThatNeverFitsIsRefused) {
  Start(5);
  const Result<ModelDemand::Lease> lease = Use("a").get();
  ASSERT_FALSE(lease.ok());
  EXPECT_EQ(lease.status().message(), "model 'a' needs 6 bytes; the memory budget is 5 bytes");
}

TEST_F(ModelDemandTest, AnIdleModelLeavesUnlessItIsUsedOverAnotherProtocol) {
  state_.used = {"b"};
  Start(0, std::chrono::seconds(1));
  Get("a");
  Get("b");
  const ModelDemand::Lease in_use = Get("c");
  while (Changes().size() < 4) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(Changes(), (std::vector<std::string>{"+a", "+b", "+c", "-a"}));
}

}  // namespace
}  // namespace nereid
