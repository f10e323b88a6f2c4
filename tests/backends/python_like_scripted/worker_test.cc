// Tests a worker process without a host: commands, posted messages and faults.
#include "backends/python_like_scripted/worker.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "backends/python_like_scripted/tensor_codec.h"
#include "tests/support/source_path.h"
#include "tests/support/test_folder.h"
#include "tests/support/thread_creation_blocker.h"

namespace nereid::python {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr milliseconds kNoLimit{0};

// Doubles its input; the request's id selects other cases.
constexpr char kModel[] = R"(
import os, signal, time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        case = requests[0].request_id()
        if case == "exit":
            os._exit(3)
        if case == "hang":
            time.sleep(600)
        if case == "raise":
            raise ValueError("no")
        if case == "cancelled":
            return [pb_utils.InferenceResponse(error=pb_utils.TritonError(str(each.is_cancelled()))) for each in requests]
        if case == "send":
            for each in requests:
                for i in range(100):
                    each.get_response_sender().send(pb_utils.InferenceResponse(error=pb_utils.TritonError(str(i))))
                each.get_response_sender().send(flags=1)
            return None
        if case == "deaf":  # after its answer: closes its socket, creates a file, and does not exit
            from nereid_worker import channel
            answer = channel.answer
            def last_answer(message):
                answer(message)
                os.close(channel.command_fd)
                open(os.path.dirname(__file__) + "/closed", "w").close()
                time.sleep(600)
            channel.answer = last_answer
        if case == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", each.inputs()[0].as_numpy() * 2)]) for each in requests]
)";

// The first of these interpreters that has NumPy; empty if none has.
std::string Interpreter() {
  static const std::string found = [] {
    std::vector<std::string> places = {SourcePath("build/venv/bin/python"), "python3",
                                       "/usr/bin/python3"};
    if (const char* named = std::getenv("NEREID_PYTHON")) places.insert(places.begin(), named);
    for (const std::string& place : places) {
      if (std::system((place + " -c 'import numpy' >/dev/null 2>&1").c_str()) == 0) return place;
    }
    return std::string();
  }();
  return found;
}

class Recorder : public WorkerListener {
 public:
  Status OnPosted(WorkerMessage kind, MarshalReader& message) override {
    std::unique_lock lock(mutex_);
    if (kind == WorkerMessage::kCall) {
      MarshalWriter reply;
      reply.Tuple(4);
      reply.Int(static_cast<int64_t>(HostMessage::kReply));
      reply.Int(message.Int());
      reply.Bool(true);
      reply.Bool(true);
      lock.unlock();
      return worker->Post(reply.Take());
    }
    ++num_responses;
    return {};
  }
  void OnWorkerExit(const std::string& how) override {
    std::lock_guard lock(mutex_);
    exit_text = how;
    changed_.notify_all();
  }
  std::string AwaitExit() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !exit_text.empty(); });
    return exit_text;
  }

  Worker* worker = nullptr;
  int num_responses = 0;
  std::string exit_text;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
};

class WorkerTest : public testing::Test {
 protected:
  void SetUp() override {
    if (Interpreter().empty()) GTEST_SKIP() << "no Python interpreter with NumPy";
    folder_.Write("model.py", kModel);
    auto started = Worker::Start(Options());
    ASSERT_TRUE(started.ok()) << started.status().message();
    worker_ = std::move(*started);
    recorder_.worker = worker_.get();
    worker_->SetListener(&recorder_);
  }
  void TearDown() override { worker_.reset(); }

  WorkerOptions Options() const {
    WorkerOptions options;
    options.label = "model 'm'";
    options.name = "m";
    options.command.arguments = {
        Interpreter(), SourcePath("backends/python_like_scripted/worker/nereid_python_worker.py")};
    options.command.environment = EnvironmentWith({"PYTHONDONTWRITEBYTECODE=1"});
    options.region_bytes = 4096;
    options.region_growth_bytes = 4096;
    options.region_max_bytes = 8 << 20;
    options.start_timeout = std::chrono::seconds(60);
    options.stop_timeout = std::chrono::milliseconds(1);
    return options;
  }

