// One client's socket and its HTTP/2 session. Streams of the session are the client's calls.
// [loop thread]
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "host/frontend/grpc/grpc_options.h"
#include "host/frontend/grpc/method_table.h"
#include "host/frontend/grpc/transport/ping_strikes.h"
#include "host/frontend/grpc/transport/send_buffer.h"
#include "host/frontend/http/transport/event_loop.h"
#include "host/frontend/http/transport/tls_session.h"
#include "nereid/status.h"

struct event;
struct nghttp2_session;

namespace nereid::rpc {

class Stream;

// What the connections of a server share; outlives them.
struct Shared {
  const GrpcOptions& options;
  const MethodTable& methods;
  const TlsContext* tls = nullptr;   // null: plain
  std::atomic<size_t> num_calls{0};  // whose service has not heard of their end
};

class Connection final : private http::LoopTask {
 public:
  // Takes `fd`. `on_closed` is called once, after which the connection may be retired.
  Connection(int fd, http::EventLoop& loop, Shared& shared,
             std::function<void(Connection*)> on_closed);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  Status Open();

  // Takes no new call; ends with the last of those under way, or after `grace_ms` unless that is 0.
  void BeginDrain(int64_t grace_ms);
  // Cancels what is under way.
  void Close();

  // ---- for streams
  http::EventLoop& loop() { return loop_; }
  nghttp2_session* session() { return session_; }
  const GrpcOptions& options() const { return shared_.options; }
  const MethodTable& methods() const { return shared_.methods; }
  std::atomic<size_t>& num_calls() { return shared_.num_calls; }
  void Link(Stream* stream);
  void Unlink(Stream* stream);
  // One more, or one fewer, whole answer waits for its client to read it.
  void CountAnswer(bool waits) { num_unread_answers_ += waits ? 1 : size_t{0} - 1; }
  // Something may be there to send: once the loop has done what is posted.
  void FlushSoon();
  // The client may send as many bytes more.
  void Consume(int32_t stream_id, size_t count);
  void ConsumeStream(int32_t stream_id, size_t count);
  void ConsumeConnection(size_t count);

 private:
  friend struct SessionEvents;

  static void OnReadEvent(int fd, short what, void* self);
  static void OnWriteEvent(int fd, short what, void* self);
  static void OnTimerEvent(int fd, short what, void* self);

  void RunOnLoop() override;  // the flush that FlushSoon promised
  Status OpenSession();
  void OnReadable();
  ssize_t Receive(char* data, size_t size);
  void Flush();
  void WriteOut();
  bool FillFromSession();
  void WatchWrites(bool on);
  // All that is to be said is said: lets the client read it, then closes.
  void Linger();

  // connection_timers.cc
  void StartTimers();
  void OnTimer();
  void SetTimer(int64_t now_ms);
  void CheckKeepalive(int64_t now_ms);
  void WatchAnswers();
  void LookAtAnswers(int64_t now_ms);
  void OnRead();
  void OnPing();
  void OnPingAck();
  void SendLastGoaway();
  void OnDataSent();

  http::EventLoop& loop_;
  Shared& shared_;
  const std::function<void(Connection*)> on_closed_;
  int fd_;
  std::unique_ptr<http::TlsSession> tls_;
  nghttp2_session* session_ = nullptr;
  event* read_event_ = nullptr;
  event* write_event_ = nullptr;
  event* timer_event_ = nullptr;
  SendBuffer out_;
  Stream* first_stream_ = nullptr;
  size_t num_streams_ = 0;
  size_t num_unread_answers_ = 0;

  bool is_closed_ = false;
  bool is_lingering_ = false;
  bool is_flush_posted_ = false;
  bool watches_writes_ = false;
  bool is_draining_ = false;
  bool is_last_goaway_sent_ = false;
  bool is_sent_away_ = false;
  bool has_settings_ = false;  // the client's

  PingStrikes strikes_;
  int64_t opened_ms_ = 0;
  int64_t age_end_ms_ = 0;
  int64_t quiet_since_ms_ = 0;
  int64_t ping_sent_ms_ = 0;  // 0: none is under way
  int pings_without_data_ = 0;
  int64_t drain_begin_ms_ = 0;
  int64_t drain_end_ms_ = 0;
  int64_t linger_end_ms_ = 0;
  int64_t next_look_ms_ = 0;  // at answers that are not read; 0: none was left over
};

}  // namespace nereid::rpc
