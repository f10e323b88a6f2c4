// Reads the fields of one serialized protobuf message without generated code; enough for
// SentencePiece's model file. Bounds-checked; unknown fields are skipped. [any thread]
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace nereid::tokenizer {

class ProtobufReader {
 public:
  explicit ProtobufReader(std::string_view message) : rest_(message) {}

  // Advances to the next field. Returns false at the end, or if the bytes are not a message.
  bool Next() {
    if (rest_.empty() || !ok_) return false;
    uint64_t tag = 0;
    bytes_ = {};
    number_ = 0;
    ok_ = Varint(tag) && tag >> 3 != 0;
    field_ = tag >> 3;
    if (!ok_) return false;
    switch (tag & 7) {
      case 0:
        return ok_ = Varint(number_);
      case 1:
        return ok_ = Fixed(8);
      case 2: {
        uint64_t size = 0;
        if (!Varint(size) || size > rest_.size()) return ok_ = false;
        bytes_ = rest_.substr(0, size);
        rest_.remove_prefix(size);
        return true;
      }
      case 5:
        return ok_ = Fixed(4);
      default:
        return ok_ = false;
    }
  }

  bool ok() const { return ok_; }
  uint64_t field() const { return field_; }
  // The value of a varint or fixed-width field, else 0.
  uint64_t number() const { return number_; }
  // The content of a length-delimited field, else empty.
  std::string_view bytes() const { return bytes_; }

  float AsFloat() const {
    const auto bits = static_cast<uint32_t>(number_);
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
  }

 private:
  bool Varint(uint64_t& value) {
    value = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest_[0]);
      rest_.remove_prefix(1);
      value |= uint64_t(byte & 0x7F) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }

  bool Fixed(size_t size) {
    if (rest_.size() < size) return false;
    std::memcpy(&number_, rest_.data(), size);
    rest_.remove_prefix(size);
    return true;
  }

  std::string_view rest_;
  std::string_view bytes_;
  uint64_t field_ = 0;
  uint64_t number_ = 0;
  bool ok_ = true;
};

}  // namespace nereid::tokenizer
