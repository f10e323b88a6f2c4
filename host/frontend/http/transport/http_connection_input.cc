// Parses requests, one at a time. The next one is parsed only after the previous response has been
// written to the socket. http_connection_body.cc receives bodies that do not fit into the buffer.
#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include "host/frontend/http/transport/http_connection.h"
#include "host/frontend/http/transport/http_request.h"
#include "host/frontend/http/transport/http_status.h"
#include "host/frontend/http/transport/loop_connections.h"

namespace nereid::http {
namespace {

constexpr uint64_t kMaxCopiedBody = 4096;

uint64_t SteadyNowNs() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

}  // namespace

// Not re-entrant: a response that is sent inside Dispatch returns to this loop.
void HttpConnection::ProcessInput() {
  if (is_processing_) return;
  is_processing_ = true;
  while (true) {
    if (state_ == State::kHead && output_.empty() && ParseNextHead()) continue;
    if (state_ == State::kBody && ReadBody()) {
      Dispatch();
      continue;
    }
    break;
  }
  is_processing_ = false;
}

// Returns true if the head is complete and valid, so that the body can be read.
bool HttpConnection::ParseNextHead() {
  if (head_scanned_ == 0) {
    // Empty lines before a request are allowed (RFC 9112, 2.2).
    size_t blank = 0;
    while (input_.view().substr(blank, 2) == "\r\n") blank += 2;
    input_.Erase(0, blank);
  }
  if (input_.empty()) return false;
  if (head_scanned_ == 0) request_start_ns_ = SteadyNowNs();
  const std::optional<size_t> end = FindHeadEnd(input_.view(), head_scanned_);
  if (!end && input_.size() < limits_.max_head_bytes) {
    head_scanned_ = input_.view() == "\r" ? 0 : input_.size();  // half of an empty line so far
    return false;
  }
  if (!end || *end > limits_.max_head_bytes) {
    head_ = RequestHead();  // its views belong to an earlier request
    RejectRequest(431, StrCat("the request header exceeds the maximum of ", limits_.max_head_bytes,
                              " bytes (--http-max-header-size)"));
    return false;
  }
  head_bytes_ = *end;
  head_scanned_ = 0;
  if (const auto error = ParseHead(input_.view().substr(0, head_bytes_), limits_, head_)) {
    RejectRequest(error->status, error->reason);
    return false;
  }
  return PrepareBody();
}

bool HttpConnection::PrepareBody() {
  const uint64_t length = head_.content_length.value_or(0);
  if (length > limits_.max_body_bytes) {
    RejectRequest(413, TooLarge(std::to_string(length)));
    return false;
  }
  const bool fits = !head_.is_chunked && head_bytes_ + length <= input_.capacity();
  if (!fits && !service_.AwaitsBody(*this, head_)) {
    head_.keep_alive = false;  // the body is not read
    state_ = State::kRunning;
    owner_.OnRequestStart();
    service_.Handle(*this, head_, RequestBody());
    return false;
  }
  state_ = State::kBody;
  received_bytes_ = input_.size() - head_bytes_;
  if (head_.is_chunked) {
    chunks_.emplace(limits_.max_body_bytes);
    MakeRoomBehindHead();
  } else if (head_bytes_ + length > input_.capacity()) {
    num_leading_bytes_ = service_.NumLeadingBytes(head_, length);
    if (num_leading_bytes_ && head_bytes_ + *num_leading_bytes_ > input_.capacity())
      num_leading_bytes_.reset();
    if (!num_leading_bytes_) AllocateBody();
  }
  if (head_.expects_continue && refusal_) {
    const std::string reason = refusal_->message();
    RejectRequest(503, reason);
  } else if (head_.expects_continue && input_.size() == head_bytes_ && body_.empty()) {
    const OutputSegment go_on{"HTTP/1.1 100 Continue\r\n\r\n"};
    WriteOut({&go_on, 1}, nullptr);
  }
  return state_ == State::kBody;
}

// Returns true if the body is complete.
bool HttpConnection::ReadBody() {
  if (refusal_) return DiscardBody();
  if (chunks_) return DecodeChunks();
  if (num_leading_bytes_) {
    if (input_.size() < head_bytes_ + *num_leading_bytes_) return false;
    AllocateBody();
    if (refusal_) return DiscardBody();
  }
  if (body_.external_owner() != nullptr) return body_.free_bytes() == 0;
  if (body_.capacity() != 0) return ReadOwnBody();
  return input_.size() >= head_bytes_ + head_.content_length.value_or(0);
}

void HttpConnection::Dispatch() {
  RequestBody body = TakeBody();
  state_ = State::kRunning;
  owner_.OnRequestStart();
  HandleRequest(std::move(body));
}

RequestBody HttpConnection::TakeBody() {
  RequestBody body;
  if (refusal_) {
    chunks_.reset();
    body_ = ByteBuffer();
    return body;
  }
  body.reservation = std::exchange(body_reservation_, ByteReservation(budget()));
  const uint64_t length = head_.content_length.value_or(0);
  if (body_.external_owner() != nullptr) {
    const std::string_view first = input_.view().substr(head_bytes_);
    body.memory = ByteBuffer(first.size());
    body.memory.Append(first);
    input_.Truncate(head_bytes_);
    body.posted = std::move(body_);
  } else if (chunks_ || body_.capacity() != 0) {
    body.memory = std::move(body_);
    chunks_.reset();
  } else if (length != 0 && length <= kMaxCopiedBody) {
    // The connection keeps its buffer: a new buffer for each request would cost more than the copy.
    body.memory = ByteBuffer(length);
    body.memory.Append(input_.view().substr(head_bytes_, length));
    input_.Erase(head_bytes_, length);
  } else if (length != 0) {
    // The body follows its head in input_. The service gets that memory, and the connection keeps
    // the bytes of the next request.
    ByteBuffer rest;
    const std::string_view next = input_.view().substr(head_bytes_ + length);
    if (!next.empty()) {
      rest = ByteBuffer(std::max(next.size(), input_.capacity()));
      rest.Append(next);
    }
    body.offset = head_bytes_;
    body.memory = std::move(input_);
    body.memory.Truncate(head_bytes_ + length);
    input_ = std::move(rest);
    head_bytes_ = 0;
  }
  return body;
}

// Requests whose size exceeds the free memory end here, with an answer and nothing else.
void HttpConnection::HandleRequest(RequestBody&& body) {
  const size_t body_bytes = body.bytes().size() + body.posted.size();
  try {
    if (const auto refusal = std::exchange(refusal_, std::nullopt)) {
      return Refuse(*refusal);
    }
    service_.Handle(*this, head_, std::move(body));
  } catch (const std::bad_alloc&) {
    if (state_ != State::kRunning || call_ != nullptr) return Close();
    Refuse(CannotAllocate(body_bytes));
  }
}

// Answers a malformed or too large request and closes the connection, because the start of the next
// request is unknown.
void HttpConnection::RejectRequest(int status, std::string_view reason) {
  head_.keep_alive = false;
  chunks_.reset();
  refusal_.reset();
  body_ = ByteBuffer();
  body_reservation_.Clear();
  state_ = State::kRunning;
  owner_.OnRequestStart();
  ReplyRefusal(status, reason);
}

void HttpConnection::Refuse(const Status& status) {
  ReplyRefusal(DefaultHttpStatus(status), status.message());
}

void HttpConnection::ReplyRefusal(int status, std::string_view reason) {
  const HttpService::Refusal refusal = service_.Refuse(head_, status, reason);
  Reply({.status = refusal.status}, refusal.body);
}

}  // namespace nereid::http
