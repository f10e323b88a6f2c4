// A decoupled backend whose single thread sends the responses of all its requests: COUNT responses
// (-1: endless) of SIZE bytes, INTERVAL_MS apart. It never waits for a reader: it asks whether a
// request has room for a response and goes on with the others. For tests of slow readers, and an
// example of nereid/ext/response_room.h.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <iterator>
#include <mutex>
#include <thread>
#include <vector>

#include "nereid/backend.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Stream {
  nereid::Request request;
  int32_t count = 0;
  int32_t size_bytes = 0;
  std::chrono::milliseconds interval{0};
  int32_t num_sent = 0;
  Clock::time_point next_time{};
};

class Fountain : public nereid::Model {
 public:
  nereid::Status Initialize() override {
    thread_ = std::thread([this] { Run(); });
    return {};
  }
  void Finalize() override {
    {
      const std::lock_guard lock(mutex_);
      is_stopping_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

  nereid::Status Execute(nereid::Batch& batch) override {
    for (nereid::Request& request : batch.Take()) {
      const nereid::Status status = Begin(std::move(request));
      if (!status.ok()) NEREID_RETURN_IF_ERROR(request.Fail(status));
    }
    return {};
  }

 private:
  nereid::Status Begin(nereid::Request&& request) {
    NEREID_ASSIGN_OR_RETURN(const int32_t count, request.ScalarOr<int32_t>("COUNT", 1));
    NEREID_ASSIGN_OR_RETURN(const int32_t size_bytes, request.ScalarOr<int32_t>("SIZE", 0));
    NEREID_ASSIGN_OR_RETURN(const int32_t interval_ms, request.ScalarOr<int32_t>("INTERVAL_MS", 0));
    NEREID_RETURN_IF_ERROR(request.sender().DisableWaiting());
    const std::lock_guard lock(mutex_);
    arrived_.push_back(
        {std::move(request), count, size_bytes, std::chrono::milliseconds(interval_ms)});
    changed_.notify_one();
    return {};
  }

  void Run() {
    std::vector<Stream> streams;
    while (true) {
      {
        std::unique_lock lock(mutex_);
        const auto has_work = [&] { return is_stopping_ || !arrived_.empty(); };
        if (streams.empty()) changed_.wait(lock, has_work);
        if (is_stopping_ && streams.empty() && arrived_.empty()) return;
        std::move(arrived_.begin(), arrived_.end(), std::back_inserter(streams));
        arrived_.clear();
      }
      const size_t num_sent = SendRound(streams);
      if (num_sent == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

  // Sends one response to each stream that is due and has room. Returns how many were sent.
  static size_t SendRound(std::vector<Stream>& streams) {
    size_t num_sent = 0;
    const auto now = Clock::now();
    std::erase_if(streams, [&](Stream& stream) {
      nereid::ResponseSender& sender = stream.request.sender();
      if (sender.IsCancelled()) {
        (void)sender.Fail(nereid::CancelledError("fountain: cancelled"));
        return true;
      }
      if (now < stream.next_time || !sender.HasRoom()) return false;
      if (stream.count >= 0 && stream.num_sent == stream.count) {
        (void)sender.Finish();
        return true;
      }
      const nereid::Status sent = SendOne(stream);
      if (!sent.ok()) (void)sender.Fail(sent);
      ++num_sent;
      stream.next_time = now + stream.interval;
      return !sender.is_open();
    });
    return num_sent;
  }

  static nereid::Status SendOne(Stream& stream) {
    nereid::ResponseSender& sender = stream.request.sender();
    NEREID_ASSIGN_OR_RETURN(nereid::Response response, sender.NewResponse());
    NEREID_RETURN_IF_ERROR(
        response.SetOutput<int32_t>("TICK", {1}, std::span(&stream.num_sent, 1)));
    NEREID_ASSIGN_OR_RETURN(const auto data, response.Output<uint8_t>("DATA", {stream.size_bytes}));
    std::fill(data.begin(), data.end(), static_cast<uint8_t>(stream.num_sent));
    ++stream.num_sent;
    return sender.Send(std::move(response));
  }

  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::vector<Stream> arrived_;
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace

NEREID_BACKEND(Fountain);
