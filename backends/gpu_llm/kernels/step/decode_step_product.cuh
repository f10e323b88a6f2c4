// Products of a decode step. A tile is 16 outputs, operand a of the matrix product; the rows of the
// step are the columns of operand b, 8 whatever their number. Each warp has an eighth of the depth,
// for which it keeps the input in registers, where it fits; sums of warps are added when a tile
// ends. The factor of the norm, which needs all of a row, is applied to the sums. Device code
// alone.
#pragma once

#include "backends/gpu_llm/kernels/products/stream_gemm.h"
#include "backends/gpu_llm/kernels/step/decode_step_ring.cuh"

namespace nereid::gpu::decode_step {

struct Product {
  const bf16* in;       // [.., depth], rows `in_stride` apart
  const int32_t* rows;  // which rows of `in`; null: the first
  const bf16* norm;     // [depth]; null: none
  const bf16* addend;   // [.., num_outputs], rows `addend_stride` apart; null: none
  const float* row_scales;
  void* out;  // rows `out_stride` apart
  int in_stride, addend_stride, out_stride;
  bool in_is_old, addend_is_old;  // of the launch before: all there
  int num_outputs, depth;
  StreamOutput output;
};

// A thread's columns of a panel are 4 pieces of 8. First column of one of lane 4 g + t's.
template <WeightFormat kFormat>
__device__ __forceinline__ int PieceColumn(int piece, int t) {
  const int warp = threadIdx.x / 32;
  if constexpr (kFormat == WeightFormat::kFp8)
    return warp * 128 + piece / 2 * 64 + 16 * t + piece % 2 * 8;
  return warp * 128 + piece * 32 + 8 * t;
}

// The input of a panel, as ConsumePanel takes it.
template <WeightFormat kFormat>
struct Panel {
  uint4 x[4];
  float sums[2] = {};  // int4: of x over the warp's columns, for rows 2 t and 2 t + 1
};

// e4m3 values are unpacked to 2^-120 of what they are, by moving bits. Inputs take 2^64 of it
// along, so that small products stay in range, results the rest. Inputs of 2^64 or more would be
// infinite: the norm of a row that has such a value is already.
constexpr float kFp8InputFactor = 0x1p64f, kFp8OutputFactor = 0x1p56f;

template <WeightFormat kFormat>
__device__ __forceinline__ void PreparePanel(Panel<kFormat>& panel) {
  if constexpr (kFormat == WeightFormat::kFp8) {
#pragma unroll
    for (uint4& x : panel.x) {
      float values[8];
      Unpack8(x, values);
      // In the pairs that unpacking leaves.
      const auto pair = [&](int i) {
        return PackBf16(values[i] * kFp8InputFactor, values[i + 2] * kFp8InputFactor);
      };
      x = {pair(0), pair(1), pair(4), pair(5)};
    }
  } else if constexpr (kFormat == WeightFormat::kInt4) {
    constexpr uint32_t kOnes = 0x3f803f80u;
    float sums[4] = {};
#pragma unroll
    for (const uint4& x : panel.x) {
      MatrixMultiplyAdd(sums, kOnes, kOnes, kOnes, kOnes, x.x, x.y);
      MatrixMultiplyAdd(sums, kOnes, kOnes, kOnes, kOnes, x.z, x.w);
    }
    panel.sums[0] = sums[0], panel.sums[1] = sums[1];
  }
}

// Four e4m3 values of a word: {bytes 0 and 2}, {bytes 1 and 3}.
__device__ __forceinline__ void UnpackFp8(uint32_t word, uint32_t& even, uint32_t& odd) {
  even = (word << 8 & 0x80008000u) | (word << 4 & 0x07f007f0u);
  odd = (word & 0x80008000u) | (word >> 4 & 0x07f007f0u);
}
// Eight values of a word, each plus 128, in pairs of neighbours: that is a bf16 whose last bits are
// the value.
__device__ __forceinline__ void UnpackInt4(uint32_t word, uint32_t mask, uint32_t bias,
                                           uint32_t (&pairs)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    asm("lop3.b32 %0, %1, %2, %3, 0xea;"
        : "=r"(pairs[i])
        : "r"(word >> (4 * i)), "r"(mask), "r"(bias));
  }
}

