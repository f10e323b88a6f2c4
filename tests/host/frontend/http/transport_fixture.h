// A service for tests of the HTTP transport, and the fixture that starts a server with it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "base/byte_budget.h"
#include "host/frontend/http/transport/http_connection.h"
#include "host/frontend/http/transport/http_server.h"
#include "net/event_loop.h"

namespace nereid::http {

inline bool Eventually(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

// /echo answers with the body. /sequence does the same and keeps its connection open for sequences.
// /big answers with a borrowed megabyte. /wait never answers. /later answers with the body after
// AnswerWaiting. /stream sends until its client disconnects, and pauses while more than the limit
// is unsent. /posted receives everything after the leading bytes in posted memory, if there is any.
class TestService final : public HttpService {
 public:
  static constexpr size_t kNumLeadingBytes = 10;

  void Handle(HttpConnection& connection, const RequestHead& head, RequestBody&& body) override {
    if (head.path == "/sequence") connection.KeepOpenForSequences();
    if (head.path == "/wait" || head.path == "/stream" || head.path == "/later") {
      auto* call = new WaitingCall(*this, connection);
      connection.BeginCall(call);
      if (head.path == "/stream") call->Stream();
      if (head.path == "/later") call->AnswerLater(body.bytes());
    } else if (head.path == "/big") {
      const auto block = std::make_shared<std::string>(1 << 20, 'b');
      const OutputSegment pieces[] = {{"<"}, {*block, true}, {">"}};
      connection.ReplySegments({}, pieces, block);
    } else if (body.posted.external_owner() != nullptr) {
      ++num_received_in_posted;
      EXPECT_EQ(body.posted.data(), posted_memory->data());
      connection.Reply({.content_type = "text/plain"}, StrCat(body.bytes(), body.posted.view()));
    } else {
      connection.Reply({.content_type = "text/plain"}, body.bytes());
    }
  }

  std::optional<size_t> NumLeadingBytes(const RequestHead& head, uint64_t) override {
    if (head.path != "/posted") return std::nullopt;
    return num_leading_bytes;
  }
  PostedMemory AcquirePostedMemory(const RequestHead&, uint64_t rest_bytes) override {
    if (posted_memory == nullptr || posted_memory->size() < rest_bytes) return {};
    ++num_posted;
    return {posted_memory, posted_memory->data()};
  }

  // Answers the last request to /later.
  void AnswerWaiting() {
    ASSERT_TRUE(Eventually([&] { return waiting_loop_ != nullptr; }));
    net::EventLoop* const loop = waiting_loop_.exchange(nullptr);
    loop->PostFunction(std::exchange(answer_waiting_, {}));
  }

  std::atomic<int> num_waiting{0};
  size_t num_leading_bytes = kNumLeadingBytes;
  std::shared_ptr<std::string> posted_memory;  // set before the server starts
  std::atomic<int> num_posted{0}, num_received_in_posted{0};
  std::atomic<int> num_disconnects{0};
  std::atomic<int> num_pauses{0};
  std::atomic<size_t> max_unsent_bytes{0};

 private:
  class WaitingCall final : public InFlightCall, public net::LoopTask {
   public:
    WaitingCall(TestService& service, HttpConnection& connection)
        : service_(service), connection_(&connection), loop_(connection.loop()) {
      ++service_.num_waiting;
    }

    void AnswerLater(std::string_view body) {
      service_.answer_waiting_ = [this, text = std::string(body)] {
        if (connection_ != nullptr) connection_->Reply({.content_type = "text/plain"}, text);
        delete this;
      };
      service_.waiting_loop_ = &loop_;
    }

    void Stream() {
      connection_->BeginStream({.content_type = "text/event-stream"});
      if (connection_ != nullptr) loop_.Post(this);
    }

   private:
    void RunOnLoop() override {
      if (connection_ == nullptr) {
        delete this;
        return;
      }
      is_posted_ = true;
      connection_->SendChunk(std::string(10000, 's'));
      if (connection_ != nullptr) {
        const size_t unsent_bytes = connection_->unsent_bytes();
        service_.max_unsent_bytes = std::max(service_.max_unsent_bytes.load(), unsent_bytes);
        is_posted_ = unsent_bytes <= connection_->limits().max_unsent_bytes;
      }
      if (is_posted_) loop_.Post(this);
      if (!is_posted_) ++service_.num_pauses;
    }

    void OnOutputSent(size_t unsent_bytes) override {
      if (is_posted_ || unsent_bytes > connection_->limits().max_unsent_bytes) return;
      is_posted_ = true;
      loop_.Post(this);
    }

    void OnDisconnect() override {
      connection_ = nullptr;
      ++service_.num_disconnects;
      if (!is_posted_) delete this;
    }

    TestService& service_;
    HttpConnection* connection_;
    net::EventLoop& loop_;
    bool is_posted_ = false;  // to the loop
  };

  std::function<void()> answer_waiting_;  // written by the loop before waiting_loop_
  std::atomic<net::EventLoop*> waiting_loop_{nullptr};
};

class HttpConnectionTest : public ::testing::Test {
 protected:
  void Start(const HttpLimits& limits = {}) {
    HttpServerOptions options;
    options.address = "127.0.0.1";
    options.port = 0;
    options.num_threads = 2;
    options.limits = limits;
    Result<std::unique_ptr<HttpServer>> server = HttpServer::Start(options, service_);
    ASSERT_TRUE(server.ok()) << server.status().message();
    server_ = *std::move(server);
  }

  static std::string Post(std::string_view path, std::string_view body) {
    return StrCat("POST ", path, " HTTP/1.1\r\nHost: x\r\nContent-Length: ", body.size(),
                  "\r\n\r\n", body);
  }

  TestService service_;
  std::optional<ByteBudget> budget_;  // outlives the connections that count against it
  std::unique_ptr<HttpServer> server_;
};

}  // namespace nereid::http
