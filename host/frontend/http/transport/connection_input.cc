// From bytes to a request: one at a time, the next only when the answer before it is on its way.
#include <algorithm>
#include <chrono>

#include "host/frontend/http/transport/connection.h"
#include "host/frontend/http/transport/head_parser.h"
#include "host/frontend/http/transport/loop_connections.h"
#include "host/frontend/http/transport/status_text.h"

namespace nereid::http {
namespace {

constexpr uint64_t kMaxCopiedBody = 4096;

uint64_t SteadyNowNs() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

// `size`: in bytes. The words are those of Triton's later versions.
std::string TooLarge(std::string_view size, const Limits& limits) {
  return StrCat("request size of ", size, " bytes exceeds the maximum allowed input size of ",
                limits.max_body_bytes, " bytes. Use --http-max-input-size to increase the limit.");
}

}  // namespace

// Not re-entrant: an answer that is given inside Dispatch returns to this loop.
void Connection::ProcessInput() {
  if (is_processing_) return;
  is_processing_ = true;
  while (true) {
    if (state_ == State::kHead && output_.empty() && TakeHead()) continue;
    if (state_ == State::kBody && TakeBody()) {
      Dispatch();
      continue;
    }
    break;
  }
  is_processing_ = false;
}

// True when the head is whole and the request is worth its body.
bool Connection::TakeHead() {
  if (head_scanned_ == 0) {
    // Empty lines before a request are allowed for.
    size_t blank = 0;
    while (input_.view().substr(blank, 2) == "\r\n") blank += 2;
    input_.Erase(0, blank);
  }
  if (input_.empty()) return false;
  if (head_scanned_ == 0) request_start_ns_ = SteadyNowNs();
  const std::optional<size_t> end = FindHeadEnd(input_.view(), head_scanned_);
  if (!end && input_.size() < limits_.max_head_bytes) {
    head_scanned_ = input_.view() == "\r" ? 0 : input_.size();  // half of an empty line, so far
    return false;
  }
  if (!end || *end > limits_.max_head_bytes) {
    Refuse(431, "request header is too large");
    return false;
  }
  head_bytes_ = *end;
  head_scanned_ = 0;
  if (const auto error = ParseHead(input_.view().substr(0, head_bytes_), limits_, head_)) {
    Refuse(error->status, error->reason);
    return false;
  }
  return PrepareBody();
}

bool Connection::PrepareBody() {
  const uint64_t length = head_.content_length.value_or(0);
  if (length > limits_.max_body_bytes) {
    Refuse(413, TooLarge(std::to_string(length), limits_));
    return false;
  }
  state_ = State::kBody;
  if (head_.is_chunked) {
    chunks_.emplace(limits_.max_body_bytes);
    if (input_.free_bytes() < 4096) {
      // Room to read into while the head stays where it is; then its views are made anew.
      input_.Grow(input_.capacity() * 2);
      (void)ParseHead(input_.view().substr(0, head_bytes_), limits_, head_);
    }
  } else if (head_bytes_ + length > input_.capacity()) {
    first_part_ = service_.FirstPart(head_, length);
    if (first_part_ && head_bytes_ + *first_part_ > input_.capacity()) first_part_.reset();
    if (!first_part_) PlaceBody();
  }
  if (head_.expects_continue && input_.size() == head_bytes_ && body_.empty()) {
    const OutPiece go_on{"HTTP/1.1 100 Continue\r\n\r\n"};
    WriteOut({&go_on, 1}, nullptr);
  }
  return state_ == State::kBody;
}

// The body is too long for input_: it gets memory of its own, or all behind its first part the
// place that is offered for it.
void Connection::PlaceBody() {
  const uint64_t length = *head_.content_length;
  size_t first_bytes = 0;
  BodyPlace place;
  if (first_part_) place = service_.OfferPlace(head_, length - *first_part_);
  if (place.lender != nullptr) {
    first_bytes = *first_part_;
    body_ = ByteBuffer(std::move(place.lender), place.base, length - first_bytes);
  } else {
    body_ = ByteBuffer(length);
  }
  first_part_.reset();
  body_.Append(input_.view().substr(head_bytes_ + first_bytes));
  input_.Truncate(head_bytes_ + first_bytes);
}

// True when the whole body is here.
bool Connection::TakeBody() {
  if (chunks_) return TakeChunks();
  if (first_part_) {
    if (input_.size() < head_bytes_ + *first_part_) return false;
    PlaceBody();
  }
  if (body_.capacity() != 0) return body_.free_bytes() == 0;
  return input_.size() >= head_bytes_ + head_.content_length.value_or(0);
}

bool Connection::TakeChunks() {
  const size_t consumed = chunks_->Consume(input_.view().substr(head_bytes_), body_);
  input_.Erase(head_bytes_, consumed);
  switch (chunks_->state()) {
    case ChunkedDecoder::State::kDone:
      return true;
    case ChunkedDecoder::State::kMalformed:
      Refuse(400, "malformed chunked request body");
      return false;
    case ChunkedDecoder::State::kTooLarge:
      Refuse(413, TooLarge("more", limits_));
      return false;
    default:
      return false;
  }
}

void Connection::Dispatch() {
  Body body;
  const uint64_t length = head_.content_length.value_or(0);
  if (body_.lender() != nullptr) {
    const std::string_view first = input_.view().substr(head_bytes_);
    body.memory = ByteBuffer(first.size());
    body.memory.Append(first);
    input_.Truncate(head_bytes_);
    body.rest = std::move(body_);
  } else if (chunks_ || body_.capacity() != 0) {
    body.memory = std::move(body_);
    chunks_.reset();
  } else if (length != 0 && length <= kMaxCopiedBody) {
    // The connection keeps its buffer: another one a request would cost more than the copy.
    body.memory = ByteBuffer(length);
    body.memory.Append(input_.view().substr(head_bytes_, length));
    input_.Erase(head_bytes_, length);
  } else if (length != 0) {
    // The body lies behind its head: the service gets the memory, the connection keeps what
    // follows.
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
  state_ = State::kRunning;
  owner_.OnRequest();
  service_.Handle(*this, head_, std::move(body));
}

// Answers a request that is not understood or too large, then ends the connection: where the next
// request would begin is not known.
void Connection::Refuse(int status, std::string_view reason) {
  head_.keep_alive = false;
  chunks_.reset();
  body_ = ByteBuffer();
  state_ = State::kRunning;
  owner_.OnRequest();
  Reply({.status = status}, ErrorBody(reason));
}

}  // namespace nereid::http
