// One client's socket: reads requests one at a time, hands each to the service, writes its answer,
// and notices at once when the client leaves, whatever the connection is doing. [loop thread]
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "host/frontend/http/transport/byte_buffer.h"
#include "host/frontend/http/transport/chunked_decoder.h"
#include "host/frontend/http/transport/limits.h"
#include "host/frontend/http/transport/output_queue.h"
#include "host/frontend/http/transport/request.h"
#include "host/frontend/http/transport/service.h"
#include "host/frontend/http/transport/tls_session.h"
#include "nereid/status.h"

struct event;

namespace nereid::http {

class EventLoop;
class LoopConnections;

// The first lines of an answer. `extra_headers` are whole lines, each with its CR LF.
struct ReplyHead {
  int status = 200;
  std::string_view content_type = "application/json";
  std::string_view extra_headers = {};
};

class Connection {
 public:
  // Takes `fd`. `owner` keeps the connection and outlives it, as the others do.
  Connection(int fd, EventLoop& loop, LoopConnections& owner, Service& service,
             const Limits& limits);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  // `tls` is null on a port without TLS.
  Status Open(const TlsContext* tls);

  // ---- for services: answer the request at hand, exactly once, in one of two ways
  void Reply(const ReplyHead& head, std::string_view body);
  // `keep` owns the blocks among the pieces until they are sent.
  void ReplyPieces(const ReplyHead& head, std::span<const OutPiece> body,
                   std::shared_ptr<const void> keep);
  // A body whose end is not known: chunked, or until the connection closes where the client's HTTP
  // is too old for that. SendChunk may find that the client left or reads too slowly: then it calls
  // OnDisconnect before it returns.
  void BeginStream(const ReplyHead& head);
  void SendChunk(std::string_view bytes);
  void EndStream();

  // The answer comes later; `call` hears when the client leaves before it is whole.
  void BeginCall(ActiveCall* call) { call_ = call; }
  // The client had requests of sequences, which may go on while the server stops: the connection is
  // left to it until EndDrain.
  void KeepForSequences();
  // Gives the client up, as if it had left: the call hears of it, nothing more is sent.
  void Abort() { Close(); }

  EventLoop& loop() { return loop_; }
  const Limits& limits() const { return limits_; }
  // When the first bytes of the request at hand were read, by the steady clock.
  uint64_t request_start_ns() const { return request_start_ns_; }
  size_t unsent_bytes() const { return output_.unsent_bytes(); }

  // ---- for the owner
  // Once a second: closes what idles or stalls for too long.
  void OnTick(int64_t now_s);
  // The server is stopping: no further request on this connection, unless it is kept.
  void BeginDrain();
  // None on any.
  void EndDrain();
  bool has_request() const { return state_ == State::kRunning; }

 private:
  // kHead -> kBody -> kRunning -> kHead; any -> kFlushing -> kLingering -> kClosed; any -> kClosed.
  enum class State { kHead, kBody, kRunning, kFlushing, kLingering, kClosed };

  static void OnReadEvent(int fd, short what, void* self);
  static void OnWriteEvent(int fd, short what, void* self);

  // connection.cc: the socket and its life.
  void OnReadable();
  void ReadOnce();
  ssize_t Receive(char* data, size_t size);
  void OnReadError();
  void OnPeerClosed();
  void OnWritable();
  ByteBuffer& ReadTarget();
  bool HasStalled(int64_t now_s) const;
  void WatchReads(bool on);
  void WatchWrites(bool on);
  void GiveUpSequences();
  bool IsLast() const;
  void Linger();
  void Close();

  // connection_input.cc: bytes to requests.
  void ProcessInput();
  bool TakeHead();
  bool PrepareBody();
  void PlaceBody();
  bool TakeBody();
  bool TakeChunks();
  void Dispatch();
  void Refuse(int status, std::string_view reason);

  // connection_output.cc: answers to bytes.
  void AppendHead(std::string& text, const ReplyHead& head);
  void WriteOut(std::span<const OutPiece> pieces, std::shared_ptr<const void> keep);
  void FinishRequest();
  void OnDrained();

  EventLoop& loop_;
  LoopConnections& owner_;
  Service& service_;
  const Limits& limits_;
  int fd_;
  std::unique_ptr<TlsSession> tls_;
  event* read_event_ = nullptr;    // data or end of data
  event* hangup_event_ = nullptr;  // end of data alone, while reading is paused
  event* write_event_ = nullptr;

  State state_ = State::kHead;
  bool is_processing_ = false;  // ProcessInput is on the stack
  bool is_draining_ = false;
  bool is_kept_ = false;
  bool peer_closed_ = false;
  bool watches_reads_ = false;
  bool watches_writes_ = false;
  bool is_chunked_stream_ = false;
  int64_t progress_s_ = 0;  // when bytes last moved
  uint64_t request_start_ns_ = 0;
  int64_t request_start_s_ = 0;  // when the first byte of the request at hand came

  ByteBuffer input_;         // the head of the request at hand, then what follows it
  size_t head_scanned_ = 0;  // how far input_ was searched for the end of the head
  size_t head_bytes_ = 0;    // of the request at hand, once found
  RequestHead head_;         // its views point into input_
  ByteBuffer body_;          // of a request that does not fit into input_, or is chunked
  std::optional<ChunkedDecoder> chunks_;
  // Of a body whose place is not known before so many of its bytes are here.
  std::optional<size_t> first_part_;

  OutputQueue output_;  // after tls_, which it uses
  ActiveCall* call_ = nullptr;
};

}  // namespace nereid::http
