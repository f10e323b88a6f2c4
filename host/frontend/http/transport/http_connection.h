// One client's connection: reads one request at a time, passes it to the service and writes the
// response. It detects at once, in every state, that the client disconnects. [loop thread]
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "host/frontend/http/transport/byte_buffer.h"
#include "host/frontend/http/transport/chunked_decoder.h"
#include "host/frontend/http/transport/http_request.h"
#include "host/frontend/http/transport/http_service.h"
#include "host/frontend/http/transport/http_status.h"
#include "host/frontend/http/transport/output_queue.h"
#include "host/frontend/http/transport/request_notes.h"
#include "nereid/status.h"
#include "net/client_table.h"
#include "net/peer.h"
#include "net/tls_session.h"

struct event;

namespace nereid::net {
class EventLoop;
}  // namespace nereid::net

namespace nereid::http {

class LoopConnections;

// Status line and headers of a response. `extra_headers` are whole lines, each with its CR LF.
struct ResponseHead {
  int status = 200;
  std::string_view content_type = "application/json";
  std::string_view extra_headers = {};
};

class HttpConnection {
 public:
  // Takes ownership of `fd`. `owner` owns the connection. All references outlive it.
  HttpConnection(int fd, net::EventLoop& loop, LoopConnections& owner, HttpService& service,
                 const HttpLimits& limits);
  ~HttpConnection();
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;
  // `tls` is null on a port without TLS.
  Status Open(const net::TlsContext* tls);

  // ---- For services: answer the current request exactly once, with a reply or with a stream.
  void Reply(const ResponseHead& head, std::string_view body);
  // Adds whole header lines to the response of the current request, however it is answered.
  void AddResponseHeaders(std::string_view lines) { added_headers_ += lines; }
  // Keeps an object alive until the response of the current request is complete, or the connection
  // is closed.
  void KeepUntilAnswered(std::shared_ptr<const void> object) { kept_ = std::move(object); }
  // Sends the response without copying its borrowed segments. `bytes_owner` keeps their bytes alive
  // until they are sent.
  void ReplySegments(const ResponseHead& head, std::span<const OutputSegment> body,
                     std::shared_ptr<const void> bytes_owner);
  // Sends a body of unknown length: chunked, or until the connection closes if the client uses
  // HTTP/1.0. SendChunk may detect that the client has disconnected. It then calls OnDisconnect
  // before it returns. It queues what the client has not read yet: the caller bounds unsent_bytes()
  // and learns from InFlightCall::OnOutputSent when these decrease.
  void BeginStream(const ResponseHead& head);
  void SendChunk(std::string_view bytes);
  void EndStream();

  // Notes about the current request; null if nobody wants any.
  void SetNotes(std::shared_ptr<RequestNotes> notes) { notes_ = std::move(notes); }
  RequestNotes* notes() { return notes_.get(); }

  // Answers with an error in the form of the service's refusals.
  void Refuse(const Status& status);

  // The response follows later. `call` is notified if the client disconnects before the response is
  // complete.
  void BeginCall(InFlightCall* call) { call_ = call; }
  // The client has sent requests of sequences, which may continue while the server shuts down. The
  // connection therefore stays open until EndDrain.
  void KeepOpenForSequences();
  // Closes the connection as if the client had disconnected. The call is notified.
  void Abort() { Close(); }
  // Ends the request of `call`, for which or for whose response memory is exhausted: with 503, in
  // the form of the service's refusals, if none of the response was sent, else by closing the
  // connection.
  void FailForMemory(const InFlightCall* call) noexcept;

  net::EventLoop& loop() { return loop_; }
  // True if the client's socket is on this machine; false if it is closed.
  bool IsPeerLocal() const { return net::IsPeerLocal(fd_); }
  const HttpLimits& limits() const { return limits_; }
  // Counts the bodies of this client's requests; null if they are not limited.
  ByteBudget* budget() const {
    return limits_.clients != nullptr ? client_.budget() : limits_.budget;
  }
  // Time at which the first bytes of the current request were read, by the steady clock.
  uint64_t request_start_ns() const { return request_start_ns_; }
  size_t unsent_bytes() const { return output_.unsent_bytes(); }

  // ---- For the owner.
  // False if the client has too many connections. Open must not be called then.
  bool is_admitted() const { return client_.is_admitted(); }
  // Called once a second. Closes a connection that exceeds a timeout.
  void OnTick(int64_t now_s);
  // The server shuts down: accepts no further request, unless the connection is kept open for
  // sequences.
  void BeginDrain();
  // From now on connections kept open for sequences accept no further request either.
  void EndDrain();

 private:
  // kHead -> kBody -> kRunning -> kHead; any -> kFlushing -> kLingering -> kClosed; any -> kClosed.
  enum class State { kHead, kBody, kRunning, kFlushing, kLingering, kClosed };

