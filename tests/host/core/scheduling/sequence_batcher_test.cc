#include "host/core/scheduling/sequence_batcher.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <thread>

#include "base/clock.h"
#include "tests/host/core/support/test_client.h"

namespace nereid::core {
namespace {

using test::FakeTarget;
using test::TestClient;
using test::TestRequest;

constexpr uint32_t kStart = TRITONSERVER_REQUEST_FLAG_SEQUENCE_START;
constexpr uint32_t kEnd = TRITONSERVER_REQUEST_FLAG_SEQUENCE_END;

// A configuration with max_batch_size 2, whose sequence_batching has `fields` and four controls.
// Unless `fields` sets the idle timeout, it is longer than any test.
std::string Config(const std::string& fields, const std::string& id_type = "TYPE_UINT64") {
  return StrCat(R"({"backend": "b", "max_batch_size": 2,
    "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]}],
    "sequence_batching": {)",
                fields,
                fields.find("idle") != std::string::npos
                    ? ","
                    : R"(, "max_sequence_idle_microseconds": 3600000000,)",
                R"("control_input": [
      {"name": "START", "control": [{"kind": "CONTROL_SEQUENCE_START", "int32_false_true": [10, 11]}]},
      {"name": "READY", "control": [{"kind": "CONTROL_SEQUENCE_READY", "fp32_false_true": [0, 1]}]},
      {"name": "END", "control": [{"kind": "CONTROL_SEQUENCE_END", "bool_false_true": [false, true]}]},
      {"name": "ID", "control": [{"kind": "CONTROL_SEQUENCE_CORRID", "data_type": ")",
                id_type, R"("}]}]}})");
}

class SequenceBatcherTest : public testing::Test {
 protected:
  void Use(const std::string& json, size_t num_instances = 1) {
    config_ = test::ConfigOf(json);
    target_ = std::make_shared<FakeTarget>(json);
    auto states = MakeStateSpecs(config_, "");
    ASSERT_TRUE(states.ok()) << states.status().message();
    batcher_ = std::make_shared<SequenceBatcher>(config_, *states, num_instances, &timeout_thread_);
  }
  InferRequest* Make(CorrelationId id, uint32_t flags = 0, int64_t dim = 1) {
    const std::string name = CorrelationIdText(id);
    InferRequest& request =
        requests_.emplace_back(target_, &client_, name, std::vector<int64_t>{1, dim}).request;
    request.set_correlation_id(std::move(id));
    request.set_flags(flags);
    return &request;
  }
  Status Send(InferRequest* request) {
    EXPECT_TRUE(request->Prepare().ok());
    Status status = batcher_->Enqueue(request);
    if (!status.ok()) request->Unprepare();
    return status;
  }
  InferRequest* Queue(uint64_t id, uint32_t flags = 0, int64_t dim = 1) {
    InferRequest* request = Make(id, flags, dim);
    const Status status = Send(request);
    EXPECT_TRUE(status.ok()) << status.message();
    return request;
  }
  // The sequences of the batch that is ready, for example "7 8 -"; "-" is a null request.
  std::string Take(size_t instance = 0) {
    std::string entries;
    if (!batcher_->Take(instance, TakeMode::kTry, &batch_)) return entries;
    for (InferRequest* request : batch_) {
      entries += StrCat(entries.empty() ? "" : " ",
                        request->excluded_from_statistics() ? "-" : request->id());
    }
    return entries;
  }
  template <typename T>
  static T Value(InferRequest* request, const char* input) {
    T value{};
    const InputTensor* tensor = request->FindInput(input);
    EXPECT_NE(tensor, nullptr) << input;
    if (tensor == nullptr) return value;
    EXPECT_EQ(ShapeText(tensor->shape.span()), "[1,1]");
    EXPECT_EQ(tensor->byte_size, sizeof(T));
    std::memcpy(&value, tensor->buffers[0].base, sizeof(T));
    return value;
  }
  static std::string Controls(InferRequest* request) {
    return StrCat(Value<int32_t>(request, "START"), " ", Value<float>(request, "READY"), " ",
                  static_cast<int>(Value<bool>(request, "END")), " ",
                  Value<uint64_t>(request, "ID"));
  }
  void AnswerAll() {
    for (InferRequest* request : batch_) {
      request->Fail(InternalError("answered"), FailureReason::kOther);
    }
    batch_.clear();
  }
  std::string TakeAndAnswer(size_t instance = 0) {
    std::string entries = Take(instance);
    AnswerAll();
    return entries;
  }