// A warp's share of a panel: sums += weights x input. `columns`: of the depth, from the panel on.
template <WeightFormat kFormat>
__device__ __forceinline__ void ConsumePanel(const char* slot, int panel, int columns,
                                             const Panel<kFormat>& in, float (&sums)[4]) {
  using Shape = Chunk<kFormat>;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  if (warp * 128 >= columns) return;
  if constexpr (kFormat == WeightFormat::kInt4) {
    const char* block =
        slot + (panel * (kPanelColumns / kInt4BlockColumns) + warp) * Shape::kBlockBytes;
    const auto* scales = reinterpret_cast<const uint32_t*>(block + kInt4ValueBytes) + g;
    uint32_t mask, bias;  // not as immediates, of which an instruction takes one
    asm("mov.b32 %0, 0x000f000f;" : "=r"(mask));
    asm("mov.b32 %0, 0x43004300;" : "=r"(bias));
    float even[4] = {}, odd[4] = {};  // two chains of products
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint4 words = reinterpret_cast<const uint4*>(block)[half * 32 + lane];
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        uint32_t low[4], high[4];
        UnpackInt4(s == 0 ? words.x : words.z, mask, bias, low);
        UnpackInt4(s == 0 ? words.y : words.w, mask, bias, high);
        const uint4& x = in.x[2 * half + s];
        MatrixMultiplyAdd(even, low[0], high[0], low[1], high[1], x.x, x.y);
        MatrixMultiplyAdd(odd, low[2], high[2], low[3], high[3], x.z, x.w);
      }
    }
    const uint32_t scale[2] = {scales[0], scales[8]};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t word = scale[i / 2];
      const float zero = 128.0f + static_cast<float>(word & 31u);
      sums[i] += (even[i] + odd[i] - zero * in.sums[i % 2]) * __uint_as_float(word & ~31u);
    }
  } else {
    const char* row = slot + g * Shape::kPitch +
                      (panel * kPanelColumns + warp * 128) * Shape::kElementBytes + t * 16;
#pragma unroll
    for (int s = 0; s < 2 * Shape::kElementBytes; ++s) {
      if (warp * 128 + s * 64 / Shape::kElementBytes >= columns) break;
      const uint4 low = *reinterpret_cast<const uint4*>(row + s * 64);
      const uint4 high = *reinterpret_cast<const uint4*>(row + s * 64 + 8 * Shape::kPitch);
      if constexpr (kFormat == WeightFormat::kBf16) {
        const uint4& x = in.x[s];
        MatrixMultiplyAdd(sums, low.x, high.x, low.y, high.y, x.x, x.y);
        MatrixMultiplyAdd(sums, low.z, high.z, low.w, high.w, x.z, x.w);
      } else {
        const uint32_t lows[4] = {low.x, low.y, low.z, low.w};
        const uint32_t highs[4] = {high.x, high.y, high.z, high.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          uint32_t a[4];
          UnpackFp8(lows[i], a[0], a[2]);
          UnpackFp8(highs[i], a[1], a[3]);
          const uint4& x = in.x[2 * s + i / 2];
          MatrixMultiplyAdd(sums, a[0], a[1], a[2], a[3], i % 2 == 0 ? x.x : x.z,
                            i % 2 == 0 ? x.y : x.w);
        }
      }
    }
  }
}

// What each thread does when a pair of tiles ends: one output of one row.
class PairEnd {
 public:
  __device__ PairEnd(const DecodeStepParams& p, const Product& product, int first_tile, int count)
      : product_(product) {
    const int thread = threadIdx.x, lane = thread % 128 / 4, j = thread % 4;
    tile_ = first_tile + thread / 128 * static_cast<int>(gridDim.x);
    output_ = tile_ * kTileOutputs + lane / 4 + j / 2 * 8;
    token_ = lane % 4 * 2 + j % 2;
    stores_ = thread / 128 < count && token_ < p.num_rows;
    if (stores_ && product.addend != nullptr) before_ = LoadWord(AddendWord());
    if (stores_ && product.row_scales != nullptr)
      scale_ = product.row_scales[output_] * kFp8OutputFactor;
  }

