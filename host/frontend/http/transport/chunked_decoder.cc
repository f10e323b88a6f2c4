// A chunked body consists of size lines, data, a line end after each data, and a trailer.
#include "host/frontend/http/transport/chunked_decoder.h"

#include <algorithm>
#include <charconv>

#include "host/frontend/http/transport/http_request.h"

namespace nereid::http {
namespace {
constexpr size_t kMaxTrailerBytes = 8192;
}

void ChunkedDecoder::ReadSizeLine(std::string_view line) {
  const std::string_view digits = line.substr(0, line.find(';'));  // extensions are ignored
  if (HasControlCharacter(
          line)) {  // for instance a bare CR, which some servers take for a line end
    state_ = State::kMalformed;
    return;
  }
  const char* end = digits.data() + digits.size();
  while (end != digits.data() && (end[-1] == ' ' || end[-1] == '\t')) --end;
  const auto [stop, error] = std::from_chars(digits.data(), end, chunk_left_, 16);
  if (error != std::errc() || stop != end) {
    state_ = State::kMalformed;
  } else if (chunk_left_ > max_body_bytes_ - body_bytes_) {
    state_ = State::kTooLarge;
  } else {
    state_ = chunk_left_ == 0 ? State::kTrailer : State::kData;
  }
}

// Collects one line, which may arrive in parts, and processes it once it is complete.
size_t ChunkedDecoder::ConsumeLine(std::string_view bytes) {
  const size_t newline = bytes.find('\n');
  const size_t count = newline == std::string_view::npos ? bytes.size() : newline + 1;
  if (count > sizeof(line_) - line_size_) {
    state_ = State::kMalformed;
    return 0;
  }
  std::copy_n(bytes.data(), count, line_ + line_size_);
  line_size_ += count;
  if (newline == std::string_view::npos) return count;

  const std::string_view line(line_, line_size_);
  line_size_ = 0;
  if (line.size() < 2 || line[line.size() - 2] != '\r') {
    state_ = State::kMalformed;
    return count;
  }
  const std::string_view text = line.substr(0, line.size() - 2);
  if (state_ == State::kSizeLine) {
    ReadSizeLine(text);
  } else if (state_ == State::kDataEnd) {
    state_ = text.empty() ? State::kSizeLine : State::kMalformed;
  } else if (text.empty()) {
    state_ = State::kDone;
  } else if ((trailer_bytes_ += line.size()) > kMaxTrailerBytes || !IsHeaderLine(text)) {
    state_ = State::kMalformed;
  }
  return count;
}

size_t ChunkedDecoder::Consume(std::string_view bytes, ByteBuffer& body) {
  size_t consumed = 0;
  while (consumed < bytes.size() && state_ < State::kDone) {
    const std::string_view rest = bytes.substr(consumed);
    if (state_ != State::kData) {
      consumed += ConsumeLine(rest);
      continue;
    }
    const size_t count = std::min<uint64_t>(rest.size(), chunk_left_);
    body.Append(rest.substr(0, count));
    body_bytes_ += count;
    chunk_left_ -= count;
    consumed += count;
    if (chunk_left_ == 0) state_ = State::kDataEnd;
  }
  return consumed;
}

}  // namespace nereid::http
