// One HTTP request as it arrived, before any endpoint looked at it. The views of the head point
// into the connection's memory and die when the endpoint returns; the body is owned. [loop thread]
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "host/frontend/http/transport/byte_buffer.h"

namespace nereid::http {

// The numbers are those of Triton's log, where libevhtp gives them.
enum class Method : uint8_t { kGet, kHead, kPost, kPut, kDelete, kOptions = 8, kOther = 16 };

// Names compare without case; a header that is repeated is found once, the first time.
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

  // Null data() when absent.
  std::string_view Header(std::string_view name) const;
};

// Where the rest of a body goes that has a place of its own. `lender` has the memory until it is
// dropped; null: there is none.
struct BodyPlace {
  std::shared_ptr<const void> lender = nullptr;
  char* base = nullptr;
};

// Bytes of a body and the memory they lie in, so that tensors may point into it.
struct Body {
  ByteBuffer memory;
  size_t offset = 0;     // of the body in `memory`
  ByteBuffer rest = {};  // what follows those bytes, where it has a place of its own

  // Without the rest.
  std::string_view bytes() const { return memory.view().substr(offset); }
};

bool EqualsIgnoreCase(std::string_view a, std::string_view b);

}  // namespace nereid::http
