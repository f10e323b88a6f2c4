// Writes replies and streams, and continues with the next request.
#include <charconv>
#include <new>

#include "host/frontend/http/transport/http_connection.h"
#include "host/frontend/http/transport/http_status.h"
#include "host/frontend/http/transport/loop_connections.h"

namespace nereid::http {
namespace {

// Buffer for the next text to send. It is reused per thread, so that a reply needs no allocation.
std::string& Scratch() {
  thread_local std::string scratch;
  scratch.clear();
  return scratch;
}

void AppendNumber(std::string& text, size_t value, int base = 10) {
  char digits[24];
  const auto result = std::to_chars(digits, digits + sizeof(digits), value, base);
  text.append(digits, result.ptr);
}

}  // namespace

void HttpConnection::AppendHead(std::string& text, const ResponseHead& head) {
  if (notes_ != nullptr) notes_->status = head.status;
  text += "HTTP/1.1 ";
  AppendNumber(text, head.status);
  text += ' ';
  text += ReasonPhrase(head.status);
  if (!head.content_type.empty()) {
    text += "\r\nContent-Type: ";
    text += head.content_type;
  }
  text += "\r\n";
  text += head.extra_headers;
  text += added_headers_;
  if (IsLast()) {
    text += "Connection: close\r\n";
  } else if (head_.is_http10) {
    text += "Connection: keep-alive\r\n";
  }
}

void HttpConnection::Reply(const ResponseHead& head, std::string_view body) {
  const OutputSegment segment{body};
  ReplySegments(head, {&segment, 1}, nullptr);
}

void HttpConnection::ReplySegments(const ResponseHead& head, std::span<const OutputSegment> body,
                                   std::shared_ptr<const void> bytes_owner) {
  if (state_ != State::kRunning) return;
  call_ = nullptr;
  size_t body_bytes = 0;
  for (const OutputSegment& segment : body) body_bytes += segment.bytes.size();

  std::string& text = Scratch();
  AppendHead(text, head);
  text += "Content-Length: ";
  AppendNumber(text, body_bytes);
  text += "\r\n\r\n";
  if (head_.method == Method::kHead) {
    const OutputSegment only_head{text};
    WriteOut({&only_head, 1}, nullptr);
  } else if (body.size() == 1 && !body[0].is_borrowed && body_bytes < 4096) {
    text += body[0].bytes;
    const OutputSegment all{text};
    WriteOut({&all, 1}, nullptr);
  } else {
    std::vector<OutputSegment> segments{{text}};
    segments.insert(segments.end(), body.begin(), body.end());
    WriteOut(segments, std::move(bytes_owner));
  }
  FinishRequest();
}

void HttpConnection::BeginStream(const ResponseHead& head) {
  if (state_ != State::kRunning) return;
  is_stream_ = true;
  is_chunked_stream_ = !head_.is_http10;
  if (!is_chunked_stream_) head_.keep_alive = false;
  std::string& text = Scratch();
  AppendHead(text, head);
  text += is_chunked_stream_ ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n";
  const OutputSegment segment{text};
  WriteOut({&segment, 1}, nullptr);
}

void HttpConnection::SendChunk(std::string_view bytes) {
  if (state_ != State::kRunning || bytes.empty()) return;
  std::string& text = Scratch();
  if (is_chunked_stream_) {
    AppendNumber(text, bytes.size(), 16);
    text += "\r\n";
  }
  text += bytes;
  if (is_chunked_stream_) text += "\r\n";
  const OutputSegment segment{text};
  WriteOut({&segment, 1}, nullptr);
}

void HttpConnection::EndStream() {
  if (state_ != State::kRunning) return;
  call_ = nullptr;
  if (is_chunked_stream_) {
    const OutputSegment last{"0\r\n\r\n"};
    WriteOut({&last, 1}, nullptr);
  }
  FinishRequest();
}

void HttpConnection::WriteOut(std::span<const OutputSegment> segments,
                              std::shared_ptr<const void> bytes_owner) {
  if (state_ == State::kClosed) return;
  has_sent_response_ = state_ == State::kRunning;
  const bool was_empty = output_.empty();
  if (was_empty) progress_s_ = owner_.now_s();
  switch (output_.Send(fd_, segments, std::move(bytes_owner))) {
    case OutputQueue::Outcome::kDrained:
      break;
    case OutputQueue::Outcome::kBlocked:
      if (was_empty) BeginWritePeriod(progress_s_);
      WatchWrites(true);
      break;
    case OutputQueue::Outcome::kFailed:
      Close();
      break;
  }
}

void HttpConnection::FailForMemory(const InFlightCall* call) noexcept {
  const bool is_next = call_ != nullptr && call_ != call;  // a pipelined request has begun
  if (state_ == State::kRunning && !has_sent_response_ && !is_next) {
    try {
      return ReplyRefusal(503, "cannot allocate memory for the request or its response");
    } catch (const std::bad_alloc&) {
      // Not even for the error.
    }
  }
  Close();
}

// The response is complete, though perhaps not sent yet.
void HttpConnection::FinishRequest() {
  if (state_ == State::kClosed) return;
  owner_.OnRequestEnd();
  input_.Erase(0, head_bytes_);
  head_bytes_ = 0;
  added_headers_.clear();
  notes_.reset();
  kept_.reset();
  is_stream_ = has_sent_response_ = false;
  request_start_s_ = progress_s_ = owner_.now_s();
  if (IsLast()) {
    state_ = State::kFlushing;
    WatchReads(false);
    if (output_.empty()) Linger();
    return;
  }
  state_ = State::kHead;
  WatchReads(true);
  ProcessInput();
}

void HttpConnection::OnOutputFlushed() {
  if (state_ == State::kFlushing) {
    Linger();
  } else if (state_ == State::kHead && is_draining_ && !is_kept_open_) {
    Close();  // it was open only to send its response
  } else if (state_ == State::kHead) {
    WatchReads(true);
    ProcessInput();
  }
}

void ReplyError(HttpConnection& connection, const Status& status, HttpStatusMapping mapping) {
  connection.Reply({.status = mapping(status)}, ErrorBody(status.message()));
}

}  // namespace nereid::http
