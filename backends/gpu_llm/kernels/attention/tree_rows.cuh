// Rows of draft trees in decode attention. A row sees all tokens before the root of its tree, and
// of the tree the tokens on its path. Either an item has rows of several tokens, each of which has
// a mask of the tree's places; or it has one token (DecodeAttentionParams::gathers_trees), and the
// keys and values of its path are copied to the places that they have in the row's own sequence, so
// that all is added in the order of a step of its own. Device code only.
#pragma once

#include <type_traits>

#include "backends/gpu_llm/kernels/attention/copy_token.cuh"
#include "backends/gpu_llm/kernels/attention/decode_attention.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM::decode_attention {

// In shared memory.
struct ItemTree {
  uint32_t masks[kRows][kTreeMaskWords];  // of each token of the item, less what its window hides
  int lengths[kRows];                     // of each token's own sequence
  uint8_t path[kMaxTreeTokens];           // of the only token: places from the root on
};

// Called by all threads.
__device__ __forceinline__ void LoadTree(const DecodeAttentionParams& p, const DecodeItem& item,
                                         int root, ItemTree& tree) {
  static_assert(kThreads >= kMaxTreeTokens);
  const auto thread = static_cast<int>(threadIdx.x);
  const int32_t* const masks = p.tree_masks + int64_t{item.row} * kTreeMaskWords;
  if (root >= 0 && p.gathers_trees) {
    if (thread < kMaxTreeTokens && (masks[thread / 32] >> thread % 32 & 1) != 0) {
      int before = __popc(masks[thread / 32] & ((1u << thread % 32) - 1));
      for (int word = 0; word < thread / 32; ++word) before += __popc(masks[word]);
      tree.path[before] = static_cast<uint8_t>(thread);
    }
  } else if (root >= 0 && thread < item.num_tokens) {
    uint32_t words[kTreeMaskWords];
    int length = root;
#pragma unroll
    for (int word = 0; word < kTreeMaskWords; ++word) {
      words[word] = static_cast<uint32_t>(masks[thread * kTreeMaskWords + word]);
      length += __popc(words[word]);
    }
    tree.lengths[thread] = length;
    const int begin = p.window > 0 ? length - p.window : 0;
    int position = root;  // of the next token on the path
#pragma unroll
    for (int word = 0; word < kTreeMaskWords; ++word) {
      // Of the path, the window sees the last tokens.
      for (uint32_t left = words[word]; left != 0 && position < begin; left &= left - 1) {
        if (position++ >= p.num_sinks) words[word] &= ~(left & (0u - left));
      }
      tree.masks[thread][word] = words[word];
    }
  }
  __syncthreads();
}

struct TreeRows : QueryRows {
  const ItemTree& tree;
  const int root;  // -1: no tree

  __device__ __forceinline__ TreeRows(const DecodeAttentionParams& params, const DecodeItem& of,
                                      int tree_root, const ItemTree& item_tree)
      : QueryRows(params, of), tree(item_tree), root(tree_root) {}
  __device__ __forceinline__ bool HasMasks() const { return root >= 0 && !p.gathers_trees; }
  __device__ __forceinline__ int TokenOf(int row) const {  // also of rows that the item lacks
    return min(Token(row), item.num_tokens - 1);
  }
  // With a tree, the masks say which of its tokens a row sees.
  __device__ __forceinline__ int End(int row) const {
    return root < 0 ? QueryRows::End(row) : item.length;
  }
  __device__ __forceinline__ int Begin(int row) const {
    if (!HasMasks()) return QueryRows::Begin(row);
    return p.window > 0 ? max(0, tree.lengths[TokenOf(row)] - p.window) : 0;
  }
  // A token of the tree may be a sink whose place is behind those of the sinks: its mask decides.
  __device__ __forceinline__ unsigned Gap(int row) const {
    const int begin = HasMasks() ? min(Begin(row), root) : Begin(row);
    return static_cast<unsigned>(max(0, begin - p.num_sinks));
  }
  // The first token besides sinks that a row of the tree may see.
  __device__ __forceinline__ int FirstVisible() const {
    if (!HasMasks()) return QueryRows::Begin(0);
    return p.window > 0 ? max(0, root + 1 - p.window) : 0;
  }
  __device__ __forceinline__ VisibleBlocks Blocks() const {
    return {item.first_tile, item.last_tile, p.num_sinks, FirstVisible() / kBlockTokens};
  }
  // Which of the kWarpTokens tokens from place `first` on a row sees, if the tree's mask hides
  // none but those behind its root.
  __device__ __forceinline__ uint32_t Seen(int row, int first) const {
    const int at = first - root;
    if (!HasMasks() || at + kWarpTokens <= 0) return ~0u;
    const uint32_t* const masks = tree.masks[TokenOf(row)];
    const auto word = [&](int index) {
      return index < 0 ? ~0u : index < kTreeMaskWords ? masks[index] : 0u;
    };
    return __funnelshift_r(word(at >> 5), word((at >> 5) + 1), at & 31);
  }
  // Copies the warp's tokens of the path to their places in a tile of the ring. Called by one warp.
  template <int kHeadDim, bool kIsQuantized>
  __device__ __forceinline__ void Gather(char* tile, int first_token) const {
    if (root < 0 || !p.gathers_trees) return;
    constexpr auto kFormat = kIsQuantized ? CacheFormat::kFp8 : CacheFormat::kBf16;
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int begin = max(root, first_token + kWarpTokens * warp);
    const int end = min(item.length, first_token + kWarpTokens * (warp + 1));
    for (int position = begin; position < end; ++position) {
      const int place = root + tree.path[position - root];
      if (place == position) continue;
      const int block = p.words[item.table_offset + place / kBlockTokens];
      const char* const from =
          static_cast<const char*>(p.cache) +
          (int64_t{block} * p.num_kv_heads + blockIdx.y) * HeadBytes(kHeadDim, kFormat);
      CopyToken<kHeadDim, kIsQuantized>(tile, position % kBlockTokens, from, place % kBlockTokens,
                                        lane, 32);
    }
    if (begin < end) ProxyFence();
    __syncwarp();
  }
};

template <bool kHasTrees>
using SharedTree = std::conditional_t<kHasTrees, ItemTree, char>;

// Called by all threads.
template <bool kHasTrees>
__device__ __forceinline__ auto RowsOf(const DecodeAttentionParams& p, const DecodeItem& item,
                                       SharedTree<kHasTrees>& tree) {
  if constexpr (kHasTrees) {
    const int root = p.tree_roots[blockIdx.x];
    LoadTree(p, item, root, tree);
    return TreeRows(p, item, root, tree);
  } else {
    return QueryRows(p, item);
  }
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::decode_attention
