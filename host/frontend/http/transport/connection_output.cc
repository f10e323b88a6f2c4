// From answers to bytes: whole replies and streams, and what comes after them.
#include <charconv>

#include "host/frontend/http/transport/connection.h"
#include "host/frontend/http/transport/loop_connections.h"
#include "host/frontend/http/transport/status_text.h"

namespace nereid::http {
namespace {

// The text that goes out next; kept per thread, so that a reply allocates nothing for it.
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

void Connection::AppendHead(std::string& text, const ReplyHead& head) {
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
  if (IsLast()) {
    text += "Connection: close\r\n";
  } else if (head_.is_http10) {
    text += "Connection: keep-alive\r\n";
  }
}

void Connection::Reply(const ReplyHead& head, std::string_view body) {
  const OutPiece piece{body};
  ReplyPieces(head, {&piece, 1}, nullptr);
}

void Connection::ReplyPieces(const ReplyHead& head, std::span<const OutPiece> body,
                             std::shared_ptr<const void> keep) {
  if (state_ != State::kRunning) return;
  call_ = nullptr;
  size_t body_bytes = 0;
  for (const OutPiece& piece : body) body_bytes += piece.bytes.size();

  std::string& text = Scratch();
  AppendHead(text, head);
  text += "Content-Length: ";
  AppendNumber(text, body_bytes);
  text += "\r\n\r\n";
  if (head_.method == Method::kHead) {
    const OutPiece only_head{text};
    WriteOut({&only_head, 1}, nullptr);
  } else if (body.size() == 1 && !body[0].is_block && body_bytes < 4096) {
    text += body[0].bytes;
    const OutPiece all{text};
    WriteOut({&all, 1}, nullptr);
  } else {
    std::vector<OutPiece> pieces{{text}};
    pieces.insert(pieces.end(), body.begin(), body.end());
    WriteOut(pieces, std::move(keep));
  }
  FinishRequest();
}

void Connection::BeginStream(const ReplyHead& head) {
  if (state_ != State::kRunning) return;
  is_chunked_stream_ = !head_.is_http10;
  if (!is_chunked_stream_) head_.keep_alive = false;
  std::string& text = Scratch();
  AppendHead(text, head);
  text += is_chunked_stream_ ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n";
  const OutPiece piece{text};
  WriteOut({&piece, 1}, nullptr);
}

void Connection::SendChunk(std::string_view bytes) {
  if (state_ != State::kRunning || bytes.empty()) return;
  std::string& text = Scratch();
  if (is_chunked_stream_) {
    AppendNumber(text, bytes.size(), 16);
    text += "\r\n";
  }
  text += bytes;
  if (is_chunked_stream_) text += "\r\n";
  const OutPiece piece{text};
  WriteOut({&piece, 1}, nullptr);
  // A client that does not read must not make the server keep its stream.
  if (output_.unsent_bytes() > limits_.max_unsent_bytes) Close();
}

void Connection::EndStream() {
  if (state_ != State::kRunning) return;
  call_ = nullptr;
  if (is_chunked_stream_) {
    const OutPiece last{"0\r\n\r\n"};
    WriteOut({&last, 1}, nullptr);
  }
  FinishRequest();
}

void Connection::WriteOut(std::span<const OutPiece> pieces, std::shared_ptr<const void> keep) {
  if (state_ == State::kClosed) return;
  if (output_.empty()) progress_s_ = owner_.now_s();
  switch (output_.Send(fd_, pieces, std::move(keep))) {
    case OutputQueue::Outcome::kDrained:
      break;
    case OutputQueue::Outcome::kBlocked:
      WatchWrites(true);
      break;
    case OutputQueue::Outcome::kFailed:
      Close();
      break;
  }
}

// The answer is whole, if not yet sent.
void Connection::FinishRequest() {
  if (state_ == State::kClosed) return;
  owner_.OnAnswer();
  input_.Erase(0, head_bytes_);
  head_bytes_ = 0;
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

void Connection::OnDrained() {
  if (state_ == State::kFlushing) {
    Linger();
  } else if (state_ == State::kHead && is_draining_ && !is_kept_) {
    Close();  // what it promised to keep was open for its answer alone
  } else if (state_ == State::kHead) {
    WatchReads(true);
    ProcessInput();
  }
}

}  // namespace nereid::http
