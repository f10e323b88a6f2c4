// The number in an enumeration that a stranger gave, which may be none of its enumerators: reading
// it as one would be undefined. [any thread]
#pragma once

#include <cstdint>
#include <cstring>

namespace nereid {

template <typename Enum>
uint32_t RawValue(const Enum& value) {
  static_assert(sizeof(Enum) == sizeof(uint32_t));
  uint32_t raw = 0;
  std::memcpy(&raw, &value, sizeof(raw));
  return raw;
}

}  // namespace nereid
