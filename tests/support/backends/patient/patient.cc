// A slow backend for tests of cancellation and slow readers. It answers any number of requests
// concurrently, each on its own thread:
//   COUNT        number of responses, -1 for endless (decoupled models; others send one)
//   INTERVAL_MS  pause before each response
//   SIZE         bytes of DATA in each response
// A cancelled request ends within 5 ms. The model `counters` returns how many requests of all
// models are running and how many were cancelled.
#include <atomic>
#include <chrono>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

#include "nereid/backend.h"

namespace {

using nereid::Request;
using nereid::Response;
using nereid::ResponseSender;
using nereid::Status;

std::atomic<int32_t> num_running{0};
std::atomic<int32_t> num_cancelled{0};

struct Task {
  int32_t count;
  int32_t interval_ms;
  int32_t size_bytes;
};

// Waits; returns false if the request was cancelled in the meantime.
bool Wait(const ResponseSender& sender, int32_t interval_ms) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(interval_ms);
  while (!sender.IsCancelled()) {
    const auto left = end - std::chrono::steady_clock::now();
    if (left <= left.zero()) return true;
    std::this_thread::sleep_for(
        std::min<std::chrono::nanoseconds>(left, std::chrono::milliseconds(5)));
  }
  return false;
}

Status SendTicks(ResponseSender& sender, const Task& task) {
  for (int32_t tick = 0; task.count < 0 || tick < task.count; ++tick) {
    if (!Wait(sender, task.interval_ms)) return nereid::CancelledError("cancelled after ", tick);
    NEREID_ASSIGN_OR_RETURN(Response response, sender.NewResponse());
    NEREID_RETURN_IF_ERROR(response.SetOutput<int32_t>("TICK", {1}, std::span(&tick, 1)));
    NEREID_ASSIGN_OR_RETURN(const auto data, response.Output<uint8_t>("DATA", {task.size_bytes}));
    std::fill(data.begin(), data.end(), static_cast<uint8_t>(tick));
    const bool is_final = !sender.is_decoupled();
    NEREID_RETURN_IF_ERROR(sender.Send(std::move(response), is_final));
    if (is_final) return {};
  }
  return sender.Finish();
}

void Run(Request request, Task task) {
  ++num_running;
  const Status status = SendTicks(request.sender(), task);
  if (status.code() == nereid::StatusCode::kCancelled && !status.ok()) ++num_cancelled;
  if (!status.ok()) (void)request.Fail(status);
  --num_running;
}

class Patient : public nereid::Model {
 public:
  Status Execute(nereid::Batch& batch) override {
    for (Request& request : batch.Take()) {
      const Status status = name() == "counters" ? Count(request) : Begin(std::move(request));
      if (!status.ok()) NEREID_RETURN_IF_ERROR(request.Fail(status));
    }
    return {};
  }
  void Finalize() override {
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  static Status Count(Request& request) {
    for (const auto& [output, value] :
         {std::pair("RUNNING", num_running.load()), std::pair("CANCELLED", num_cancelled.load())}) {
      NEREID_RETURN_IF_ERROR(request.SetOutput<int32_t>(output, {1}, std::span(&value, 1)));
    }
    return request.Finish();
  }
  Status Begin(Request&& request) {
    Task task{};
    NEREID_ASSIGN_OR_RETURN(task.count, request.ScalarOr<int32_t>("COUNT", 1));
    NEREID_ASSIGN_OR_RETURN(task.interval_ms, request.ScalarOr<int32_t>("INTERVAL_MS", 0));
    NEREID_ASSIGN_OR_RETURN(task.size_bytes, request.ScalarOr<int32_t>("SIZE", 0));
    const std::lock_guard lock(mutex_);
    threads_.emplace_back([task](Request moved) { Run(std::move(moved), task); },
                          std::move(request));
    return {};
  }

  std::mutex mutex_;  // guards threads_
  std::list<std::thread> threads_;
};

}  // namespace

NEREID_BACKEND(Patient);
