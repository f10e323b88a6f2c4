// Shapes as functions take them, and the arithmetic on them that must not overflow. [any thread]
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "nereid/status.h"

namespace nereid {
inline namespace sdk {

// A borrowed shape: `{1, 16}`, a vector or a span. As a parameter only: a list lives no longer than
// the call.
class ShapeView : public std::span<const int64_t> {
 public:
  ShapeView(std::initializer_list<int64_t> dims)  // NOLINT: implicit by intent
      : span(dims.begin(), dims.size()) {}
  ShapeView(std::span<const int64_t> dims) : span(dims) {}     // NOLINT
  ShapeView(const std::vector<int64_t>& dims) : span(dims) {}  // NOLINT
};

// "[1, 16]".
inline std::string ToString(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

// The product of the dims, 1 for none; INVALID_ARG when a dim is negative or the product times
// `element_bytes` does not fit into 63 bits.
inline Result<size_t> ElementCount(std::span<const int64_t> shape, size_t element_bytes = 1) {
  constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
  const uint64_t limit = kMax / (element_bytes == 0 ? 1 : element_bytes);
  uint64_t count = 1;
  bool is_empty = false, is_too_large = false;
  for (const int64_t dim : shape) {
    if (dim < 0) return InvalidArgError("shape ", ToString(shape), ": negative dimension ", dim);
    is_empty = is_empty || dim == 0;
    if (is_empty || is_too_large) continue;
    is_too_large = count > limit / static_cast<uint64_t>(dim);
    if (!is_too_large) count *= static_cast<uint64_t>(dim);
  }
  if (is_empty) return size_t{0};
  if (is_too_large) {
    return InvalidArgError("shape ", ToString(shape), ": more than ", kMax, " bytes");
  }
  return static_cast<size_t>(count);
}

}  // namespace sdk
}  // namespace nereid
