// BLAKE2b with 256 bits (RFC 7693, no key): names content so that nobody can make two contents of
// one name. [one thread an object]
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace nereid {

class Blake2b {
 public:
  Blake2b();
  void Add(const void* data, size_t size);
  void Add(std::string_view text) { Add(text.data(), text.size()); }
  // The 64 hexadecimal digits of everything added. Once.
  std::string HexDigest();

 private:
  static constexpr size_t kBlock = 128;
  static constexpr size_t kDigest = 32;
  void Compress(bool last);

  std::array<uint64_t, 8> state_;
  std::array<unsigned char, kBlock> block_{};
  size_t in_block_ = 0;
  uint64_t total_ = 0;  // bytes compressed; 2^64 are never reached
};

}  // namespace nereid