  __device__ void Finish(const DecodeStepParams& p, Shared& shared, int turn,
                         const float (&sums)[2][4]) {
    const int thread = threadIdx.x, warp = thread / 32;
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
      *reinterpret_cast<float4*>(shared.parts[turn][warp][tile][thread % 32]) = {
          sums[tile][0], sums[tile][1], sums[tile][2], sums[tile][3]};
    }
    SyncConsumers();
    float value = 0.0f;
#pragma unroll
    for (int w = 0; w < kWarps; ++w)
      value += shared.parts[turn][w][thread / 128][thread % 128 / 4][thread % 4];
    if (product_.norm != nullptr) {
      float squares = 0.0f;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) squares += shared.squares[token_][w];
      value *= rsqrtf(squares / static_cast<float>(product_.depth) + p.epsilon);
    }
    value *= scale_;
    const int row = token_ * product_.out_stride;
    if (product_.output == StreamOutput::kFloat) {
      if (stores_) static_cast<float*>(product_.out)[row + output_] = value;
      return;
    }
    int column = output_;
    bool stores = stores_;
    if (product_.output == StreamOutput::kSiluGate) {
      const float up = __shfl_xor_sync(0xffffffffu, value, 2);
      value = value / (1.0f + __expf(-value)) * up;
      column = tile_ * (kTileOutputs / 2) + thread % 128 / 16;
      stores &= thread % 4 < 2;
    } else if (product_.addend != nullptr) {
      if (!product_.addend_is_old) {
        LookUntilThere(p, shared, [&] {
          if (stores_ && before_ == kMissing) before_ = LoadWord(AddendWord());
          return before_ != kMissing;
        });
      }
      value += output_ % 2 == 0 ? LowBf16(before_) : HighBf16(before_);
    }
    const float next = __shfl_xor_sync(0xffffffffu, value, 16);  // of the next column
    if (stores && column % 2 == 0)
      StoreWord(static_cast<bf16*>(product_.out) + row + column, PackBf16(value, next));
  }

 private:
  __device__ const bf16* AddendWord() const {
    return product_.addend + token_ * product_.addend_stride + output_ / 2 * 2;
  }

  const Product& product_;
  int tile_, output_, token_;
  bool stores_;
  uint32_t before_ = 0;  // two columns of what is added
  float scale_ = 1.0f;
};

// This thread's pieces of a panel of the input, as far as they are there.
template <WeightFormat kFormat>
__device__ __forceinline__ void LoadPanel(const Product& product, const bf16* row, int first,
                                          Panel<kFormat>& panel) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int column = first + PieceColumn<kFormat>(i, threadIdx.x % 4);
    panel.x[i] = {};
    if (row != nullptr && column < product.depth) panel.x[i] = LoadWords4(row + column);
  }
}
template <WeightFormat kFormat>
__device__ __forceinline__ bool IsThere(const Panel<kFormat>& panel) {
  return IsThere(panel.x[0]) && IsThere(panel.x[1]) && IsThere(panel.x[2]) && IsThere(panel.x[3]);
}
__device__ __forceinline__ const bf16* InputRow(const DecodeStepParams& p, const Product& product) {
  const int g = threadIdx.x % 32 / 4;
  if (g >= p.num_rows) return nullptr;
  return product.in + (product.rows != nullptr ? product.rows[g] : g) * product.in_stride;
}

// Of a depth up to kPanels panels, normed or not. Waits for the input, first for a piece a thread,
// then for all; what else it reads of the product, it has by then.
template <WeightFormat kFormat, int kPanels>
__device__ void MultiplyResident(const DecodeStepParams& p, const Product& product,
                                 Consumer& consumer) {
  using Shape = Chunk<kFormat>;
  constexpr int kTogether = 4;  // panels, whose norm takes the room of a warp's sums
  static_assert(kPanels == kTogether || kPanels == 2 * kTogether);
  const int depth = product.depth, grid = static_cast<int>(gridDim.x);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const auto norms = [&](int panel) {
    return reinterpret_cast<uint4*>(consumer.shared().parts[panel / kTogether][warp]) +
           panel % kTogether * 16;
  };
  if (product.norm != nullptr) {
#pragma unroll
    for (int i = 0; i < kPanels / 2; ++i) {
      const int panel = 2 * i + lane / 16, piece = lane / 4 % 4;
      const int column = panel * kPanelColumns + PieceColumn<kFormat>(piece, lane % 4);
      uint4 norm = {};
      if (column < depth) norm = __ldg(reinterpret_cast<const uint4*>(product.norm + column));
      norms(panel)[lane % 16] = norm;
    }
    __syncwarp();
  }
  Panel<kFormat> panels[kPanels];
  const bf16* row = InputRow(p, product);
  const auto load = [&] {
    bool is_there = true;
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel)
      LoadPanel<kFormat>(product, row, panel * kPanelColumns, panels[panel]);
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel) is_there &= IsThere<kFormat>(panels[panel]);
    return is_there;
  };
  if (product.in_is_old) {
    load();
  } else {
    const int column = PieceColumn<kFormat>(0, lane % 4);
    LookUntilThere(p, consumer.shared(), [&] {
      return row == nullptr || column >= depth || IsThere(LoadWords4(row + column));
    });
    LookUntilThere(p, consumer.shared(), load);
  }
  if (product.norm != nullptr) {
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < 4 * kPanels; ++i) {
      uint4& x = panels[i / 4].x[i % 4];
      float values[8], weights[8];
      Unpack8(x, values);
      Unpack8(norms(i / 4)[i % 4 * 4 + lane % 4], weights);
#pragma unroll
      for (int j = 0; j < 8; ++j) squares += values[j] * values[j], values[j] *= weights[j];
      x = Pack8(values);
    }
    squares += __shfl_xor_sync(0xffffffffu, squares, 1);
    squares += __shfl_xor_sync(0xffffffffu, squares, 2);
    if (lane % 4 == 0) consumer.shared().squares[lane / 4][warp] = squares;
    __syncwarp();  // before this warp's sums take the place of its norms
  }
