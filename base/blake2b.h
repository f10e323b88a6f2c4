// BLAKE2b with a 256-bit digest and no key (RFC 7693). A cryptographic hash: no two inputs with the
// same digest can be constructed. [one thread per object]
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
  // The digest of all added bytes as 64 hexadecimal digits. May be called only once.
  std::string HexDigest();

 private:
  static constexpr size_t kBlock = 128;
  static constexpr size_t kDigest = 32;
  void Compress(bool last);

  std::array<uint64_t, 8> state_;
  std::array<unsigned char, kBlock> block_{};
  size_t in_block_ = 0;
  uint64_t total_ = 0;  // number of compressed bytes; it never reaches 2^64
};

}  // namespace nereid
