// Compressed bodies: gzip and deflate (RFC 9110, 8.4). Pure. [any thread]
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/byte_budget.h"
#include "host/frontend/http/transport/byte_buffer.h"
#include "nereid/status.h"

struct z_stream_s;  // zlib's z_stream

namespace nereid::http {

enum class Encoding { kIdentity, kGzip, kDeflate };

// Returns "gzip" or "deflate", and an empty string for kIdentity.
std::string_view EncodingName(Encoding encoding);

// Parses a Content-Encoding header. Returns none for any other encoding.
std::optional<Encoding> ParseContentEncoding(std::string_view header);

// Returns the supported encoding with the highest weight in an Accept-Encoding header, and the
// first one of equal weights. Returns kIdentity if the header names no supported encoding.
Encoding ChooseEncoding(std::string_view accept_header);

// Decompresses a body in steps, so that an event loop can serve others in between. Memory grows
// with the output. [one thread]
class Decompression {
 public:
  // `bytes`, a gzip or deflate body, and `budget` outlive the object. A null `budget` is unlimited.
  Decompression(std::string_view bytes, size_t max_bytes, ByteBudget* budget);
  ~Decompression();
  Decompression(const Decompression&) = delete;
  Decompression& operator=(const Decompression&) = delete;

  // Produces at most about `step_bytes` more. Returns true at the end of the body. INVALID_ARG if
  // the bytes are truncated, damaged or followed by further bytes, or if they expand to more than
  // `max_bytes`; UNAVAILABLE if the budget or the memory does not suffice.
  Result<bool> Step(size_t step_bytes);

  // True if the bytes expand to more than `max_bytes`.
  bool is_too_large() const { return out_.size() > max_bytes_; }
  // The output, after Step has returned true, and the reservation that stands for it.
  ByteBuffer TakeOutput() { return std::move(out_); }
  ByteReservation TakeReservation() { return std::move(reservation_); }

 private:
  Status MakeRoom();

  const size_t max_bytes_;
  const size_t packed_bytes_;
  std::string_view input_;  // not yet passed to the stream
  std::unique_ptr<z_stream_s> stream_;
  bool is_ready_ = false;
  ByteBuffer out_;
  ByteReservation reservation_;
};

// Compresses the concatenated `pieces` into one body.
std::string Compress(Encoding encoding, std::span<const std::string_view> pieces);

}  // namespace nereid::http
