// The layout of a KV block in device memory; all code that reads or writes the cache uses it. A
// block of kBlockTokens tokens of one key/value head is two tiles, keys then values, each head_dim
// x 64 bf16. They are stored in the form that wgmma reads from shared memory (128-, 64- or 32-byte
// swizzle), so that a plain bulk copy makes a tile ready for use:
//   keys:   panels of 64, 32 or 16 columns; in a panel, one row for each token
//   values: transposed, one row of 64 tokens for each column
// Both are then "K-major" operands: of Q x K^T along head_dim, of P x V along the tokens.
//
// In the quantized formats (one byte an element) each key and value has a scale: its maximum
// magnitude divided by that of the format (e4m3: 448, int8: 127). The tiles have one row for each
// token, in 16-byte chunks whose order depends on the token, so that readers access different
// banks. The float scales of the 64 keys and of the 64 values follow.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define NEREID_LAYOUT_FUNCTION __host__ __device__ __forceinline__
#else
#define NEREID_LAYOUT_FUNCTION inline
#endif

namespace nereid::gpu {

inline constexpr int kBlockTokens = 64;

enum class CacheFormat : int32_t { kBf16, kFp8, kInt8 };

constexpr int KeyPanelColumns(int head_dim) {
  return head_dim % 64 == 0 ? 64 : head_dim % 32 == 0 ? 32 : 16;
}
// Address bits that the swizzle of rows of `row_bytes` changes.
constexpr int SwizzleMask(int row_bytes) {
  return row_bytes == 128 ? 0x70 : row_bytes == 64 ? 0x30 : 0x10;
}
constexpr int64_t TileBytes(int head_dim) {
  return int64_t{head_dim} * kBlockTokens * 2;
}
// Bytes of a tile of a quantized cache.
constexpr int64_t QuantizedTileBytes(int head_dim) {
  return int64_t{head_dim} * kBlockTokens;
}
// Keys and values of one head of a block.
constexpr int64_t HeadBytes(int head_dim, CacheFormat format = CacheFormat::kBf16) {
  return format == CacheFormat::kBf16 ? 2 * TileBytes(head_dim)
                                      : 2 * (QuantizedTileBytes(head_dim) + kBlockTokens * 4);
}
constexpr int64_t QuantizedScalesOffset(int head_dim) {
  return 2 * QuantizedTileBytes(head_dim);
}

// Byte offsets within the tile of keys and the tile of values.
template <int kHeadDim>
NEREID_LAYOUT_FUNCTION int KeyOffset(int token, int column) {
  constexpr int kColumns = KeyPanelColumns(kHeadDim);
  const int offset = token * kColumns * 2 + column % kColumns * 2;
  return column / kColumns * kBlockTokens * kColumns * 2 +
         (offset ^ ((offset >> 3) & SwizzleMask(kColumns * 2)));
}
template <int kHeadDim>
NEREID_LAYOUT_FUNCTION int ValueOffset(int token, int column) {
  const int offset = column * kBlockTokens * 2 + token * 2;
  return offset ^ ((offset >> 3) & SwizzleMask(128));
}

// The same for a quantized cache: the 16-byte chunk of the column, and the column within it.
template <int kHeadDim>
NEREID_LAYOUT_FUNCTION int QuantizedKeyOffset(int token, int column) {
  const int mask = kHeadDim % 128 == 0 ? (token & 1) << 6 : 0;
  return token * kHeadDim + (column ^ mask);
}
template <int kHeadDim>
NEREID_LAYOUT_FUNCTION int QuantizedValueOffset(int token, int column) {
  const int mask = kHeadDim % 128 == 0 ? (token & 7) << 4
                   : kHeadDim == 64    ? (token >> 1 & 3) << 4
                                       : 0;
  return token * kHeadDim + (column ^ mask);
}

}  // namespace nereid::gpu
