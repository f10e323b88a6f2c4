#include "base/blake2b.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace nereid {
namespace {

static_assert(std::endian::native == std::endian::little, "words are copied without a byte swap");

constexpr std::array<uint64_t, 8> kInitial = {
    0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
    0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179};

// RFC 7693, section 2.7: the order in which each round reads the words of the block.
constexpr unsigned char kSigma[10][16] = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
                                          {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
                                          {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
                                          {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
                                          {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
                                          {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
                                          {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
                                          {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
                                          {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
                                          {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}};

void Mix(std::array<uint64_t, 16>& v, int a, int b, int c, int d, uint64_t x, uint64_t y) {
  v[a] += v[b] + x;
  v[d] = std::rotr(v[d] ^ v[a], 32);
  v[c] += v[d];
  v[b] = std::rotr(v[b] ^ v[c], 24);
  v[a] += v[b] + y;
  v[d] = std::rotr(v[d] ^ v[a], 16);
  v[c] += v[d];
  v[b] = std::rotr(v[b] ^ v[c], 63);
}

}  // namespace

Blake2b::Blake2b() : state_(kInitial) {
  state_[0] ^= 0x01010000 ^ kDigest;  // fan-out 1, depth 1, no key, length of the digest
}

void Blake2b::Compress(bool last) {
  std::array<uint64_t, 16> words, v;
  std::memcpy(words.data(), block_.data(), kBlock);
  std::copy(state_.begin(), state_.end(), v.begin());
  std::copy(kInitial.begin(), kInitial.end(), v.begin() + 8);
  v[12] ^= total_;
  if (last) v[14] = ~v[14];
  for (int round = 0; round < 12; ++round) {
    const unsigned char* s = kSigma[round % 10];
    for (int i = 0; i < 4; ++i)
      Mix(v, i, i + 4, i + 8, i + 12, words[s[2 * i]], words[s[2 * i + 1]]);
    for (int i = 0; i < 4; ++i) {
      Mix(v, i, (i + 1) % 4 + 4, (i + 2) % 4 + 8, (i + 3) % 4 + 12, words[s[8 + 2 * i]],
          words[s[9 + 2 * i]]);
    }
  }
  for (int i = 0; i < 8; ++i) state_[i] ^= v[i] ^ v[i + 8];
}

void Blake2b::Add(const void* data, size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  while (size > 0) {
    // A full block is compressed only when more bytes follow: the last block is marked as the last.
    if (in_block_ == kBlock) {
      total_ += kBlock;
      Compress(false);
      in_block_ = 0;
    }
    const size_t count = std::min(size, kBlock - in_block_);
    std::memcpy(block_.data() + in_block_, bytes, count);
    in_block_ += count;
    bytes += count;
    size -= count;
  }
}

std::string Blake2b::HexDigest() {
  total_ += in_block_;
  std::fill(block_.begin() + static_cast<ptrdiff_t>(in_block_), block_.end(), 0);
  Compress(true);
  std::array<unsigned char, kDigest> digest;
  std::memcpy(digest.data(), state_.data(), kDigest);
  std::string hex;
  for (const unsigned char byte : digest) {
    hex += "0123456789abcdef"[byte >> 4];
    hex += "0123456789abcdef"[byte & 15];
  }
  return hex;
}

}  // namespace nereid
