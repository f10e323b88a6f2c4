// A gRPC server over real sockets whose services answer from other threads, for tests that drive it
// with raw frames.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "host/frontend/grpc/transport/http2_server.h"
#include "tests/host/frontend/grpc/raw_client.h"

namespace nereid::grpc {

constexpr char kEcho[] = "/test/Echo";
constexpr char kEchoStream[] = "/test/EchoStream";
constexpr char kNever[] = "/test/Never";
constexpr char kFullStream[] = "/test/FullStream";
constexpr char kSize[] = "/test/Size";
constexpr char kMetadata[] = "/test/Metadata";

// Two threads on which services answer.
class Workers {
 public:
  Workers() {
    for (std::thread& thread : threads_) thread = std::thread([this] { Run(); });
  }
  ~Workers() {
    {
      const std::lock_guard lock(mutex_);
      is_stopping_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  void Post(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_one();
  }

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return is_stopping_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool is_stopping_ = false;
  std::thread threads_[2];
};

// State shared by all calls of a test.
struct TestContext {
  std::atomic<int> num_started{0};
  std::atomic<int> num_done{0};
  Workers workers;
};

// Answers from a worker thread, or never if started without a message; then it waits for
// cancellation.
class Echo final : public CallHandler, public std::enable_shared_from_this<Echo> {
 public:
  Echo(TestContext& context, Call& call) : context_(context), call_(call) {
    ++context_.num_started;
  }
  CallHandler* Start(const Slice* message) {
    self_ = shared_from_this();
    if (message != nullptr) {
      context_.workers.Post([self = self_, bytes = *message] {
        if (!self->is_finished_.exchange(true)) self->call_.FinishWith(WireMessage(bytes));
      });
    }
    return this;
  }

 private:
  void OnCancel() override {
    if (!is_finished_.exchange(true)) call_.Finish({GrpcCode::kCancelled, "cancelled"});
  }
  void OnDone() override {
    ++context_.num_done;
    self_.reset();
  }

  TestContext& context_;
  Call& call_;
  std::atomic<bool> is_finished_{false};
  std::shared_ptr<Echo> self_;
};

// Echoes each message from a worker thread.
class EchoStream final : public CallHandler, public std::enable_shared_from_this<EchoStream> {
 public:
  EchoStream(TestContext& context, Call& call) : context_(context), call_(call) {
    ++context_.num_started;
  }
  CallHandler* Start() {
    self_ = shared_from_this();
    call_.Read();
    return this;
  }

 private:
  void OnReadDone(const Slice* message) override {
    if (message == nullptr) return End();
    is_writing_ = true;
    context_.workers.Post(
        [self = self_, bytes = *message] { self->call_.Write(WireMessage(bytes)); });
  }
  void OnWriteDone() override {
    is_writing_ = false;
    if (is_end_requested_) return End();
    call_.Read();
  }
  void OnCancel() override { End(); }
  void OnDone() override {
    ++context_.num_done;
    self_.reset();
  }
  void End() {
    is_end_requested_ = true;
    if (is_writing_ || std::exchange(is_finished_, true)) return;
    call_.Finish({});
  }

  TestContext& context_;
  Call& call_;
  bool is_writing_ = false;
  bool is_end_requested_ = false;
  bool is_finished_ = false;
  std::shared_ptr<EchoStream> self_;
};

// Sends one message and holds back others until the client has read it, which it never has.
class FullStream final : public CallHandler, public std::enable_shared_from_this<FullStream> {
 public:
  FullStream(TestContext& context, Call& call) : context_(context), call_(call) {
    ++context_.num_started;
  }
  CallHandler* Start() {
    self_ = shared_from_this();
    call_.Write(WireMessage(Slice::Of(std::string(100'000, 'x'))));
    call_.SetFull(true);
    return this;
  }

 private:
  void OnWriteDone() override {
    is_written_ = true;
    if (is_cancelled_) call_.Finish({});
  }
  void OnCancel() override {
    is_cancelled_ = true;
    if (is_written_) call_.Finish({});
  }
  void OnDone() override {
    ++context_.num_done;
    self_.reset();
  }

  TestContext& context_;
  Call& call_;
  bool is_written_ = false;
  bool is_cancelled_ = false;
  std::shared_ptr<FullStream> self_;
};

class GrpcTransportTest : public testing::Test {
 protected:
  GrpcTransportTest() { options_.address = "127.0.0.1"; }
  void SetUp() override {
    options_.port = 0;
    methods_.Add(kEcho, {.unary =
                             [this](Call& call, const Slice& message) {
                               return std::make_shared<Echo>(context_, call)->Start(&message);
                             },
                         .stream = nullptr});
    methods_.Add(kNever, {.unary =
                              [this](Call& call, const Slice&) {
                                return std::make_shared<Echo>(context_, call)->Start(nullptr);
                              },
                          .stream = nullptr});
    methods_.Add(kSize,
                 {.unary = [this](Call& call, const Slice& message) -> CallHandler* {
                    ++context_.num_started;
                    call.FinishWith(WireMessage(Slice::Of(StrCat(message.bytes.size(), " bytes"))));
                    return nullptr;
                  },
                  .stream = nullptr});
    methods_.Add(kMetadata, {.unary = [](Call& call, const Slice&) -> CallHandler* {
                               std::string text;
                               for (const auto& [name, value] : call.metadata()) {
                                 text.append(name).append("=").append(value).append(";");
                               }
                               call.FinishWith(WireMessage(Slice::Of(std::move(text))));
                               return nullptr;
                             },
                             .stream = nullptr});
    methods_.Add(kEchoStream, {.unary = nullptr, .stream = [this](Call& call) {
                                 return std::make_shared<EchoStream>(context_, call)->Start();
                               }});
    methods_.Add(kFullStream, {.unary = nullptr, .stream = [this](Call& call) {
                                 return std::make_shared<FullStream>(context_, call)->Start();
                               }});
    auto server = Http2Server::Start(options_, methods_);
    ASSERT_TRUE(server.ok()) << server.status().message();
    server_ = std::move(server).value();
  }

  // Waits for the end of a stream: returns 0 for trailers, else the HTTP/2 error code of the reset.
  static uint32_t EndOf(RawClient& client, uint32_t stream) {
    RawClient::ReadFrame frame;
    while (client.Read(frame)) {
      if (frame.stream != stream) continue;
      if (frame.type == kReset) return static_cast<uint8_t>(frame.payload.back());
      if (frame.type == kHeaders && (frame.flags & kEndStream) != 0) return 0;
    }
    ADD_FAILURE() << "stream " << stream << ": the connection ended first";
    return UINT32_MAX;
  }

  TestContext context_;
  GrpcOptions options_;
  MethodTable methods_;
  std::unique_ptr<Http2Server> server_;
};

inline std::string WholeCall(uint32_t stream, std::string_view path, std::string_view message) {
  return Frame(kHeaders, kEndHeaders, stream, CallHeaders(path)) +
         Frame(kData, kEndStream, stream, Framed(message));
}

// Reads until all of these streams have ended, in whatever order. Returns the DATA of each.
inline std::map<uint32_t, std::string> DataOf(RawClient& client, std::set<uint32_t> streams) {
  std::map<uint32_t, std::string> data;
  RawClient::ReadFrame frame;
  while (!streams.empty() && client.Read(frame)) {
    if (streams.count(frame.stream) == 0) continue;
    if (frame.type == kData) data[frame.stream] += frame.payload;
    if (frame.type == kReset || (frame.flags & kEndStream) != 0) streams.erase(frame.stream);
  }
  EXPECT_TRUE(streams.empty()) << "stream " << *streams.begin() << ": the connection ended first";
  return data;
}

}  // namespace nereid::grpc
