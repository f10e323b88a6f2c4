#include "backends/ensemble/request_runner.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <mutex>
#include <new>
#include <thread>

#include "backends/ensemble/cancellation_monitor.h"
#include "tests/backends/ensemble/ensemble_fixture.h"

namespace nereid::ensemble {
namespace {

using Values = std::vector<int64_t>;

// Records what the client received, and says whether it has cancelled. Owned by the test, which
// outlives the runner.
struct ClientLog {
  std::mutex mutex;
  std::vector<Values> responses;
  std::vector<Status> errors;
  int num_final = 0;
  int num_empty_final = 0;
  std::atomic<int> num_released{0};
  std::atomic<bool> is_cancelled{false};
  std::atomic<int> num_failing_polls{0};  // so many questions for is_cancelled find no memory
  CancellationMonitor* monitor = nullptr;
  CancellationMonitor::Entry entry;
};

class FakeClient : public ClientRequest {
 public:
  explicit FakeClient(ClientLog& log) : log_(log) {}
  bool IsCancelled() override {
    if (log_.num_failing_polls > 0) {
      --log_.num_failing_polls;
      throw std::bad_alloc();
    }
    return log_.is_cancelled;
  }
  void Send(const EnsembleResponse& response, bool is_final) override {
    std::lock_guard lock(log_.mutex);
    EXPECT_EQ(log_.num_final, 0);
    log_.responses.push_back(ValuesOf(response.outputs));
    log_.num_final += is_final;
  }
  void SendError(const Status& error) override {
    std::lock_guard lock(log_.mutex);
    EXPECT_EQ(log_.num_final, 0);
    log_.errors.push_back(error);
    ++log_.num_final;
  }
  void SendFinal() override {
    std::lock_guard lock(log_.mutex);
    EXPECT_EQ(log_.num_final, 0);
    ++log_.num_final;
    ++log_.num_empty_final;
  }
  void Release() override {
    if (log_.monitor != nullptr) log_.monitor->Remove(log_.entry);
    EXPECT_EQ(log_.num_final, 1);
    ++log_.num_released;
  }

 private:
  ClientLog& log_;
};

// A model's side of one call, which the test controls.
struct FakeCall : StepCall {
  void Cancel() override { is_cancelled = true; }
  Values inputs;
  std::shared_ptr<StepEvents> events;
  std::atomic<bool> is_cancelled{false};
};

struct ModelsLog {
  FakeCall& At(int step, size_t nth) {
    std::lock_guard lock(mutex);
    return *calls.at(step).at(nth);
  }
  size_t Count(int step) {
    std::lock_guard lock(mutex);
    return calls[step].size();
  }
  void Respond(int step, size_t nth, int64_t value, bool is_final = true) {
    const std::vector<TensorRef> outputs{Value(value)};
    At(step, nth).events->OnResponse(outputs, is_final);
    if (is_final) At(step, nth).events->OnReleased();
  }
  std::mutex mutex;
  std::map<int, std::vector<std::shared_ptr<FakeCall>>> calls;
  Status refuse;  // returned by Start
};

class FakeModels : public StepModels {
 public:
  explicit FakeModels(ModelsLog& log) : log_(log) {}
  Result<std::shared_ptr<StepCall>> Start(const StepRequest& request,
                                          std::shared_ptr<StepEvents> events) override {
    if (!log_.refuse.ok()) return log_.refuse;
    auto call = std::make_shared<FakeCall>();
    call->inputs = ValuesOf({request.inputs.begin(), request.inputs.end()});
    call->events = std::move(events);
    std::lock_guard lock(log_.mutex);
    log_.calls[request.step].push_back(call);
    return std::shared_ptr<StepCall>(call);
  }

 private:
  ModelsLog& log_;
};

const Sketch kSketchOfStream{
    {"A"},
    {"R"},
    {{"split*", {{"IN", "A"}}, {{"OUT", "P"}}}, {"work", {{"IN", "P"}}, {{"OUT", "R"}}}}};

class RequestRunnerTest : public testing::Test {
 protected:
  std::shared_ptr<RequestRunner> Start(const Sketch& sketch, const InflightLimits& limits = {}) {
    auto plan = std::make_shared<const Plan>(Build(sketch).MakePlanFor());
    auto limiter = std::make_shared<InflightLimiter>(sketch.steps.size(), limits);
    auto runner = std::make_shared<RequestRunner>(plan, limiter, fake_models, fake_client);
    if (client.monitor != nullptr) client.monitor->Add(client.entry, runner);
    const std::vector<TensorRef> inputs{Value(1)};
    runner->Begin(inputs);
    return runner;
  }
  void TearDown() override {
    for (auto& [step, calls] : models.calls) {
      for (auto& call : calls) call->events.reset();
    }
  }