  ModelConfig config_;
  std::shared_ptr<FakeTarget> target_;
  TestClient client_;
  std::deque<TestRequest> requests_;
  QueueTimeoutThread timeout_thread_;
  std::shared_ptr<SequenceBatcher> batcher_;
  std::vector<InferRequest*> batch_;
};

TEST_F(SequenceBatcherTest, ReportsInvalidRequests) {
  Use(Config(R"("direct": {})"));
  EXPECT_EQ(Send(Make(uint64_t{0}, kStart)).message(),
            "inference request to model 'm' must specify a non-zero or non-empty correlation ID");
  EXPECT_EQ(Send(Make(std::string(), kStart)).message(),
            "inference request to model 'm' must specify a non-zero or non-empty correlation ID");
  EXPECT_EQ(Send(Make(uint64_t{9})).message(),
            "inference request for sequence 9 to model 'm' must specify the START flag on the "
            "first request of the sequence");
  InferRequest& two =
      requests_.emplace_back(target_, &client_, "r", std::vector<int64_t>{2, 1}).request;
  two.set_correlation_id(uint64_t{1});
  EXPECT_EQ(Send(&two).message(),
            "inference request to model 'm' must specify batch-size 1 due to requirements of "
            "sequence batcher");
}

TEST_F(SequenceBatcherTest, KeepsEachSequenceInItsSlot) {
  Use(Config(R"("direct": {})"));
  Queue(7, kStart);
  Queue(8, kStart);
  EXPECT_EQ(Take(), "7 8");
  EXPECT_EQ(Controls(batch_[0]), "11 1 0 7");
  EXPECT_EQ(Controls(batch_[1]), "11 1 0 8");
  AnswerAll();
  Queue(8);
  EXPECT_EQ(Take(), "- 8");
  EXPECT_EQ(Controls(batch_[0]), "10 0 0 0");
  EXPECT_EQ(Value<float>(batch_[0], "IN"), 0);
  EXPECT_EQ(Controls(batch_[1]), "10 1 0 8");
  AnswerAll();
  Queue(7, kEnd);
  EXPECT_EQ(Take(), "7 -");
  EXPECT_EQ(Controls(batch_[0]), "10 1 1 7");
  AnswerAll();
  EXPECT_EQ(Send(Make(uint64_t{7})).code(), StatusCode::kInvalidArg);
  EXPECT_EQ(client_.answers().size(), 4U) << "null requests have no client";
  EXPECT_EQ(target_->num_taken, 2) << "the null requests";
}

TEST_F(SequenceBatcherTest, MovesTheBacklogIntoFreedSlots) {
  Use(Config(R"("direct": {})"));
  Queue(1, kStart);
  Queue(2, kStart | kEnd);
  Queue(3, kStart);
  Queue(3, kEnd);
  Queue(3, kStart | kEnd);  // another sequence with the same ID
  EXPECT_EQ(batcher_->num_pending(), 5U);
  EXPECT_EQ(TakeAndAnswer(), "1 2");
  EXPECT_EQ(TakeAndAnswer(), "- 3");
  EXPECT_EQ(TakeAndAnswer(), "- 3");
  EXPECT_EQ(TakeAndAnswer(), "- 3");
  EXPECT_EQ(TakeAndAnswer(), "");
  EXPECT_EQ(batcher_->num_pending(), 0U);
}

TEST_F(SequenceBatcherTest, SpreadsSequencesOverInstancesAndKeepsThemThere) {
  Use(Config(R"("direct": {})"), 2);
  for (const uint64_t id : {1, 2, 3}) Queue(id, kStart);
  EXPECT_EQ(TakeAndAnswer(0), "1 3");
  EXPECT_EQ(TakeAndAnswer(1), "2");
  for (const uint64_t id : {3, 2, 1}) Queue(id, kEnd);
  EXPECT_EQ(TakeAndAnswer(0), "1 3");
  EXPECT_EQ(TakeAndAnswer(1), "2");
}

TEST_F(SequenceBatcherTest, LeavesOtherShapesToTheNextBatch) {
  Use(Config(R"("direct": {})"));
  Queue(1, kStart, 3);
  Queue(2, kStart, 4);
  EXPECT_EQ(TakeAndAnswer(), "1 -");
  EXPECT_EQ(TakeAndAnswer(), "- 2");
}