  static void OnReadEvent(int fd, short what, void* self);
  static void OnWriteEvent(int fd, short what, void* self);

  static void OnResetEvent(int fd, short what, void* self);

  // What the connection waits for on the client's side: bytes, the client's end while reading is
  // paused, or, once the client has ended its side, only that it closes the socket altogether.
  enum class Watch { kNothing, kReads, kEnd, kReset };

  // http_connection.cc: socket events, timeouts and closing.
  template <typename Work>
  void CloseIfOutOfMemory(const Work& work);
  void OnReadable();
  void ReadOnce();
  ssize_t Receive(char* data, size_t size);
  void OnReadError();
  void OnPeerClosed();
  void OnWritable();
  ByteBuffer& ReadTarget();
  bool HasStalled(int64_t now_s) const;
  void BeginWritePeriod(int64_t now_s);
  bool ReadsTooSlowly(int64_t now_s);
  void WatchReads(bool on);
  void WatchFor(Watch watch);
  event* EventOf(Watch watch);
  void OnRequestEnded();
  void WatchWrites(bool on);
  void StopKeepingOpen();
  bool IsLast() const;
  void Linger();
  void Close();

  // http_connection_input.cc: parsing of requests.
  void ProcessInput();
  bool ParseNextHead();
  bool PrepareBody();
  void AllocateBody();
  bool GrowBody();
  bool ReadBody();
  bool ReadOwnBody();
  bool DecodeChunks();
  bool DiscardBody();
  void MakeRoomBehindHead();
  void Dispatch();
  RequestBody TakeBody();
  void HandleRequest(RequestBody&& body);
  void RefuseBody(Status reason);
  void RejectRequest(int status, std::string_view reason);
  void ReplyRefusal(int status, std::string_view reason);
  // Triton's text for a body of `size` bytes, which depends on what the body should contain.
  std::string TooLarge(std::string_view size) const;
  static Status CannotAllocate(uint64_t body_bytes);

  // http_connection_output.cc: writing of responses.
  void AppendHead(std::string& text, const ResponseHead& head);
  void WriteOut(std::span<const OutputSegment> segments, std::shared_ptr<const void> bytes_owner);
  void FinishRequest();
  void OnOutputFlushed();

  net::EventLoop& loop_;
  LoopConnections& owner_;
  HttpService& service_;
  const HttpLimits& limits_;
  int fd_;
  const net::ClientPlace client_;
  std::unique_ptr<net::TlsSession> tls_;
  event* read_event_ = nullptr;    // readable or closed by the client
  event* hangup_event_ = nullptr;  // closed by the client; used while reading is paused
  event* reset_event_ = nullptr;   // null until the client ends its side during a request
  event* write_event_ = nullptr;

  State state_ = State::kHead;
  bool is_processing_ = false;  // ProcessInput is on the stack
  bool is_draining_ = false;
  bool is_kept_open_ = false;
  bool peer_closed_ = false;
  Watch watch_ = Watch::kNothing;
  bool watches_writes_ = false;
  bool is_stream_ = false;  // the head of a streamed response has been sent
  bool is_chunked_stream_ = false;
  bool has_sent_response_ = false;  // a part of the current request's response
  int64_t progress_s_ = 0;          // time of the last transferred byte
  // A period of write_timeout_s while bytes wait: its start, and what was unsent and sent then.
  int64_t write_period_s_ = 0;
  size_t write_period_unsent_ = 0;
  uint64_t write_period_sent_ = 0;
  uint64_t request_start_ns_ = 0;
  int64_t request_start_s_ = 0;  // arrival of the first byte of the current request

  ByteBuffer input_;         // the head of the current request, then the bytes that follow it
  size_t head_scanned_ = 0;  // number of bytes of input_ already searched for the end of the head
  size_t head_bytes_ = 0;    // length of the current request's head, once it is complete
  RequestHead head_;         // its views point into input_
  ByteBuffer body_;          // body of a request that does not fit into input_, or is chunked
  std::optional<ChunkedDecoder> chunks_;
  // Set until so many bytes of a large body have arrived that posted memory can be acquired for the
  // rest.
  std::optional<size_t> num_leading_bytes_;
  uint64_t received_bytes_ = 0;       // of the current request's body
  ByteReservation body_reservation_;  // stands for what has arrived of body_
  // Set if the current request is refused although the connection goes on: its body is read and
  // dropped before the request is answered with this error.
  std::optional<Status> refusal_;

  std::string added_headers_;  // of the current response
  std::shared_ptr<RequestNotes> notes_;
  std::shared_ptr<const void> kept_;  // until the current request is answered

  OutputQueue output_;  // declared after tls_, which it uses
  InFlightCall* call_ = nullptr;
};

// Answers the current request with an error.
void ReplyError(HttpConnection& connection, const Status& status,
                HttpStatusMapping mapping = &DefaultHttpStatus);

}  // namespace nereid::http
