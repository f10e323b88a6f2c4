// The rows of a device weight matrix as sections of checkpoint weights, concatenated or
// interleaved. [load thread]
#pragma once

#include <cstdint>
#include <vector>

#include "backends/gpu_llm/kernels/gemm/weight_format.h"
#include "backends/llm_core/model/weight_map.h"
#include "nereid/status.h"

namespace nereid::gpu {

struct MatrixSection {
  const llm::ResolvedWeight* weight = nullptr;
  int64_t rows = 0;
  int64_t first_row = 0;  // of the weight; earlier rows belong to other GPUs
};

struct MatrixSource {
  std::vector<MatrixSection> sections;
  int64_t columns = 0;       // 1 for a vector
  int64_t first_column = 0;  // of the weights, like first_row
  // So many rows of each section alternate, and the sections are equally long; 0: the sections
  // follow each other.
  int64_t interleave = 0;
  float offset = 0.0f;  // added to each value that is not quantized

  int64_t num_rows() const;
  struct RowLocation {
    size_t section;
    int64_t row;  // of the weight
  };
  RowLocation Find(int64_t row) const;
};

// How a matrix is stored on the device. Quantized sections become bf16 if they differ (group size,
// column order, input scale), if kernels do not support their groups, or if first_column splits a
// group or a block.
struct MatrixLayout {
  WeightFormat format = WeightFormat::kBf16;
  int scales_per_block = 1;
  bool quantizes_input = false;       // fp8: the checkpoint's setting, if equal for all sections
  bool has_block_scales = false;      // fp8
  std::vector<int32_t> column_order;  // int4: input column of each column; empty: unchanged
  std::vector<float> input_scale;     // int4: by input column; empty: none

  int64_t SizeBytes(int64_t num_rows, int64_t columns) const;
};
Result<MatrixLayout> LayoutOf(const MatrixSource& source);

// Rows [first, first + count) as bf16 [count, columns], from any stored format.
Status FillBf16Rows(const MatrixSource& source, int64_t first, int64_t count, uint16_t* to);
// The same for an fp8 matrix: its bytes, and the scales of its rows, which are 1 where blocks have
// scales. Fp8BlockScales() rounds a checkpoint's block scales to bf16 and returns their words
// (weight_format.h).
void FillFp8Rows(const MatrixSource& source, int64_t first, int64_t count, uint8_t* to);
std::vector<float> Fp8RowScales(const MatrixSource& source);
std::vector<uint32_t> Fp8BlockScales(const MatrixSource& source);
// Tiles [first, first + count) of 16 rows of an int4 matrix (weight_format.h).
Status FillInt4Tiles(const MatrixSource& source, const MatrixLayout& layout, int64_t first,
                     int64_t count, uint8_t* to);

// Random weights; the layers' matrices have this format.
struct DummyWeights {
  uint64_t seed = 1;
  WeightFormat format = WeightFormat::kBf16;
  bool quantizes_input = true;    // of fp8
  bool has_block_scales = false;  // of fp8
  float bias_bound = 0.0f;        // biases are uniform between this and its negative
};

}  // namespace nereid::gpu