  ModelsLog models;
  ClientLog client;
  FakeModels fake_models{models};
  FakeClient fake_client{client};
};

TEST_F(RequestRunnerTest, HandsTensorsFromStepToStepAndReleasesAtTheEnd) {
  std::weak_ptr<RequestRunner> runner = Start(kChain);
  models.Respond(0, 0, 2);
  EXPECT_EQ(models.At(1, 0).inputs, Values{2});
  EXPECT_EQ(client.num_released, 0);
  models.Respond(1, 0, 3);
  EXPECT_EQ(client.responses, (std::vector<Values>{{3}}));
  EXPECT_EQ(client.num_final, 1);
  EXPECT_EQ(client.num_released, 1);
  TearDown();
  EXPECT_TRUE(runner.expired());
}

TEST_F(RequestRunnerTest, ReleasesTheClientOnlyAfterEveryStepHasReleasedItsInputs) {
  Start(kChain);
  models.Respond(0, 0, 2);
  const std::vector<TensorRef> outputs{Value(3)};
  models.At(1, 0).events->OnResponse(outputs, true);
  EXPECT_EQ(client.num_final, 1);
  EXPECT_EQ(client.num_released, 0);
  models.At(1, 0).events->OnReleased();
  EXPECT_EQ(client.num_released, 1);
}

TEST_F(RequestRunnerTest, MarksTheLastResponseFinalWhenTheStreamsEndCameWithIt) {
  Start(kSketchOfStream);
  models.Respond(0, 0, 10, false);
  models.Respond(0, 0, 11, true);
  models.Respond(1, 0, 20);
  models.Respond(1, 1, 21);
  EXPECT_EQ(client.responses, (std::vector<Values>{{20}, {21}}));
  EXPECT_EQ(client.num_final, 1);
  EXPECT_EQ(client.num_empty_final, 0);
  EXPECT_EQ(client.num_released, 1);
}

TEST_F(RequestRunnerTest, SendsAnEmptyFinalWhenTheStreamsEndCameLater) {
  Start(kSketchOfStream);
  models.Respond(0, 0, 10, false);
  models.Respond(1, 0, 20);
  EXPECT_EQ(client.num_final, 0);
  models.At(0, 0).events->OnFinal();
  models.At(0, 0).events->OnReleased();
  EXPECT_EQ(client.num_empty_final, 1);
  EXPECT_EQ(client.num_released, 1);
}

TEST_F(RequestRunnerTest, AnswersAnErrorOnceAndCancelsWhatStillRuns) {
  Start({{"A"},
         {"B", "C"},
         {{"bad", {{"IN", "A"}}, {{"OUT", "B"}}}, {"slow", {{"IN", "A"}}, {{"OUT", "C"}}}}});
  models.At(0, 0).events->OnError(InternalError("boom"), true);
  models.At(0, 0).events->OnReleased();
  ASSERT_EQ(client.errors.size(), 1u);
  EXPECT_EQ(client.errors[0].message(), "in ensemble 'ens', step 0 ('bad'): boom");
  EXPECT_TRUE(models.At(1, 0).is_cancelled);
  EXPECT_EQ(client.num_released, 0);
  models.Respond(1, 0, 5);
  EXPECT_TRUE(client.responses.empty());
  EXPECT_EQ(client.num_released, 1);
}

TEST_F(RequestRunnerTest, FailsWhenAStepCannotBeStarted) {
  models.refuse = UnavailableError("model is not ready");
  Start(kChain);
  ASSERT_EQ(client.errors.size(), 1u);
  EXPECT_EQ(client.errors[0].code(), StatusCode::kUnavailable);
  EXPECT_EQ(client.num_released, 1);
}

TEST_F(RequestRunnerTest, CancelReachesTheRunningStepAndStartsNoOther) {
  const auto runner = Start(kChain);
  runner->Cancel();
  EXPECT_TRUE(models.At(0, 0).is_cancelled);
  ASSERT_EQ(client.errors.size(), 1u);
  EXPECT_EQ(client.errors[0].code(), StatusCode::kCancelled);
  models.Respond(0, 0, 2);
  EXPECT_EQ(models.Count(1), 0u);
  EXPECT_EQ(client.num_released, 1);
}

TEST_F(RequestRunnerTest, MonitorPassesCancellationOnWithoutAnyEventOfTheSteps) {
  CancellationMonitor monitor(std::chrono::milliseconds(1));
  client.monitor = &monitor;
  Start(kChain);
  client.is_cancelled = true;
  while (!models.At(0, 0).is_cancelled) std::this_thread::yield();
  models.Respond(0, 0, 2);
  while (client.num_released == 0) std::this_thread::yield();
  EXPECT_EQ(client.errors.size(), 1u);
}

TEST_F(RequestRunnerTest, MonitorGoesOnWhereAPollFindsNoMemory) {
  CancellationMonitor monitor(std::chrono::milliseconds(1));
  client.monitor = &monitor;
  Start(kChain);
  client.num_failing_polls = 2;
  client.is_cancelled = true;
  while (!models.At(0, 0).is_cancelled) std::this_thread::yield();
  EXPECT_EQ(client.num_failing_polls, 0);
  models.Respond(0, 0, 2);
  while (client.num_released == 0) std::this_thread::yield();
}

TEST_F(RequestRunnerTest, MakesAFastDecoupledStepWaitForTheStepsAfterIt) {
  Start(kSketchOfStream, {.max_requests_per_step = 2});
  std::atomic<int> num_sent{0};
  std::thread producer([&] {
    for (int i = 0; i < 4; ++i) {
      models.Respond(0, 0, 10 + i, i == 3);
      ++num_sent;
    }
  });
  while (models.Count(1) < 2) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(models.Count(1), 2u);
  EXPECT_EQ(num_sent, 2);
  for (size_t i = 0; i < 4; ++i) {
    while (models.Count(1) <= i) std::this_thread::yield();
    models.Respond(1, i, 20 + static_cast<int64_t>(i));
  }
  producer.join();
  EXPECT_EQ(client.responses, (std::vector<Values>{{20}, {21}, {22}, {23}}));
  EXPECT_EQ(client.num_released, 1);
}

// Steps end on other threads than the stream, in any order; the client sees the stream's order.
TEST_F(RequestRunnerTest, KeepsTheOrderUnderManyThreads) {
  constexpr int kNumResponses = 400, kNumWorkers = 4;
  Start(kSketchOfStream);
  std::atomic<size_t> next{0};
  std::vector<std::thread> workers;
  for (int w = 0; w < kNumWorkers; ++w) {
    workers.emplace_back([&] {
      for (size_t i; (i = next++) < kNumResponses;) {
        while (models.Count(1) <= i) std::this_thread::yield();
        models.Respond(1, i, models.At(1, i).inputs[0]);
      }
    });
  }
  for (int i = 0; i < kNumResponses; ++i) models.Respond(0, 0, i + 1, i + 1 == kNumResponses);
  for (std::thread& worker : workers) worker.join();
  ASSERT_EQ(client.responses.size(), static_cast<size_t>(kNumResponses));
  for (int i = 0; i < kNumResponses; ++i) EXPECT_EQ(client.responses[i], Values{i + 1});
  EXPECT_EQ(client.num_final, 1);
  EXPECT_EQ(client.num_released, 1);
}

TEST_F(RequestRunnerTest, SurvivesCancellationRacingWithTheStream) {
  for (int round = 0; round < 50; ++round) {
    ModelsLog round_models;
    ClientLog round_client;
    auto plan = std::make_shared<const Plan>(Build(kSketchOfStream).MakePlanFor());
    FakeModels fake_models(round_models);
    FakeClient fake_client(round_client);
    auto runner = std::make_shared<RequestRunner>(
        plan, std::make_shared<InflightLimiter>(2, InflightLimits{}), fake_models, fake_client);
    const std::vector<TensorRef> inputs{Value(1)};
    runner->Begin(inputs);
    std::thread canceller([&] { runner->Cancel(); });
    for (int i = 0; i < 20; ++i) round_models.Respond(0, 0, i + 1, i == 19);
    const size_t num_parts = round_models.Count(1);
    for (size_t i = 0; i < num_parts; ++i) round_models.Respond(1, i, 1);
    canceller.join();
    EXPECT_EQ(round_client.num_final, 1);
    EXPECT_EQ(round_client.num_released, 1);
    for (auto& [step, calls] : round_models.calls) {
      for (auto& call : calls) call->events.reset();
    }
  }
}

}  // namespace
}  // namespace nereid::ensemble
