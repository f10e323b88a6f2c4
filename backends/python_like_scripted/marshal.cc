#include "backends/python_like_scripted/marshal.h"

#include <bit>
#include <cstring>
#include <limits>

namespace nereid::python {
namespace {

static_assert(std::endian::native == std::endian::little, "marshal is little-endian");

constexpr int kDigitBits = 15;
constexpr uint32_t kDigitMask = (1u << kDigitBits) - 1;

// The length of the valid UTF-8 character at the start of `text`; 0 if there is none.
size_t CharacterBytes(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < size) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const unsigned char second = byte(1);
  const bool is_wrong = (first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
                        (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F);
  return is_wrong ? 0 : size;
}

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t size = CharacterBytes(text);
    if (size == 0) return false;
    text.remove_prefix(size);
  }
  return true;
}

std::string Repaired(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const size_t size = CharacterBytes(text);
    if (size == 0) {
      result.push_back('?');
    } else {
      result.append(text.substr(0, size));
    }
    text.remove_prefix(size == 0 ? 1 : size);
  }
  return result;
}

}  // namespace

void MarshalWriter::Int(int64_t value) {
  if (value >= std::numeric_limits<int32_t>::min() &&
      value <= std::numeric_limits<int32_t>::max()) {
    Tagged('i', static_cast<uint32_t>(static_cast<int32_t>(value)));
    return;
  }
  const bool is_negative = value < 0;
  Digits(is_negative ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value),
         is_negative);
}

void MarshalWriter::Uint(uint64_t value) {
  if (value <= static_cast<uint64_t>(std::numeric_limits<int32_t>::max())) {
    Int(static_cast<int64_t>(value));
  } else {
    Digits(value, false);
  }
}

void MarshalWriter::Digits(uint64_t magnitude, bool is_negative) {
  uint16_t digits[5];
  int32_t count = 0;
  for (; magnitude != 0; magnitude >>= kDigitBits) {
    digits[count++] = static_cast<uint16_t>(magnitude & kDigitMask);
  }
  Tagged('l', static_cast<uint32_t>(is_negative ? -count : count));
  Raw(digits, static_cast<size_t>(count) * sizeof(uint16_t));
}

void MarshalWriter::Float(double value) {
  bytes_.push_back('g');
  Raw(&value, sizeof value);
}

void MarshalWriter::Text(std::string_view text) {
  if (!IsUtf8(text)) return Text(Repaired(text));
  Tagged('u', static_cast<uint32_t>(text.size()));
  bytes_.append(text);
}

bool MarshalReader::Tag(char tag, const char* expected) {
  if (Next() == tag) {
    rest_.remove_prefix(1);
    return true;
  }
  if (status_.ok()) {
    const std::string got = rest_.empty() ? "its end" : StrCat("type ", int{Next()});
    Fail(StrCat("a message has ", got, " where ", expected, " was expected"));
  }
  return false;
}

std::string_view MarshalReader::Take(size_t size_bytes) {
  if (rest_.size() < size_bytes) {
    Fail(StrCat("a message ends early: expected ", size_bytes, " bytes, got ", rest_.size()));
    return {};
  }
  const std::string_view taken = rest_.substr(0, size_bytes);
  rest_.remove_prefix(size_bytes);
  return taken;
}

uint32_t MarshalReader::Number() {
  uint32_t number = 0;
  const std::string_view bytes = Take(sizeof number);
  if (!bytes.empty()) std::memcpy(&number, bytes.data(), sizeof number);
  return number;
}

uint32_t MarshalReader::Tuple() {
  if (!Tag('(', "a tuple")) return 0;
  const uint32_t count = Number();
  if (count > rest_.size()) {
    Fail(StrCat("a message has a tuple of ", count, " elements in ", rest_.size(), " bytes"));
    return 0;
  }
  return count;
}

void MarshalReader::TupleOf(uint32_t count) {
  const uint32_t got = Tuple();
  if (status_.ok() && got != count) {
    Fail(StrCat("a message has a tuple of ", got, " elements where ", count, " were expected"));
  }
}

int64_t MarshalReader::Int() {
  if (Next() == 'l') return Digits();
  if (Next() == 'T' || Next() == 'F') return Bool() ? 1 : 0;
  if (!Tag('i', "an int")) return 0;
  return static_cast<int32_t>(Number());
}

int64_t MarshalReader::Digits() {
  rest_.remove_prefix(1);
  const auto signed_count = static_cast<int32_t>(Number());
  const int64_t count = signed_count < 0 ? -int64_t{signed_count} : signed_count;
  if (count > 5) {
    Fail("a message has an int of more than 64 bits");
    return 0;
  }
  const std::string_view digits = Take(static_cast<size_t>(count) * sizeof(uint16_t));
  uint64_t magnitude = 0;
  for (size_t i = digits.size() / sizeof(uint16_t); i-- > 0;) {
    uint16_t digit = 0;
    std::memcpy(&digit, digits.data() + i * sizeof digit, sizeof digit);
    if (magnitude >> (64 - kDigitBits) != 0 || digit > kDigitMask) {
      Fail("a message has an int of more than 64 bits");
      return 0;
    }
    magnitude = magnitude << kDigitBits | digit;
  }
  return static_cast<int64_t>(signed_count < 0 ? 0 - magnitude : magnitude);
}

double MarshalReader::Float() {
  if (Next() != 'g') return static_cast<double>(Int());
  rest_.remove_prefix(1);
  double value = 0;
  const std::string_view bytes = Take(sizeof value);
  if (!bytes.empty()) std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

bool MarshalReader::Bool() {
  const bool value = Next() == 'T';
  if (value || Next() == 'F') {
    rest_.remove_prefix(1);
    return value;
  }
  return Tag('T', "a bool");
}

std::string_view MarshalReader::Text() {
  if (!Tag('u', "a text")) return {};
  return Take(Number());
}

std::string_view MarshalReader::Bytes() {
  if (!Tag('s', "bytes")) return {};
  return Take(Number());
}

bool MarshalReader::TakeNone() {
  if (Next() != 'N') return false;
  rest_.remove_prefix(1);
  return true;
}

Status MarshalReader::Finish() {
  if (!rest_.empty()) Fail(StrCat("a message has ", rest_.size(), " bytes more than expected"));
  return status_;
}

}  // namespace nereid::python
