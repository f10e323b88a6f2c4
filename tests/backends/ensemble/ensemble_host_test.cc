// The ensemble's shared library in a running server, through the C API: streams, cancellation and
// unloading under load. It also runs with sanitizers, so slow parts are kept small.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "nereid/server.h"

namespace nereid {
namespace {

namespace fs = std::filesystem;

constexpr char kTicker[] = R"(backend: "ticker"
model_transaction_policy { decoupled: true }
input [ { name: "COUNT" data_type: TYPE_INT32 dims: [ 1 ] }, { name: "DELAY_MS" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "TICK" data_type: TYPE_INT32 dims: [ 1 ] } ]
instance_group [ { count: 4 kind: KIND_CPU } ]
)";
// Several instances, so that the responses of a stream overtake each other.
constexpr char kCopy[] = R"(backend: "identity_c"
input [ { name: "INPUT0" data_type: TYPE_INT32 dims: [ -1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_INT32 dims: [ -1 ] } ]
instance_group [ { count: 3 kind: KIND_CPU } ]
)";
constexpr char kStream[] = R"(platform: "ensemble"
input [ { name: "COUNT" data_type: TYPE_INT32 dims: [ 1 ] }, { name: "DELAY_MS" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
ensemble_scheduling { step [
  { model_name: "ticker" model_version: -1 input_map { key: "COUNT" value: "COUNT" } input_map { key: "DELAY_MS" value: "DELAY_MS" }
    output_map { key: "TICK" value: "T" } },
  { model_name: "copy" model_version: -1 input_map { key: "INPUT0" value: "T" } output_map { key: "OUTPUT0" value: "OUT" } } ] }
)";

// One request and its results. Lives until the request was released.
class Client : public InferObserver {
 public:
  explicit Client(int32_t count, int32_t delay_ms) : count_(count), delay_ms_(delay_ms) {}

  Status Send(const Server& server, const ResponseAllocator& allocator, const char* model) {
    NEREID_ASSIGN_OR_RETURN(InferRequest request, server.NewRequest(model));
    NEREID_RETURN_IF_ERROR(AddInput(request, "COUNT", count_));
    NEREID_RETURN_IF_ERROR(AddInput(request, "DELAY_MS", delay_ms_));
    NEREID_RETURN_IF_ERROR(request.SetCallbacks(this, allocator, nullptr));
    handle_ = request.get();
    return server.InferAsync(std::move(request));
  }
  Status Cancel() { return InferRequest::Cancel(handle_); }

  void OnResponse(InferResponse response, bool is_final) noexcept override {
    const std::lock_guard lock(mutex_);
    if (!response.empty()) {
      if (const Status error = response.Error(); !error.ok()) {
        error_ = error;
      } else if (const auto output = response.Output(0); output.ok()) {
        values_.push_back(*static_cast<const int32_t*>(output->base));
      }
    }
    num_final_ += is_final;
    changed_.notify_all();
  }
  void OnRelease(InferRequest request) noexcept override {
    const std::lock_guard lock(mutex_);
    released_.emplace(std::move(request));
    changed_.notify_all();
  }

  void WaitForResponses(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return values_.size() >= count; });
  }
  void WaitForEnd() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return num_final_ > 0 && released_.has_value(); });
  }
  // Call these after WaitForEnd.
  const std::vector<int32_t>& values() const { return values_; }
  const Status& error() const { return error_; }
  int num_final() const { return num_final_; }

 private:
  static Status AddInput(InferRequest& request, const char* name, const int32_t& value) {
    const int64_t shape[] = {1};
    NEREID_RETURN_IF_ERROR(request.AddInput(name, TRITONSERVER_TYPE_INT32, shape));
    return request.AppendInputData(name, &value, sizeof(value));
  }

  const int32_t count_, delay_ms_;
  TRITONSERVER_InferenceRequest* handle_ = nullptr;

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::vector<int32_t> values_;
  Status error_;
  int num_final_ = 0;
  std::optional<InferRequest> released_;
};