  Result<std::string> Load(const fs::path& file) {
    MarshalWriter command;
    command.Tuple(4);
    command.Int(static_cast<int64_t>(WorkerCommand::kLoad));
    command.Text(file.string());
    command.Text("1");
    command.Text(folder_.path().string());
    return worker_->RunCommand(command.Take(), kNoLimit);
  }
  void LoadAndInitialize(bool is_decoupled = false) {
    ASSERT_TRUE(Load(folder_ / "model.py").ok());
    MarshalWriter command;
    command.Tuple(4);
    command.Int(static_cast<int64_t>(WorkerCommand::kInitialize));
    command.Tuple(0);
    command.Text("m_0");
    command.Bool(is_decoupled);
    const auto answer = worker_->RunCommand(command.Take(), kNoLimit);
    ASSERT_TRUE(answer.ok()) << answer.status().message();
  }
  Result<std::string> Execute(const char* id, const std::vector<float>& values,
                              milliseconds timeout = kNoLimit) {
    const int64_t shape[] = {static_cast<int64_t>(values.size())};
    const std::span bytes(reinterpret_cast<const std::byte*>(values.data()), values.size() * 4);
    std::vector<SharedBlock> blocks;
    MarshalWriter command;
    command.Tuple(3);
    command.Int(static_cast<int64_t>(WorkerCommand::kExecute));
    command.Tuple(1);
    command.Tuple(8);
    command.Int(1);
    command.Text(id);
    command.Int(0);
    command.Int(0);
    command.Int(0);
    command.Text("{}");
    command.Tuple(1);
    command.Text("OUT");
    command.Tuple(1);
    EXPECT_TRUE(WriteTensor(TensorView::Of("IN", DataType::kFp32, shape, bytes),
                            worker_->to_worker(), worker_->posted_input_buffers(), nullptr, blocks,
                            command)
                    .ok());
    command.None();
    return worker_->RunCommand(command.Take(), timeout);
  }
  // The only response of an answer, or its error.
  PackedResponse ResponseOf(const std::string& answer, uint64_t* num_posted = nullptr) {
    MarshalReader reader(answer);
    reader.TupleOf(2);
    (void)reader.Int();
    reader.TupleOf(3);
    const int64_t posted = reader.Int();
    if (num_posted != nullptr) *num_posted = static_cast<uint64_t>(posted);
    PackedResponse response;
    if (!reader.TakeNone()) {
      response.error = InternalError(reader.Text());
      return response;
    }
    reader.TupleOf(1);
    if (reader.TakeNone()) return response;
    response = ReadResponse(reader, worker_->from_worker());
    EXPECT_TRUE(reader.Finish().ok()) << reader.status().message();
    return response;
  }

  const TestFolder folder_;
  Recorder recorder_;
  std::unique_ptr<Worker> worker_;
};

TEST_F(WorkerTest, RunsShortTensorsInMessagesAndLongOnesInSharedMemory) {
  LoadAndInitialize();
  for (const size_t count : {1u, 2048u, 2049u, 300'000u, 7u, 100'000u}) {
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i % 1000);
    const auto answer = Execute("", values);
    ASSERT_TRUE(answer.ok()) << answer.status().message();
    const PackedResponse response = ResponseOf(*answer);
    ASSERT_EQ(response.outputs.size(), 1u) << response.error->message();
    const std::string_view bytes = response.outputs[0].bytes();
    EXPECT_EQ(response.outputs[0].block.has_value(), count > 2048);
    ASSERT_EQ(bytes.size(), count * sizeof(float));
    std::vector<float> results(count);
    std::memcpy(results.data(), bytes.data(), bytes.size());
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(results[i], 2 * values[i]) << i;
    response.Release();
  }
}

TEST_F(WorkerTest, PassesTheTextOfAnException) {
  LoadAndInitialize();
  const auto answer = Execute("raise", {1});
  ASSERT_TRUE(answer.ok());
  const std::string text = ResponseOf(*answer).error->message();
  EXPECT_NE(text.find("for model 'm_0', message: ValueError: no\n\nAt:\n  "), std::string::npos);
}

TEST_F(WorkerTest, WaitForPostedReturnsAfterTheMessages) {
  LoadAndInitialize(/*is_decoupled=*/true);
  const auto answer = Execute("send", {1});
  ASSERT_TRUE(answer.ok());
  uint64_t num_posted = 0;
  (void)ResponseOf(*answer, &num_posted);
  worker_->WaitForPosted(num_posted);
  EXPECT_EQ(recorder_.num_responses, 101);
}

