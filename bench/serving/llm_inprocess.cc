// Sends requests to an LLM model that this process loads itself through the C API; llm_load.py runs
// it for `--api c`. Reads one request per line, "seconds prompt_tokens output_tokens", and writes
// one JSON record per line when all have ended.
//   llm_inprocess --repository=DIR --backends=DIR [--model=tensorrt_llm] [--vocab=32000] [--seed=1]
//                 [--concurrency=0] [--top-p=0] [--temperature=1]
// With --concurrency=N, N requests run at a time and their start times are ignored.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include "nereid/server.h"

namespace nereid::bench {
namespace {

using Clock = std::chrono::steady_clock;

void Check(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "error: %s\n", status.message().c_str());
  std::exit(1);
}
template <typename T>
T Checked(Result<T> result) {
  Check(result.status());
  return std::move(*result);
}

struct WorkloadEntry {
  double start_s;
  int32_t num_prompt, num_output;
};

// One request. The model's thread writes its results; the main thread reads them after the end.
class Call final : public InferObserver {
 public:
  Call(const WorkloadEntry& entry, std::counting_semaphore<>& ended)
      : entry_(entry), ended_(ended) {}

  Status Send(const Server& server, const std::string& model, bool is_batched,
              const ResponseAllocator& allocator, const std::map<std::string, std::string>& flags,
              uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto vocab = static_cast<uint64_t>(std::stoll(flags.at("vocab")));
    ids_.resize(entry_.num_prompt);
    for (int32_t& id : ids_) id = static_cast<int32_t>(random() % vocab);
    length_ = entry_.num_prompt;
    num_output_ = entry_.num_output;
    top_p_ = std::stof(flags.at("top-p"));
    temperature_ = std::stof(flags.at("temperature"));
    seed_ = seed;
    NEREID_ASSIGN_OR_RETURN(InferRequest request, server.NewRequest(model.c_str()));
    const auto add = [&](const char* name, TRITONSERVER_DataType type, const void* data,
                         int64_t count, size_t size_bytes) -> Status {
      const int64_t shape[] = {1, count};
      NEREID_RETURN_IF_ERROR(request.AddInput(
          name, type, std::span<const int64_t>(shape).subspan(is_batched ? 0 : 1)));
      return request.AppendInputData(name, data, size_bytes);
    };
    NEREID_RETURN_IF_ERROR(
        add("input_ids", TRITONSERVER_TYPE_INT32, ids_.data(), length_, ids_.size() * 4));
    NEREID_RETURN_IF_ERROR(add("input_lengths", TRITONSERVER_TYPE_INT32, &length_, 1, 4));
    NEREID_RETURN_IF_ERROR(add("request_output_len", TRITONSERVER_TYPE_INT32, &num_output_, 1, 4));
    NEREID_RETURN_IF_ERROR(add("end_id", TRITONSERVER_TYPE_INT32, &end_id_, 1, 4));
    NEREID_RETURN_IF_ERROR(add("streaming", TRITONSERVER_TYPE_BOOL, &streaming_, 1, 1));
    if (top_p_ > 0.0f) {
      NEREID_RETURN_IF_ERROR(add("runtime_top_p", TRITONSERVER_TYPE_FP32, &top_p_, 1, 4));
      NEREID_RETURN_IF_ERROR(add("temperature", TRITONSERVER_TYPE_FP32, &temperature_, 1, 4));
      NEREID_RETURN_IF_ERROR(add("random_seed", TRITONSERVER_TYPE_UINT64, &seed_, 1, 8));
    }
    NEREID_RETURN_IF_ERROR(request.AddRequestedOutput("output_ids"));
    NEREID_RETURN_IF_ERROR(request.SetCallbacks(this, allocator, nullptr));
    times_.reserve(entry_.num_output);
    sent_ = Clock::now();
    return server.InferAsync(std::move(request));
  }

  void OnResponse(InferResponse response, bool is_final) noexcept override {
    const Clock::time_point now = Clock::now();
    if (!response.empty()) Record(response, now);
    if (is_final) Finish(now);
  }
  void OnRelease(InferRequest) noexcept override { Finish(Clock::now()); }

  void Print() const {
    const auto seconds = [](Clock::time_point at) {
      return std::chrono::duration<double>(at.time_since_epoch()).count();
    };
    std::string error = "null";
    if (!error_.empty()) {
      error = "\"";
      for (const char c : error_) error += c == '"' || c == '\\' || c < ' ' ? '\'' : c;
      error += '"';
    }
    std::printf(
        "{\"prompt\": %d, \"output\": %d, \"sent\": %.6f, \"ended\": %.6f, \"error\": %s, "
        "\"times\": [",
        entry_.num_prompt, entry_.num_output, seconds(sent_), seconds(last_), error.c_str());
    for (size_t i = 0; i < times_.size(); ++i)
      std::printf("%s%.6f", i == 0 ? "" : ", ", seconds(times_[i]));
    std::printf("]}\n");
  }