#pragma unroll
  for (int panel = 0; panel < kPanels; ++panel) PreparePanel<kFormat>(panels[panel]);
  const int num_tiles = product.num_outputs / kTileOutputs;
  int turn = 0;
  for (int first = blockIdx.x; first < num_tiles; first += 2 * grid, turn ^= 1) {
    const int count = first + grid < num_tiles ? 2 : 1;
    PairEnd end(p, product, first, count);
    float sums[2][4] = {};
#pragma unroll
    for (int chunk = 0; chunk < (kPanels + Shape::kPanels - 1) / Shape::kPanels; ++chunk) {
      if (chunk * Shape::kColumns >= depth) break;
#pragma unroll
      for (int tile = 0; tile < 2; ++tile) {
        if (tile >= count) break;
        const char* slot = consumer.Wait();
#pragma unroll
        for (int i = 0; i < Shape::kPanels; ++i) {
          const int panel = chunk * Shape::kPanels + i;
          if (panel < kPanels) {
            ConsumePanel<kFormat>(slot, i, depth - panel * kPanelColumns, panels[panel],
                                  sums[tile]);
          }
        }
        consumer.Release();
      }
    }
    end.Finish(p, consumer.shared(), turn, sums);
  }
}

// Of any depth, not normed: the input is read anew for each pair of tiles, some panels ahead. The
// first pair begins with the columns that have come.
template <WeightFormat kFormat>
__device__ void MultiplyDeep(const DecodeStepParams& p, const Product& product,
                             Consumer& consumer) {
  using Shape = Chunk<kFormat>;
  constexpr int kAhead = kFormat == WeightFormat::kBf16 ? 2 : 1;  // chunks
  const int depth = product.depth, grid = static_cast<int>(gridDim.x);
  const bf16* row = InputRow(p, product);
  struct Input {
    Panel<kFormat> panels[Shape::kPanels];
  };
  Input ahead[kAhead];
  int next = 0;
  const auto load_at = [&](int column, Input& to) {
#pragma unroll
    for (int i = 0; i < Shape::kPanels; ++i)
      LoadPanel<kFormat>(product, row, column + i * kPanelColumns, to.panels[i]);
  };
  const auto after = [&](int column) {
    return column + Shape::kColumns < depth ? column + Shape::kColumns : 0;
  };
  const auto load = [&](Input& to) {
    load_at(next, to);
    next = after(next);
  };
  const auto is_there = [&](const Input& input) {
    bool all = true;
#pragma unroll
    for (const Panel<kFormat>& panel : input.panels) all &= IsThere<kFormat>(panel);
    return all;
  };
#pragma unroll
  for (Input& input : ahead) load(input);
  const int num_tiles = product.num_outputs / kTileOutputs;
  int turn = 0;
  for (int first = blockIdx.x; first < num_tiles; first += 2 * grid, turn ^= 1) {
    const int count = first + grid < num_tiles ? 2 : 1;
    PairEnd end(p, product, first, count);
    float sums[2][4] = {};
    for (int column = 0; column < depth; column += Shape::kColumns) {
      Input now = ahead[0];
#pragma unroll
      for (int i = 1; i < kAhead; ++i) ahead[i - 1] = ahead[i];
      load(ahead[kAhead - 1]);
      if (!__all_sync(0xffffffffu, is_there(now))) {
        LookUntilThere(p, consumer.shared(), [&] {
          load_at(column, now);
          return is_there(now);
        });
        next = after(column);  // what was asked for meanwhile came too early as well
#pragma unroll
        for (Input& input : ahead) load(input);
      }
#pragma unroll
      for (Panel<kFormat>& panel : now.panels) PreparePanel<kFormat>(panel);
#pragma unroll
      for (int tile = 0; tile < 2; ++tile) {
        if (tile >= count) break;
        const char* slot = consumer.Wait();
#pragma unroll
        for (int i = 0; i < Shape::kPanels; ++i) {
          ConsumePanel<kFormat>(slot, i, depth - column - i * kPanelColumns, now.panels[i],
                                sums[tile]);
        }
        consumer.Release();
      }
    }
    end.Finish(p, consumer.shared(), turn, sums);
  }
}

}  // namespace nereid::gpu::decode_step
