// How a KV block lies in device memory: the one place that knows. A block of kBlockTokens tokens of
// one key/value head is two tiles, keys then values, each head_dim x 64 bf16, stored as the matrix
// units want them in shared memory (the 128-, 64- or 32-byte swizzle of wgmma), so that one plain
// bulk copy brings a tile in ready for use:
//   keys:   panels of 64, 32 or 16 columns; in a panel, one row a token
//   values: transposed, one row of 64 tokens a column
// Both are "K-major" operands then: of Q x K^T along head_dim, of P x V along the tokens.
//
// With one byte an element a token's key or value has a factor, the greatest magnitude over the
// format's own (e4m3: 448, int8: 127), and the tiles are one row a token, in 16-byte pieces whose
// order depends on the token, so that readers find them in different banks; then come the factors,
// floats: of the 64 keys, of the 64 values.
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
// With one byte an element.
constexpr int64_t ByteTileBytes(int head_dim) {
  return int64_t{head_dim} * kBlockTokens;
}
// Keys and values of one head of a block.
constexpr int64_t HeadBytes(int head_dim, CacheFormat format = CacheFormat::kBf16) {
  return format == CacheFormat::kBf16 ? 2 * TileBytes(head_dim)
                                      : 2 * (ByteTileBytes(head_dim) + kBlockTokens * 4);
}
constexpr int64_t ByteScalesOffset(int head_dim) {
  return 2 * ByteTileBytes(head_dim);
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

// The same of one byte an element: of the column's 16-byte piece, and the column within it.
template <int kHeadDim>
NEREID_LAYOUT_FUNCTION int ByteKeyOffset(int token, int column) {
  const int mask = kHeadDim % 128 == 0 ? (token & 1) << 6 : 0;
  return token * kHeadDim + (column ^ mask);
}
template <int kHeadDim>
NEREID_LAYOUT_FUNCTION int ByteValueOffset(int token, int column) {
  const int mask = kHeadDim % 128 == 0 ? (token & 7) << 4
                   : kHeadDim == 64    ? (token >> 1 & 3) << 4
                                       : 0;
  return token * kHeadDim + (column ^ mask);
}

}  // namespace nereid::gpu
