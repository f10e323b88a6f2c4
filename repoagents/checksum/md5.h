// MD5 (RFC 1321), with the result of md5sum. It detects files that changed by accident, not
// deliberate changes. [one thread for each object]
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace nereid::checksum {

class Md5 {
 public:
  void Add(const void* data, size_t size);
  // 32 hexadecimal digits. Call it once, after the last Add.
  std::string HexDigest();

 private:
  static constexpr size_t kBlock = 64;
  void Compress();

  std::array<uint32_t, 4> state_ = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
  std::array<unsigned char, kBlock> block_{};
  size_t in_block_ = 0;
  uint64_t total_ = 0;  // bytes
};

}  // namespace nereid::checksum