TEST_F(SequenceBatcherTest, RestartsASequenceThatDidNotEnd) {
  Use(Config(R"("direct": {})"));
  Queue(1, kStart);
  Queue(1, kStart);
  Queue(1, kEnd);
  for (const char* controls : {"11 1 0 1", "11 1 0 1", "10 1 1 1"}) {
    ASSERT_EQ(Take(), "1");
    EXPECT_EQ(Controls(batch_[0]), controls);
    AnswerAll();
  }
}

TEST_F(SequenceBatcherTest, WaitsForSlotUtilizationWithinTheDelay) {
  Use(Config(R"("direct": {"max_queue_delay_microseconds": 3600000000,
                           "minimum_slot_utilization": 1})"));
  Queue(1, kStart);
  EXPECT_EQ(Take(), "");
  Queue(2, kStart);
  EXPECT_EQ(TakeAndAnswer(), "1 2");
}

TEST_F(SequenceBatcherTest, OldestTakesOneRequestPerSequenceByArrival) {
  Use(Config(R"("oldest": {"max_candidate_sequences": 3})"));
  for (const uint64_t id : {5, 6, 7}) Queue(id, kStart);
  Queue(5, kEnd);
  Queue(8, kStart);
  EXPECT_EQ(Take(), "5 6");
  const auto first = batch_;
  EXPECT_EQ(Take(), "7");
  AnswerAll();
  EXPECT_EQ(Take(), "") << "5 is in flight, 8 waits for a slot";
  batch_ = first;
  AnswerAll();
  EXPECT_EQ(TakeAndAnswer(), "5");
  EXPECT_EQ(TakeAndAnswer(), "8");
}

TEST_F(SequenceBatcherTest, SupportsVeryManyCandidateSequences) {
  Use(Config(R"("oldest": {"max_candidate_sequences": 2147483647})"));
  for (const uint64_t id : {1, 2, 3, 4, 5}) Queue(id, kStart | kEnd);
  EXPECT_EQ(TakeAndAnswer(), "1 2");
  EXPECT_EQ(TakeAndAnswer(), "3 4");
  for (const uint64_t id : {6, 7}) Queue(id, kStart | kEnd);
  EXPECT_EQ(TakeAndAnswer(), "5 6");
  EXPECT_EQ(TakeAndAnswer(), "7");
}

TEST_F(SequenceBatcherTest, OldestKeepsTheOrderOfResponses) {
  Use(Config(R"("oldest": {"max_candidate_sequences": 4, "preserve_ordering": true})"));
  for (const uint64_t id : {1, 2, 3, 4}) Queue(id, kStart | kEnd);
  EXPECT_EQ(Take(), "1 2");
  const auto first = batch_;
  EXPECT_EQ(Take(), "3 4");
  AnswerAll();
  EXPECT_TRUE(client_.answers().empty());
  batch_ = first;
  AnswerAll();
  std::string ids;
  for (const auto& answer : client_.answers()) ids += answer.request_id;
  EXPECT_EQ(ids, "1234");
}

TEST_F(SequenceBatcherTest, SupportsStringIdsInABytesControl) {
  Use(Config(R"("direct": {})", "TYPE_STRING"));
  ASSERT_TRUE(Send(Make(std::string("abc"), kStart)).ok());
  ASSERT_TRUE(Send(Make(uint64_t{42}, kStart)).ok());
  EXPECT_EQ(Take(), "abc 42");
  const auto text = [&](int entry) {
    const InputTensor* id = batch_[entry]->FindInput("ID");
    return std::string(static_cast<const char*>(id->buffers[0].base), id->byte_size);
  };
  EXPECT_EQ(text(0), std::string("\3\0\0\0abc", 7));
  EXPECT_EQ(text(1), std::string("\2\0\0\0", 4) + "42");
  AnswerAll();
}

TEST_F(SequenceBatcherTest, HashesStringIdsFor64BitControls) {
  for (const char* type : {"TYPE_UINT64", "TYPE_INT64"}) {
    Use(Config(R"("direct": {})", type));
    ASSERT_TRUE(Send(Make(std::string("abc"), kStart)).ok());
    ASSERT_TRUE(Send(Make(std::string("abd"), kStart)).ok());
    ASSERT_EQ(Take(), "abc abd");
    const auto first = Value<int64_t>(batch_[0], "ID"), second = Value<int64_t>(batch_[1], "ID");
    AnswerAll();
    EXPECT_NE(first, second);
    ASSERT_TRUE(Send(Make(std::string("abc"), kEnd)).ok());
    ASSERT_EQ(Take(), "abc -");
    EXPECT_EQ(Value<int64_t>(batch_[0], "ID"), first);
    EXPECT_TRUE(first > 0 || config_.sequence_batching->control_inputs[3].controls[0].data_type ==
                                 DataType::kUint64);
    AnswerAll();
  }
}