 private:
  void Record(const InferResponse& response, Clock::time_point now) {
    if (const Status status = response.Error(); !status.ok()) {
      error_ = status.message();
      return;
    }
    const auto output = response.Output(0);
    if (output.ok()) times_.insert(times_.end(), output->size_bytes / 4, now);
  }
  // Called twice: for the final response and for the release of the request.
  void Finish(Clock::time_point now) {
    if (num_pending_callbacks_.fetch_sub(1) > 1) return;
    last_ = now;
    ended_.release();
  }

  const WorkloadEntry entry_;
  std::counting_semaphore<>& ended_;
  std::atomic<int> num_pending_callbacks_{2};
  std::vector<int32_t> ids_;
  int32_t length_ = 0, num_output_ = 0, end_id_ = -1;
  float top_p_ = 0.0f, temperature_ = 1.0f;
  uint64_t seed_ = 0;
  bool streaming_ = true;
  Clock::time_point sent_, last_;
  std::vector<Clock::time_point> times_;
  std::string error_;
};

Result<Server> Start(const std::map<std::string, std::string>& flags) {
  NEREID_ASSIGN_OR_RETURN(ServerOptions options, ServerOptions::Create());
  NEREID_RETURN_IF_ERROR(options.AddModelRepository(flags.at("repository")));
  NEREID_RETURN_IF_ERROR(options.SetBackendDirectory(flags.at("backends")));
  NEREID_RETURN_IF_ERROR(options.SetModelControlMode(TRITONSERVER_MODEL_CONTROL_EXPLICIT));
  NEREID_RETURN_IF_ERROR(options.AddStartupModel(flags.at("model")));
  NEREID_RETURN_IF_ERROR(options.Set(TRITONSERVER_ServerOptionsSetLogInfo, false));
  return Server::Start(options);
}

int Main(int argc, char** argv) {
  std::map<std::string, std::string> flags = {
      {"repository", ""}, {"backends", ""},    {"model", "tensorrt_llm"},
      {"vocab", "32000"}, {"seed", "1"},       {"concurrency", "0"},
      {"top-p", "0"},     {"temperature", "1"}};
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    const size_t equals = text.find('=');
    if (!text.starts_with("--") || equals == std::string::npos ||
        !flags.contains(text.substr(2, equals - 2))) {
      std::fprintf(stderr, "error: unknown option '%s'\n", argv[i]);
      return 1;
    }
    flags[text.substr(2, equals - 2)] = text.substr(equals + 1);
  }
  std::vector<WorkloadEntry> entries;
  for (WorkloadEntry entry; std::cin >> entry.start_s >> entry.num_prompt >> entry.num_output;)
    entries.push_back(entry);
  const std::string& model = flags["model"];
  const Server server = Checked(Start(flags));
  if (!Checked(server.IsModelReady(model.c_str()))) {
    Check(UnavailableError("model '", model, "' of '", flags["repository"], "' is not ready"));
  }
  const bool is_batched = Checked(server.IsBatched(model.c_str()));
  const ResponseAllocator allocator = Checked(ResponseAllocator::Create<HeapOutputPolicy>());
  const int concurrency = std::stoi(flags["concurrency"]);
  const uint64_t seed = std::stoull(flags["seed"]) * 1000003;
  std::counting_semaphore<> ended(0);
  std::vector<std::unique_ptr<Call>> calls;
  const Clock::time_point start = Clock::now();
  int num_ended = 0;
  for (const WorkloadEntry& entry : entries) {
    if (concurrency == 0) {
      std::this_thread::sleep_until(start + std::chrono::duration_cast<Clock::duration>(
                                                std::chrono::duration<double>(entry.start_s)));
    } else if (static_cast<int>(calls.size()) - num_ended >= concurrency) {
      ended.acquire();
      ++num_ended;
    }
    calls.push_back(std::make_unique<Call>(entry, ended));
    Check(calls.back()->Send(server, model, is_batched, allocator, flags, seed + calls.size()));
  }
  while (num_ended < static_cast<int>(calls.size())) {
    ended.acquire();
    ++num_ended;
  }
  for (const auto& call : calls) call->Print();
  Check(server.Stop());
  return 0;
}

}  // namespace
}  // namespace nereid::bench

int main(int argc, char** argv) {
  return nereid::bench::Main(argc, argv);
}