class EnsembleHostTest : public testing::Test {
 protected:
  EnsembleHostTest() : allocator_(ResponseAllocator::Create<HeapOutputPolicy>().value()) {
    root_ = fs::temp_directory_path() /
            StrCat("nereid-ensemble-", getpid(), "-",
                   testing::UnitTest::GetInstance()->current_test_info()->name());
    AddModel("ticker", kTicker);
    AddModel("copy", kCopy);
    AddModel("stream", kStream);
    ServerOptions options = ServerOptions::Create().value();
    EXPECT_TRUE(options.AddModelRepository(root_.string()).ok());
    EXPECT_TRUE(options.SetBackendDirectory(NEREID_TEST_BACKENDS).ok());
    EXPECT_TRUE(options.SetModelControlMode(TRITONSERVER_MODEL_CONTROL_EXPLICIT).ok());
    EXPECT_TRUE(options.AddStartupModel("stream").ok());  // loads its steps, too
    Result<Server> server = Server::Start(options);
    if (server.ok()) {
      server_.emplace(std::move(*server));
    } else {
      ADD_FAILURE() << server.status().message();
    }
  }
  ~EnsembleHostTest() override {
    server_.reset();
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }

  void AddModel(const std::string& name, const std::string& config) const {
    fs::create_directories(root_ / name / "1");
    std::ofstream(root_ / name / "config.pbtxt") << config;
  }

  fs::path root_;
  ResponseAllocator allocator_;
  std::optional<Server> server_;
};

TEST_F(EnsembleHostTest, DeliversManyStreamsInOrder) {
  ASSERT_TRUE(server_.has_value());
  constexpr int kNumThreads = 4, kNumRounds = 10;
  constexpr int32_t kCount = 40;
  std::vector<std::thread> threads;
  for (int t = 0; t < kNumThreads; ++t) {
    threads.emplace_back([&] {
      for (int round = 0; round < kNumRounds; ++round) {
        Client client(kCount, 0);
        ASSERT_TRUE(client.Send(*server_, allocator_, "stream").ok());
        client.WaitForEnd();
        ASSERT_TRUE(client.error().ok()) << client.error().message();
        ASSERT_EQ(client.values().size(), static_cast<size_t>(kCount));
        for (int32_t i = 0; i < kCount; ++i) EXPECT_EQ(client.values()[i], i);
        EXPECT_EQ(client.num_final(), 1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(EnsembleHostTest, CancellationReachesTheRunningStep) {
  ASSERT_TRUE(server_.has_value());
  Client client(1'000'000, 1);
  ASSERT_TRUE(client.Send(*server_, allocator_, "stream").ok());
  client.WaitForResponses(3);
  EXPECT_TRUE(client.Cancel().ok());
  client.WaitForEnd();  // released only after the ticker has stopped
  EXPECT_EQ(client.error().code(), StatusCode::kCancelled);
  EXPECT_LT(client.values().size(), 1'000'000u);
  EXPECT_EQ(client.num_final(), 1);
}

// The step sends nothing that could wake the ensemble: the monitor has to notice the cancellation.
TEST_F(EnsembleHostTest, CancellationReachesAStepThatIsSilent) {
  ASSERT_TRUE(server_.has_value());
  Client client(100, 200);
  ASSERT_TRUE(client.Send(*server_, allocator_, "stream").ok());
  client.WaitForResponses(1);
  EXPECT_TRUE(client.Cancel().ok());
  client.WaitForEnd();
  EXPECT_EQ(client.error().code(), StatusCode::kCancelled);
  EXPECT_LE(client.values().size(), 2u);
}

TEST_F(EnsembleHostTest, SurvivesClientsThatCancelAtAnyMoment) {
  ASSERT_TRUE(server_.has_value());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 12; ++round) {
        Client client(30, round % 2);
        ASSERT_TRUE(client.Send(*server_, allocator_, "stream").ok());
        std::this_thread::sleep_for(std::chrono::microseconds(700 * ((round * 5 + t) % 13)));
        EXPECT_TRUE(client.Cancel().ok());
        client.WaitForEnd();
        EXPECT_EQ(client.num_final(), 1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(EnsembleHostTest, FinishesWhatRunsWhenItIsUnloaded) {
  ASSERT_TRUE(server_.has_value());
  Client client(40, 2);
  ASSERT_TRUE(client.Send(*server_, allocator_, "stream").ok());
  client.WaitForResponses(1);
  ASSERT_TRUE(server_->UnloadModel("stream", /*unload_dependents=*/true).ok());
  client.WaitForEnd();
  EXPECT_TRUE(client.error().ok()) << client.error().message();
  EXPECT_EQ(client.values().size(), 40u);
  EXPECT_FALSE(server_->NewRequest("stream").ok());
}

TEST_F(EnsembleHostTest, IsKnownAsDecoupledBecauseAStepIs) {
  ASSERT_TRUE(server_.has_value());
  const auto is_decoupled = server_->IsDecoupled("stream");
  ASSERT_TRUE(is_decoupled.ok());
  EXPECT_TRUE(*is_decoupled);
}

}  // namespace
}  // namespace nereid
