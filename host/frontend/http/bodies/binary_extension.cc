// The length is in the protocol's header, or at the end of the Content-Type.
#include "host/frontend/http/bodies/binary_extension.h"

#include <charconv>

#include "host/frontend/http/json/json_writer.h"

namespace nereid::http {
namespace {

constexpr std::string_view kHeaderLength = "Inference-Header-Content-Length";

Result<size_t> ParseLength(std::string_view text, std::string_view what, size_t body_bytes) {
  size_t length = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), length);
  const bool is_whole = end == text.data() + text.size();
  if (error == std::errc() && is_whole && length <= body_bytes) return length;
  const bool is_number = !text.empty() && text.find_first_not_of("0123456789", text[0] == '-') ==
                                              std::string_view::npos;
  if (is_number && text != "-") {
    return InvalidArgError("inference header size should be in range (0, ", body_bytes,
                           "), got: ", text);
  }
  return InvalidArgError(what, ": expected a number of bytes, got '", text, "'");
}

}  // namespace

Result<size_t> JsonLength(const RequestHead& head, std::string_view content_type,
                          size_t body_bytes) {
  if (content_type.empty()) {
    const std::string_view text = head.Header(kHeaderLength);
    return text.data() == nullptr ? body_bytes : ParseLength(text, kHeaderLength, body_bytes);
  }
  const std::string_view given = head.Header("Content-Type");
  if (given.starts_with(content_type)) {
    return ParseLength(given.substr(content_type.size()), "Content-Type", body_bytes);
  }
  if (given.find(content_type) != std::string_view::npos) {
    return InvalidArgError("Content-Type: expected '", content_type, "<bytes>', got '", given, "'");
  }
  return body_bytes;
}

BinaryResponseHead::BinaryResponseHead(std::string_view content_type, size_t json_bytes,
                                       std::string_view extra_headers) {
  if (content_type.empty()) {
    extra_headers_ = kHeaderLength;
    extra_headers_ += ": ";
    AppendJsonUint(extra_headers_, json_bytes);
    extra_headers_ += "\r\n";
    extra_headers_ += extra_headers;
  } else {
    content_type_ = content_type;
    AppendJsonUint(content_type_, json_bytes);
    extra_headers_ = extra_headers;
  }
}

}  // namespace nereid::http