TEST_F(SequenceBatcherTest, RefusesIdsThatTheControlCannotRepresent) {
  Use(Config(R"("direct": {})", "TYPE_INT32"));
  EXPECT_EQ(Send(Make(uint64_t{1} << 31, kStart)).code(), StatusCode::kInvalidArg);
  EXPECT_EQ(Send(Make(std::string("nine"), kStart)).message(),
            "inference request to model 'm' has correlation ID 'nine', but control input 'ID' "
            "holds INT32");
  ASSERT_TRUE(Send(Make(uint64_t{0x7fffffff}, kStart)).ok());
  ASSERT_EQ(Take(), "2147483647");
  EXPECT_EQ(Value<int32_t>(batch_[0], "ID"), 0x7fffffff);
  AnswerAll();
}

TEST_F(SequenceBatcherTest, EndsASequenceThatIsIdleTooLong) {
  Use(Config(R"("direct": {}, "max_sequence_idle_microseconds": 1000)"));
  Queue(1, kStart);
  Queue(2, kStart);
  EXPECT_EQ(TakeAndAnswer(), "1 2");
  Queue(3, kStart | kEnd);
  // Waits until the sequence that has been idle longest loses its slot.
  ASSERT_TRUE(batcher_->TakeBatch(0, &batch_));
  EXPECT_EQ(batch_[0]->id(), "3");
  AnswerAll();
  EXPECT_EQ(Send(Make(uint64_t{1})).code(), StatusCode::kInvalidArg);
}

TEST_F(SequenceBatcherTest, DoesNotReapSequencesWithRequests) {
  Use(Config(R"("oldest": {"max_candidate_sequences": 1}, "max_sequence_idle_microseconds": 1)"));
  Queue(1, kStart);
  Queue(2, kStart | kEnd);
  EXPECT_EQ(Take(), "1");
  for (int i = 0; i < 100; ++i) std::this_thread::yield();
  Queue(1, kEnd);  // its previous request is still in flight
  AnswerAll();
  EXPECT_EQ(TakeAndAnswer(), "1");
  EXPECT_EQ(TakeAndAnswer(), "2");
}

TEST_F(SequenceBatcherTest, CancellationEndsTheRestOfTheSequence) {
  Use(Config(R"("direct": {})"));
  Queue(1, kStart);
  InferRequest* cancelled = Queue(1);
  Queue(1);
  batcher_->OnCancelled(cancelled);
  const auto answers = client_.WaitFor(2);
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(answers[1].error.code(), StatusCode::kCancelled);
  EXPECT_EQ(Send(Make(uint64_t{1})).code(), StatusCode::kInvalidArg);
  EXPECT_EQ(TakeAndAnswer(), "1");
  EXPECT_EQ(TakeAndAnswer(), "");
}

TEST_F(SequenceBatcherTest, RejectsASequenceThatExpiresInTheBacklog) {
  Use(Config(R"("oldest": {"max_candidate_sequences": 1})"));
  Queue(1, kStart);
  InferRequest* late = Make(uint64_t{2}, kStart);
  late->set_timeout_us(1);
  ASSERT_TRUE(Send(late).ok());
  const auto answers = client_.WaitFor(1);
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].error.code(), StatusCode::kUnavailable);
  EXPECT_EQ(answers[0].error.message(), "timeout of the corresponding sequence has been expired");
  EXPECT_EQ(TakeAndAnswer(), "1");
}

TEST_F(SequenceBatcherTest, ReschedulesIterativeRequestsUntilTheBackendIsDone) {
  Use(Config(R"("oldest": {"max_candidate_sequences": 2}, "iterative_sequence": true)"));
  Queue(0);
  InferRequest* other = Make(uint64_t{0});
  ASSERT_TRUE(Send(other).ok());
  ASSERT_EQ(Take(), "0 0");
  EXPECT_EQ(Controls(batch_[0]), "11 1 0 1");
  EXPECT_EQ(Controls(batch_[1]), "11 1 0 2");
  InferRequest* request = batch_[0];
  batch_[1]->Fail(InternalError("answered"), FailureReason::kOther);
  for (int i = 0; i < 3; ++i) {
    request->Release(TRITONSERVER_REQUEST_RELEASE_RESCHEDULE);
    ASSERT_EQ(Take(), "0");
    ASSERT_EQ(batch_[0], request);
    EXPECT_EQ(Controls(request), "10 1 0 1");
  }
  EXPECT_EQ(client_.num_released(), 1U);
  AnswerAll();
  EXPECT_EQ(client_.num_released(), 2U);
}

