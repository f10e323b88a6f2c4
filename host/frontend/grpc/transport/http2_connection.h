// One client's socket and its HTTP/2 session. Each stream of the session is one call. [loop thread]
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string_view>

#include "host/frontend/grpc/call.h"
#include "host/frontend/grpc/grpc_options.h"
#include "host/frontend/grpc/transport/ping_strikes.h"
#include "host/frontend/grpc/transport/send_buffer.h"
#include "host/frontend/grpc/transport/stream_ids.h"
#include "nereid/status.h"
#include "net/client_table.h"
#include "net/event_loop.h"
#include "net/peer.h"
#include "net/tls_session.h"

struct event;
struct nghttp2_session;

namespace nereid::grpc {

class Http2Stream;

// State shared by the connections of a server. Outlives them.
struct TransportContext {
  const GrpcOptions& options;
  const MethodTable& methods;
  const net::TlsContext* tls = nullptr;  // null: plain text
  std::atomic<size_t> num_calls{0};      // calls whose handler has not yet received OnDone
  std::atomic<uint64_t> num_started{0};  // all calls so far
};

class Http2Connection final : private net::LoopTask {
 public:
  // Takes ownership of `fd`. `on_closed` is called once, when the connection is closed; the owner
  // may then destroy the connection.
  Http2Connection(int fd, net::EventLoop& loop, TransportContext& context,
                  std::function<void(Http2Connection*)> on_closed);
  ~Http2Connection();
  Http2Connection(const Http2Connection&) = delete;
  Http2Connection& operator=(const Http2Connection&) = delete;
  // False if the client has too many connections. Open must not be called then.
  bool is_admitted() const { return client_.is_admitted(); }
  Status Open();

  // Rejects new calls. The connection closes with the last call in flight, or after `grace_ms`
  // unless that is 0.
  void BeginDrain(int64_t grace_ms);
  // Closes the connection at once and cancels its calls.
  void Close();

  // ---- for streams
  net::EventLoop& loop() { return loop_; }
  nghttp2_session* session() { return session_; }
  const GrpcOptions& options() const { return context_.options; }
  ByteBudget* budget() const { return budget_share_.budget(); }
  const MethodTable& methods() const { return context_.methods; }
  bool IsPeerLocal() const { return net::IsPeerLocal(fd_); }
  std::atomic<size_t>& num_calls() { return context_.num_calls; }
  void CountStartedCall() { context_.num_started.fetch_add(1, std::memory_order_relaxed); }
  void Link(Http2Stream* stream);
  void Unlink(Http2Stream* stream);
  // Counts unary responses that the client has not read completely, and full streams.
  void CountPendingResponse(bool is_pending) {
    num_pending_responses_ += is_pending ? 1 : size_t{0} - 1;
  }
  // Counts streams that wait for the rest of a request.
  void CountReceiving(bool is_receiving) { num_receiving_ += is_receiving ? 1 : size_t{0} - 1; }
  // Calls ContinueDecompression of that stream, if it still exists, after the loop has served
  // other connections.
  void ContinueLater(int32_t stream_id);
  // Schedules the next check for idle streams, if there is a limit.
  void StartIdleCheck();
  // Schedules a flush, which runs after the tasks that are already posted to the loop.
  void FlushSoon();
  // Returns flow-control window of `count` received bytes to the client.
  void Consume(int32_t stream_id, size_t count);
  void ConsumeStream(int32_t stream_id, size_t count);
  void ConsumeConnection(size_t count);

 private:
  friend struct SessionCallbacks;

  struct DecompressionTask final : net::LoopTask {
    explicit DecompressionTask(Http2Connection& owner) : connection(owner) {}
    void RunOnLoop() override { connection.ContinueDecompression(); }
    Http2Connection& connection;
  };

  static void OnReadEvent(int fd, short what, void* self);
  static void OnWriteEvent(int fd, short what, void* self);
  static void OnTimerEvent(int fd, short what, void* self);

  template <typename Work>
  void CloseIfOutOfMemory(const Work& work);
  void RunOnLoop() override;  // runs the flush that FlushSoon scheduled
  void OnReadable();
  ssize_t Receive(char* data, size_t size);
  void Flush();
  void WriteOut();
  bool FillFromSession();
  void WatchWrites(bool on);
  void ContinueDecompression();
  void OnHeadersFrame(int32_t stream_id);
  bool HasTooManyFramesQueued() const;
  // Everything is sent: shuts down the sending side and waits for the client to close.
  void Linger();

  // Defined in http2_connection_timers.cc.
  void StartTimers();
  void OnTimer();
  void SetTimer(int64_t now_ms);
  void CheckKeepalive(int64_t now_ms);
  void StartUnreadCheck();
  void CheckUnreadResponses(int64_t now_ms);
  void StartStallCheck();
  void CheckStalledRequests(int64_t now_ms);
  void CheckIdleStreams(int64_t now_ms);
  void OnRead();
  void OnPing();
  void OnPingAck();
  void SendLastGoaway();
  void OnDataSent();

  net::EventLoop& loop_;
  TransportContext& context_;
  const std::function<void(Http2Connection*)> on_closed_;
  int fd_;
  const net::ClientPlace client_;
  BudgetShare budget_share_;  // of the client's
  std::unique_ptr<net::TlsSession> tls_;
  nghttp2_session* session_ = nullptr;
  event* read_event_ = nullptr;
  event* write_event_ = nullptr;
  event* timer_event_ = nullptr;
  SendBuffer out_;
  Http2Stream* first_stream_ = nullptr;
  size_t num_streams_ = 0;
  size_t num_pending_responses_ = 0;
  size_t num_receiving_ = 0;
  StreamIds stream_ids_;
  DecompressionTask decompression_task_{*this};
  std::deque<int32_t> decompressing_ids_;  // of streams that wait for their next step
  bool is_decompression_posted_ = false;

  bool is_closed_ = false;
  bool is_lingering_ = false;
  bool is_flush_posted_ = false;
  bool is_watching_writes_ = false;
  bool is_draining_ = false;
  bool is_last_goaway_sent_ = false;
  bool is_closing_for_pings_ = false;
  bool has_settings_ = false;  // the client's SETTINGS frame has arrived

  PingStrikes strikes_;
  int64_t opened_ms_ = 0;
  int64_t age_end_ms_ = 0;
  int64_t idle_since_ms_ = 0;
  int64_t ping_sent_ms_ = 0;  // 0: no ping is pending
  int pings_without_data_ = 0;
  int64_t drain_begin_ms_ = 0;
  int64_t drain_end_ms_ = 0;
  int64_t linger_end_ms_ = 0;
  int64_t next_unread_check_ms_ = 0;  // of unread responses; 0: none is scheduled
  bool is_blocked_at_check_ = false;  // the socket had not accepted everything at the last check
  uint64_t sent_bytes_at_check_ = 0;
  int64_t next_stall_check_ms_ = 0;  // of requests that stop arriving; 0: none is scheduled
  int64_t next_idle_check_ms_ = 0;   // of streams on which nothing is sent; 0: none is scheduled
};

// [loop thread] Creates the nghttp2 session of `connection` and submits the server's SETTINGS; null
// if memory is exhausted.
nghttp2_session* NewSession(Http2Connection& connection, const GrpcOptions& options);

}  // namespace nereid::grpc
