// The JSON by which a client registers shared memory. [any thread]
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "nereid/status.h"

namespace nereid::http {

// The members of a register body, of either kind.
struct Registration {
  std::optional<std::string> key;
  std::optional<std::string> raw_handle;  // decoded; empty when it is no base64
  std::optional<uint64_t> device_id;
  uint64_t offset = 0;
  std::optional<uint64_t> size_bytes;
};

Result<Registration> ReadRegistration(std::string_view body, size_t max_depth);

}  // namespace nereid::http
