#include "repoagents/checksum/md5.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace nereid::checksum {
namespace {

static_assert(std::endian::native == std::endian::little, "words are read as they lie");

constexpr int kShifts[4][4] = {{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};

// RFC 1321, section 3.4: the integer part of 2^32 |sin(i)|.
const std::array<uint32_t, 64>& Sines() {
  static const std::array<uint32_t, 64> sines = [] {
    std::array<uint32_t, 64> table;
    for (int i = 0; i < 64; ++i) {
      table[i] = static_cast<uint32_t>(std::floor(std::fabs(std::sin(i + 1.0)) * 4294967296.0));
    }
    return table;
  }();
  return sines;
}

}  // namespace

void Md5::Compress() {
  std::array<uint32_t, 16> words;
  std::memcpy(words.data(), block_.data(), kBlock);
  auto [a, b, c, d] = state_;
  for (int i = 0; i < 64; ++i) {
    uint32_t mixed = 0;
    int word = 0;
    switch (i / 16) {
      case 0:
        mixed = (b & c) | (~b & d);
        word = i;
        break;
      case 1:
        mixed = (d & b) | (~d & c);
        word = (5 * i + 1) % 16;
        break;
      case 2:
        mixed = b ^ c ^ d;
        word = (3 * i + 5) % 16;
        break;
      default:
        mixed = c ^ (b | ~d);
        word = (7 * i) % 16;
    }
    const uint32_t sum = a + mixed + Sines()[i] + words[word];
    a = d;
    d = c;
    c = b;
    b += std::rotl(sum, kShifts[i / 16][i % 4]);
  }
  state_[0] += a;
  state_[1] += b;
  state_[2] += c;
  state_[3] += d;
}

void Md5::Add(const void* data, size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  total_ += size;
  while (size > 0) {
    const size_t count = std::min(size, kBlock - in_block_);
    std::memcpy(block_.data() + in_block_, bytes, count);
    in_block_ += count;
    bytes += count;
    size -= count;
    if (in_block_ < kBlock) return;
    Compress();
    in_block_ = 0;
  }
}

std::string Md5::HexDigest() {
  const uint64_t bits = total_ * 8;
  constexpr size_t kLengthAt = kBlock - sizeof(bits);
  const unsigned char one = 0x80, zero = 0;
  Add(&one, 1);
  while (in_block_ != kLengthAt) Add(&zero, 1);
  Add(&bits, sizeof(bits));
  std::array<unsigned char, 16> digest;
  std::memcpy(digest.data(), state_.data(), digest.size());
  std::string hex;
  for (const unsigned char byte : digest) {
    hex += "0123456789abcdef"[byte >> 4];
    hex += "0123456789abcdef"[byte & 15];
  }
  return hex;
}

}  // namespace nereid::checksum