TEST_F(WorkerTest, ACallIsAnsweredWhileTheModelRuns) {
  LoadAndInitialize();
  const auto answer = Execute("cancelled", {1});
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(ResponseOf(*answer).error->message(), "True");
}

TEST_F(WorkerTest, ReportsHowAWorkerExited) {
  LoadAndInitialize();
  const auto answer = Execute("exit", {1});
  EXPECT_EQ(answer.status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(answer.status().message(),
            "model 'm': Stub process 'm' is not healthy. The Python worker exited with code 3");
  EXPECT_EQ(recorder_.AwaitExit(), "exited with code 3");
  EXPECT_EQ(Execute("", {1}).status().code(), StatusCode::kUnavailable);
}

TEST_F(WorkerTest, KillsAWorkerThatHangs) {
  LoadAndInitialize();
  const auto answer = Execute("hang", {1}, milliseconds(100));
  EXPECT_NE(answer.status().message().find("it did not answer within 100 ms"), std::string::npos);
  EXPECT_NE(recorder_.AwaitExit().find("it did not answer"), std::string::npos);
}

TEST_F(WorkerTest, TheNextCommandKillsAWorkerThatHasClosedItsSocket) {
  LoadAndInitialize();
  ASSERT_TRUE(Execute("deaf", {1}).ok());
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!fs::exists(folder_ / "closed") && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  ASSERT_TRUE(fs::exists(folder_ / "closed"));
  EXPECT_EQ(Execute("", {1}).status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(worker_->has_exited());
}

TEST_F(WorkerTest, ACommandWithoutSharedMemoryIsRejectedAndTheWorkerGoesOn) {
  LoadAndInitialize();
  const auto answer = Execute(std::string(9 << 20, 'x').c_str(), {1});
  EXPECT_EQ(answer.status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(Execute("", {1}).ok());
}

TEST_F(WorkerTest, KillsAStoppedWorkerDespiteNoTimeLimit) {
  LoadAndInitialize();
  const auto answer = Execute("stop", {1});
  EXPECT_NE(answer.status().message().find("it did not go on after a signal had stopped it"),
            std::string::npos);
  EXPECT_TRUE(worker_->has_exited());
}

TEST_F(WorkerTest, DoesNotFinalizeAStoppedWorker) {
  LoadAndInitialize();
  kill(worker_->pid(), SIGSTOP);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(worker_->pid()), &info, WSTOPPED | WNOWAIT), 0);
  worker_->Stop(std::chrono::hours(1));
  EXPECT_TRUE(worker_->has_exited());
}

TEST_F(WorkerTest, AWorkerOutlivesALoadError) {
  std::ofstream(folder_ / "broken.py") << "import nosuch_module\n";
  const auto answer = Load(folder_ / "broken.py");
  EXPECT_EQ(answer.status().code(), StatusCode::kInternal);
  EXPECT_NE(answer.status().message().find("No module named 'nosuch_module'"), std::string::npos);
  EXPECT_TRUE(Load(folder_ / "model.py").ok());
}

TEST_F(WorkerTest, StopsARunningWorker) {
  LoadAndInitialize();
  worker_->Stop(std::chrono::seconds(60));
  EXPECT_TRUE(worker_->has_exited());
  EXPECT_EQ(recorder_.exit_text, "");
}

TEST_F(WorkerTest, DoesNotStartWithoutAHostThread) {
  const ThreadCreationBlocker no_threads;
  const auto started = Worker::Start(Options());
  EXPECT_EQ(started.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(started.status().message().find("no thread could be started"), std::string::npos);
}

TEST_F(WorkerTest, NamesAnInvalidInterpreter) {
  WorkerOptions options = Options();
  options.command.arguments[0] = "/nonexistent/python";
  const auto missing = Worker::Start(options);
  EXPECT_NE(missing.status().message().find("'/nonexistent/python'"), std::string::npos);
  options.command.arguments[0] = "/bin/false";
  const auto silent = Worker::Start(options);
  EXPECT_NE(silent.status().message().find("exited with code 1"), std::string::npos);
}

}  // namespace
}  // namespace nereid::python