TEST_F(SequenceBatcherTest, DoesNotRescheduleACancelledRequest) {
  Use(Config(R"("direct": {}, "iterative_sequence": true)"));
  InferRequest* request = Queue(0);
  ASSERT_EQ(Take(), "0");
  ASSERT_TRUE(request->Cancel().ok());
  request->Release(TRITONSERVER_REQUEST_RELEASE_RESCHEDULE);
  EXPECT_EQ(Take(), "");
  ASSERT_EQ(client_.answers().size(), 1U);
  EXPECT_EQ(client_.answers()[0].error.code(), StatusCode::kCancelled);
}

TEST_F(SequenceBatcherTest, DrainsOpenSequencesAndTheBacklog) {
  Use(Config(R"("oldest": {"max_candidate_sequences": 1})"));
  Queue(1, kStart);
  Queue(2, kStart);
  Queue(3, kStart);
  EXPECT_EQ(TakeAndAnswer(), "1");
  EXPECT_EQ(Take(), "") << "1 is still open";
  batcher_->StopIntake();
  EXPECT_EQ(TakeAndAnswer(), "2");
  EXPECT_EQ(TakeAndAnswer(), "3");
  batcher_->Stop();
  EXPECT_EQ(Send(Make(uint64_t{4}, kStart)).code(), StatusCode::kUnavailable);
  EXPECT_FALSE(batcher_->TakeBatch(0, &batch_));
}

// Backends concatenate the states of a batch, so states of null requests must have the same shape.
TEST_F(SequenceBatcherTest, NullRequestsHaveStatesOfTheSameShape) {
  Use(Config(R"("direct": {}, "state": [{"input_name": "SI", "output_name": "SO",
    "data_type": "TYPE_INT32", "dims": [-1]}])"));
  Queue(7, kStart);
  Queue(8, kStart);
  EXPECT_EQ(Take(), "7 8");
  const int32_t next[] = {5, 6, 7};
  for (InferRequest* request : batch_) {
    StateTensor* state = *request->host_inputs()->states->FindOutput("SO");
    ASSERT_TRUE(state->SetNextTypeAndShape(DataType::kInt32, std::vector<int64_t>{1, 3}).ok());
    std::memcpy(*state->Buffer(sizeof(next)), next, sizeof(next));
    state->Update();
  }
  AnswerAll();
  Queue(8);
  EXPECT_EQ(Take(), "- 8");
  for (InferRequest* request : batch_) {
    const InputTensor* state = request->FindInput("SI");
    ASSERT_NE(state, nullptr);
    EXPECT_EQ(ShapeText(state->shape.span()), "[1,3]");
    int32_t values[3] = {1, 1, 1};
    ASSERT_EQ(state->byte_size, sizeof(values));
    std::memcpy(values, state->buffers[0].base, sizeof(values));
    EXPECT_EQ(values[2], request->excluded_from_statistics() ? 0 : 7);
  }
  AnswerAll();
}

TEST_F(SequenceBatcherTest, KeepsStatesFromRequestToRequest) {
  Use(Config(R"("direct": {}, "state": [{"input_name": "SI", "output_name": "SO",
    "data_type": "TYPE_INT32", "dims": [1]}])"));
  Queue(1, kStart);
  Queue(1);
  Queue(1);
  Queue(1, kStart);
  const int64_t shape[] = {1, 1};
  int32_t expected = 0;
  for (const bool update : {true, false, true, true}) {
    ASSERT_EQ(Take(), "1");
    if (Controls(batch_[0]).rfind("11", 0) == 0) expected = 0;
    EXPECT_EQ(Value<int32_t>(batch_[0], "SI"), expected);
    auto state = batch_[0]->host_inputs()->states->FindOutput("SO");
    ASSERT_TRUE(state.ok());
    ASSERT_TRUE((*state)->SetNextTypeAndShape(DataType::kInt32, shape).ok());
    const int32_t next = expected + 5;
    std::memcpy(*(*state)->Buffer(sizeof(next)), &next, sizeof(next));
    EXPECT_EQ(Value<int32_t>(batch_[0], "SI"), expected)
        << "input and output state have separate buffers";
    if (update) {
      (*state)->Update();
      expected = next;
    }
    AnswerAll();
  }
}

