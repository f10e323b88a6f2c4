// An HTTP request before an endpoint interprets it, and the strict parser of its head (RFC 9112).
// The views of the head point into the connection's memory and are valid until the endpoint
// returns. The body is owned. [loop thread; the parser: any thread]
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/byte_budget.h"
#include "host/frontend/http/transport/byte_buffer.h"

namespace nereid::net {
class ClientTable;
}  // namespace nereid::net

namespace nereid::http {

// Limits on what a client may use of the server. Each value has a flag. Shared read-only by all
// connections.
struct HttpLimits {
  size_t max_head_bytes = 64 * 1024;         // request line and headers together
  size_t max_headers = 128;                  // header lines
  size_t max_body_bytes = size_t{64} << 20;  // --http-max-input-size
  size_t max_connections = 16384;            // open at a time, over all threads
  // Nesting of a JSON body: 100 levels of a tensor's data, and the three levels around them.
  size_t max_json_depth = 103;
  size_t max_unsent_bytes = size_t{16} << 20;  // of a stream that its client does not read
  int idle_timeout_s = 600;                    // between two requests of a connection
  int read_timeout_s = 60;                     // without progress while a request arrives
  int write_timeout_s = 60;                    // without progress while a response is sent
  // Counts the bodies of all requests in flight. Outlives the server. Null: they are not limited.
  ByteBudget* budget = nullptr;
  // Limits what one client may use, and has the same budget. Outlives the server. Null: none is
  // limited.
  net::ClientTable* clients = nullptr;
};

// The values are libevhtp's, because Triton's log prints them.
enum class Method : uint8_t { kGet, kHead, kPost, kPut, kDelete, kOptions = 8, kOther = 16 };

// Header names compare without case. Of a repeated header the first one is found.
struct RequestHead {
  Method method = Method::kOther;
  std::string_view path;   // before '?'
  std::string_view query;  // after '?', else empty
  bool is_http10 = false;
  bool keep_alive = true;
  bool expects_continue = false;
  bool is_chunked = false;
  std::optional<uint64_t> content_length;
  std::vector<std::pair<std::string_view, std::string_view>> headers;

  // Returns a view with null data() if the header is absent.
  std::string_view Header(std::string_view name) const;
};

// Memory that a model has posted for a part of a body. `external_owner` keeps it alive. A null
// `external_owner` means that none was posted.
struct PostedMemory {
  std::shared_ptr<const void> external_owner = nullptr;
  char* base = nullptr;
};

// A body and the memory that contains it, so that tensors may point into it.
struct RequestBody {
  ByteBuffer memory;
  size_t offset = 0;       // offset of the body in `memory`
  ByteBuffer posted = {};  // the following bytes, if they were received in posted memory
  // Stands for `memory`, unless that is part of a connection's fixed buffers, and for what is
  // derived from it.
  ByteReservation reservation = {};

  // Returns the body without the part in posted memory.
  std::string_view bytes() const { return memory.view().substr(offset); }
};

// Compares ASCII letters without case.
bool EqualsIgnoreCase(std::string_view a, std::string_view b);

// True if `text` contains a control character other than a tab.
bool HasControlCharacter(std::string_view text);

// True if `line`, without its CR LF, is a well-formed header line.
bool IsHeaderLine(std::string_view line);

// Returns the length of the head including its empty line, or none while it is incomplete. The
// search starts at `scanned`, where an earlier call with fewer bytes stopped.
std::optional<size_t> FindHeadEnd(std::string_view bytes, size_t scanned);

// The reason for rejecting a head, and the HTTP status to answer with.
struct HeadError {
  int status;
  const char* reason;
};

// Parses a complete head into `head`, whose views point into `text`. Returns none on success. Every
// head that two servers could interpret differently is rejected, so that no request can be smuggled
// past a proxy.
std::optional<HeadError> ParseHead(std::string_view text, const HttpLimits& limits,
                                   RequestHead& head);

}  // namespace nereid::http
