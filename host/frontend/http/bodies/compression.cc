// Compression with zlib.
#include "host/frontend/http/bodies/compression.h"

#include <zlib.h>

#include <algorithm>
#include <charconv>

#include "host/frontend/http/transport/http_request.h"

namespace nereid::http {
namespace {

constexpr int kGzipWindow = MAX_WBITS + 16;
constexpr int kAnyWindow = MAX_WBITS + 32;  // gzip or zlib, detected from the first bytes

std::string_view Trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// Returns the weight in ";q=0.5" in thousandths, and 1000 if there is none.
int Weight(std::string_view parameters) {
  const size_t at = parameters.find("q=");
  if (at == std::string_view::npos) return 1000;
  double weight = 1;
  const char* const begin = parameters.data() + at + 2;
  std::from_chars(begin, parameters.data() + parameters.size(), weight);
  return static_cast<int>(std::clamp(weight, 0.0, 1.0) * 1000);
}

}  // namespace

std::string_view EncodingName(Encoding encoding) {
  switch (encoding) {
    case Encoding::kGzip:
      return "gzip";
    case Encoding::kDeflate:
      return "deflate";
    default:
      return "";
  }
}

std::optional<Encoding> ParseContentEncoding(std::string_view header) {
  header = Trim(header);
  if (header.empty() || EqualsIgnoreCase(header, "identity")) return Encoding::kIdentity;
  if (EqualsIgnoreCase(header, "gzip") || EqualsIgnoreCase(header, "x-gzip")) {
    return Encoding::kGzip;
  }
  if (EqualsIgnoreCase(header, "deflate")) return Encoding::kDeflate;
  return std::nullopt;
}

Encoding ChooseEncoding(std::string_view accept_header) {
  Encoding best = Encoding::kIdentity;
  int best_weight = 0;
  while (!accept_header.empty()) {
    const size_t comma = accept_header.find(',');
    std::string_view item = accept_header.substr(0, comma);
    accept_header.remove_prefix(comma == std::string_view::npos ? accept_header.size() : comma + 1);
    const size_t semicolon = item.find(';');
    const int weight = semicolon == std::string_view::npos ? 1000 : Weight(item.substr(semicolon));
    item = Trim(item.substr(0, semicolon));
    if (item.empty()) continue;
    const std::optional<Encoding> encoding = ParseContentEncoding(item);
    if (!encoding || weight <= best_weight) continue;
    best = *encoding;
    best_weight = weight;
  }
  return best;
}

Decompression::Decompression(std::string_view bytes, size_t max_bytes, ByteBudget* budget)
    : max_bytes_(max_bytes),
      packed_bytes_(bytes.size()),
      input_(bytes),
      stream_(std::make_unique<z_stream>()),
      reservation_(budget) {
  is_ready_ = inflateInit2(stream_.get(), kAnyWindow) == Z_OK;
}

Decompression::~Decompression() {
  if (is_ready_) inflateEnd(stream_.get());
}

// Doubles the output, at least to the expected size. One byte beyond the limit is enough to detect
// that the body exceeds it.
Status Decompression::MakeRoom() {
  const size_t expected_bytes = std::max<size_t>(packed_bytes_ * 2, 4096);
  const size_t capacity = std::min(max_bytes_, std::max(expected_bytes, out_.capacity() * 2)) + 1;
  if (!reservation_.GrowTo(capacity)) {
    return UnavailableError("a decompressed body of more than ", out_.size(),
                            " bytes exceeds the free memory for requests in flight");
  }
  if (out_.TryReserve(capacity)) return Status::Ok();
  return UnavailableError("cannot allocate ", capacity, " bytes for a decompressed body");
}

Result<bool> Decompression::Step(size_t step_bytes) {
  if (!is_ready_) return UnavailableError("decompression: not enough memory");
  const size_t end = out_.size() + step_bytes;
  int state = Z_OK;
  while (state == Z_OK && out_.size() < end) {
    if (stream_->avail_in == 0) {
      const size_t count = std::min<size_t>(input_.size(), UINT32_MAX);
      stream_->next_in = reinterpret_cast<Bytef*>(const_cast<char*>(input_.data()));
      stream_->avail_in = static_cast<uInt>(count);
      input_.remove_prefix(count);
    }
    if (out_.free_bytes() == 0) NEREID_RETURN_IF_ERROR(MakeRoom());
    const size_t free_bytes = std::min({out_.free_bytes(), end - out_.size(), size_t{UINT32_MAX}});
    stream_->next_out = reinterpret_cast<Bytef*>(out_.tail());
    stream_->avail_out = static_cast<uInt>(free_bytes);
    state = inflate(stream_.get(), Z_NO_FLUSH);
    out_.AddFilled(free_bytes - stream_->avail_out);
    if (is_too_large()) {
      return InvalidArgError("Decompressed data size exceeds the maximum allowed value of ",
                             max_bytes_, " bytes.");
    }
  }
  if (state == Z_OK) return false;
  if (state == Z_STREAM_END && stream_->avail_in + input_.size() == 0) return true;
  if (state == Z_STREAM_END) return InvalidArgError("unexpected bytes follow the compressed body");
  if (state == Z_BUF_ERROR) return InvalidArgError("the compressed body is truncated");
  return InvalidArgError("the compressed body is damaged after ", stream_->total_in, " bytes");
}

std::string Compress(Encoding encoding, std::span<const std::string_view> pieces) {
  z_stream stream{};
  // Fast, because the caller is an event loop that other connections wait for.
  if (deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED,
                   encoding == Encoding::kGzip ? kGzipWindow : MAX_WBITS, 8,
                   Z_DEFAULT_STRATEGY) != Z_OK) {
    throw std::bad_alloc();
  }
  std::string out;
  char block[16384];
  const auto drain = [&](int flush) {
    int state;
    do {
      stream.next_out = reinterpret_cast<Bytef*>(block);
      stream.avail_out = sizeof(block);
      state = deflate(&stream, flush);
      out.append(block, sizeof(block) - stream.avail_out);
    } while (stream.avail_out == 0 || (flush == Z_FINISH && state != Z_STREAM_END));
  };
  for (std::string_view piece : pieces) {
    while (!piece.empty()) {
      const size_t count = std::min<size_t>(piece.size(), UINT32_MAX);
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(piece.data()));
      stream.avail_in = static_cast<uInt>(count);
      drain(Z_NO_FLUSH);
      piece.remove_prefix(count);
    }
  }
  drain(Z_FINISH);
  deflateEnd(&stream);
  return out;
}

}  // namespace nereid::http
