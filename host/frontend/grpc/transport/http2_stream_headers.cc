// Reads the headers of a call: method, encodings, deadline and metadata.
#include "host/frontend/grpc/transport/header_text.h"
#include "host/frontend/grpc/transport/http2_stream.h"
#include "host/frontend/http/bodies/base64.h"

namespace nereid::grpc {
namespace {

// Per header, as HTTP/2 defines the size of a header list.
constexpr size_t kHeaderOverheadBytes = 32;

}  // namespace

void Http2Stream::OnHeader(std::string_view name, std::string_view value) {
  header_bytes_ += name.size() + value.size() + kHeaderOverheadBytes;
  if (header_bytes_ > kMaxHeaderBytes || is_started_ || is_rejected_) return;
  if (name.front() == ':') {
    if (name == ":path") path_ = value;
    if (name == ":method") is_post_ = value == "POST";
  } else if (name == "content-type") {
    is_grpc_ = StartsWithIgnoringCase(value, "application/grpc");
  } else if (name == "grpc-encoding") {
    const auto encoding = http::ParseContentEncoding(value);
    has_unknown_encoding_ = !encoding.has_value();
    encoding_ = encoding.value_or(http::Encoding::kIdentity);
  } else if (name == "grpc-accept-encoding") {
    accept_encoding_ = value;
  } else if (name == "grpc-timeout") {
    SetDeadline(value);
  } else if (name != "te") {
    StoreMetadata(name, value);
  }
}

void Http2Stream::StoreMetadata(std::string_view name, std::string_view value) {
  if (name.ends_with("-bin")) {
    StoreBinaryMetadata(name, value);
  } else {
    AppendMetadata(name, value);
  }
}

// `value` is one or more values in base64, separated by commas, as if each were a header.
void Http2Stream::StoreBinaryMetadata(std::string_view name, std::string_view value) {
  while (true) {
    const size_t comma = value.find(',');
    const auto decoded = http::DecodeBase64(TrimSpaces(value.substr(0, comma)));
    if (!decoded) {
      invalid_header_ = StrCat("header '", name, "': expected bytes in base64");
      return;
    }
    AppendMetadata(name, *decoded);
    if (comma == std::string_view::npos) return;
    value.remove_prefix(comma + 1);
  }
}

void Http2Stream::AppendMetadata(std::string_view name, std::string_view value) {
  const auto begin = static_cast<uint32_t>(metadata_text_.size());
  metadata_text_ += name;
  const auto middle = static_cast<uint32_t>(metadata_text_.size());
  metadata_text_ += value;
  metadata_offsets_.push_back({begin, middle, static_cast<uint32_t>(metadata_text_.size())});
}

void Http2Stream::BuildMetadataViews() {
  const std::string_view text = metadata_text_;
  metadata_.reserve(metadata_offsets_.size());
  for (const auto& [begin, middle, end] : metadata_offsets_) {
    metadata_.emplace_back(text.substr(begin, middle - begin), text.substr(middle, end - middle));
  }
}

}  // namespace nereid::grpc