TEST_F(SequenceBatcherTest, ServesManySequencesAtOnce) {
  for (const char* strategy :
       {R"("direct": {})", R"("oldest": {"max_candidate_sequences": 3, "preferred_batch_size": [2],
                              "max_queue_delay_microseconds": 100})"}) {
    Use(Config(strategy), 2);
    constexpr uint64_t kSequences = 12, kLength = 20, kClients = 3;
    const size_t answered_before = client_.answers().size();
    std::vector<std::vector<InferRequest*>> all(kSequences);
    for (uint64_t id = 0; id < kSequences; ++id) {
      for (uint64_t i = 0; i < kLength; ++i) {
        const uint32_t flags = (i == 0 ? kStart : 0) | (i + 1 == kLength ? kEnd : 0);
        all[id].push_back(Make(id + 1, flags));
      }
    }
    std::vector<std::thread> threads;
    for (size_t instance = 0; instance < 2; ++instance) {
      threads.emplace_back([&, instance] {
        std::vector<InferRequest*> batch;
        while (batcher_->TakeBatch(instance, &batch)) {
          for (auto* request : batch) request->Fail(InternalError("a"), FailureReason::kOther);
        }
      });
    }
    std::vector<std::thread> clients;
    for (uint64_t client = 0; client < kClients; ++client) {
      clients.emplace_back([&, client] {
        for (uint64_t i = 0; i < kLength; ++i) {
          for (uint64_t id = client; id < kSequences; id += kClients) {
            ASSERT_TRUE(Send(all[id][i]).ok());
          }
        }
      });
    }
    for (std::thread& thread : clients) thread.join();
    batcher_->Stop();
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(client_.answers().size(), answered_before + kSequences * kLength);
    EXPECT_EQ(batcher_->num_pending(), 0U);
  }
}

class DelayedSequencesTest : public SequenceBatcherTest {
 protected:
  DelayedSequencesTest() { setenv("TRITONSERVER_DELAY_SCHEDULER", "3", 1); }
  ~DelayedSequencesTest() override { unsetenv("TRITONSERVER_DELAY_SCHEDULER"); }

  // Only one request per sequence counts. Three sequences wait when sequence 9 arrives.
  void ExpectStartWithTheThirdSequence() {
    Queue(7, kStart);
    Queue(7, kEnd);
    Queue(8, kStart | kEnd);
    EXPECT_EQ(Take(), "");
    Queue(9, kStart | kEnd);
    EXPECT_EQ(TakeAndAnswer(), "7 8");
  }
};

TEST_F(DelayedSequencesTest, DirectStartsWhenTheConfiguredNumberOfRequestsWait) {
  Use(Config(R"("direct": {})"));
  Queue(7, kStart);
  Queue(7);
  EXPECT_EQ(Take(), "");
  Queue(8, kStart | kEnd);
  EXPECT_EQ(TakeAndAnswer(), "7 8");
  EXPECT_EQ(TakeAndAnswer(), "7");
}

TEST_F(DelayedSequencesTest, DirectCountsTheRequestsOfAllInstances) {
  Use(Config(R"("direct": {})"), 2);
  Queue(7, kStart | kEnd);
  Queue(8, kStart);
  EXPECT_EQ(Take(0), "");
  EXPECT_EQ(Take(1), "");
  Queue(8, kEnd);
  EXPECT_EQ(TakeAndAnswer(0), "7");
  EXPECT_EQ(TakeAndAnswer(1), "8");
  EXPECT_EQ(TakeAndAnswer(1), "8");
}

TEST_F(DelayedSequencesTest, MayRequireRequestsInTheBacklog) {
  setenv("TRITONSERVER_BACKLOG_DELAY_SCHEDULER", "1", 1);
  Use(Config(R"("direct": {})"));
  unsetenv("TRITONSERVER_BACKLOG_DELAY_SCHEDULER");
  ExpectStartWithTheThirdSequence();
  EXPECT_EQ(TakeAndAnswer(), "7 9");
}

TEST_F(DelayedSequencesTest, OldestCountsSequences) {
  Use(Config(R"("oldest": {"max_candidate_sequences": 4})"));
  ExpectStartWithTheThirdSequence();
  while (!TakeAndAnswer().empty()) {
  }
}

TEST_F(DelayedSequencesTest, StopEndsTheDelay) {
  Use(Config(R"("direct": {})"));
  Queue(7, kStart | kEnd);
  batcher_->Stop();
  EXPECT_EQ(TakeAndAnswer(), "7");
}

}  // namespace
}  // namespace nereid::core
