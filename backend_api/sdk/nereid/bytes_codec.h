/// \file
/// BYTES tensors: each element is a 4-byte little-endian length, followed by that many bytes. [any
/// thread]
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nereid/status.h"

namespace nereid {

/// Reads elements one after another. The returned views point into the data given.
///
///   BytesReader reader(data);
///   while (!reader.at_end()) { NEREID_ASSIGN_OR_RETURN(std::string_view element, reader.Next()); }
class BytesReader {
 public:
  explicit BytesReader(std::string_view data) : data_(data) {}
  explicit BytesReader(std::span<const std::byte> data)
      : data_(reinterpret_cast<const char*>(data.data()), data.size()) {}

  bool at_end() const { return offset_ == data_.size(); }

  /// Requires !at_end(). INVALID_ARG if the data ends within a length or an element.
  Result<std::string_view> Next() {
    const size_t left_bytes = data_.size() - offset_;
    if (left_bytes < 4) {
      return InvalidArgError("BYTES element ", index_, ": expected a length of 4 bytes, got ",
                             left_bytes);
    }
    const auto* at = reinterpret_cast<const uint8_t*>(data_.data()) + offset_;
    const uint32_t size_bytes = static_cast<uint32_t>(at[0]) | static_cast<uint32_t>(at[1]) << 8 |
                                static_cast<uint32_t>(at[2]) << 16 |
                                static_cast<uint32_t>(at[3]) << 24;
    if (size_bytes > left_bytes - 4) {
      return InvalidArgError("BYTES element ", index_, ": expected ", size_bytes, " bytes, got ",
                             left_bytes - 4);
    }
    const std::string_view element = data_.substr(offset_ + 4, size_bytes);
    offset_ += 4 + size_bytes;
    ++index_;
    return element;
  }

 private:
  std::string_view data_;
  size_t offset_ = 0;
  size_t index_ = 0;
};

/// Returns all elements. INVALID_ARG if the data does not have exactly `count` of them.
inline Result<std::vector<std::string_view>> DecodeBytes(std::span<const std::byte> data,
                                                         size_t count) {
  std::vector<std::string_view> elements;
  elements.reserve(count < data.size() / 4 ? count : data.size() / 4);
  for (BytesReader reader(data); !reader.at_end();) {
    NEREID_ASSIGN_OR_RETURN(std::string_view element, reader.Next());
    elements.push_back(element);
  }
  if (elements.size() != count) {
    return InvalidArgError("expected ", count, " BYTES elements, got ", elements.size());
  }
  return elements;
}

/// Appends one element. INVALID_ARG for an element longer than 4 GiB - 1.
inline Status AppendBytes(std::string_view element, std::string& data) {
  if (element.size() > std::numeric_limits<uint32_t>::max()) {
    return InvalidArgError("BYTES element: expected at most ", std::numeric_limits<uint32_t>::max(),
                           " bytes, got ", element.size());
  }
  const auto size_bytes = static_cast<uint32_t>(element.size());
  const char length[4] = {
      static_cast<char>(size_bytes & 0xff), static_cast<char>(size_bytes >> 8 & 0xff),
      static_cast<char>(size_bytes >> 16 & 0xff), static_cast<char>(size_bytes >> 24)};
  data.append(length, 4).append(element);
  return {};
}

/// Encodes `elements`, a range whose values convert to std::string_view.
template <typename Range>
Result<std::string> EncodeBytes(const Range& elements) {
  size_t size_bytes = 0;
  for (const std::string_view element : elements) size_bytes += 4 + element.size();
  std::string data;
  data.reserve(size_bytes);
  for (const std::string_view element : elements) {
    NEREID_RETURN_IF_ERROR(AppendBytes(element, data));
  }
  return data;
}

}  // namespace nereid
