// Where the rows of a weight matrix of the device come from: checkpoint weights one below the
// other, or in turn. [load thread]
#pragma once

#include <cstdint>
#include <vector>

#include "backends/gpu_llm/kernels/products/weight_format.h"
#include "backends/llm_core/model/weight_map.h"
#include "nereid/status.h"

namespace nereid::gpu {

struct MatrixPart {
  const llm::ResolvedWeight* weight = nullptr;
  int64_t rows = 0;
  int64_t first_row = 0;  // of the weight: what precedes it is another GPU's
};

struct MatrixSource {
  std::vector<MatrixPart> parts;
  int64_t columns = 0;       // a vector: 1
  int64_t first_column = 0;  // of the weights, as first_row
  int64_t interleave = 0;  // rows of each part, equally long, in turn; 0: one part below the other
  float offset = 0.0f;     // added to each value of what is not quantised

  int64_t num_rows() const;
  struct Place {
    size_t part;
    int64_t row;  // of the weight
  };
  Place Find(int64_t row) const;
};

// How a matrix is kept on the device. Parts that are quantised, but not alike (other group sizes,
// column orders or input scales), or in groups that kernels do not know or that first_column cuts,
// become bf16.
struct MatrixLayout {
  WeightFormat format = WeightFormat::kBf16;
  int scales_per_block = 1;
  bool quantizes_input = false;       // fp8: as the checkpoint says of all parts
  std::vector<int32_t> column_order;  // int4: the input column of each column; empty: its own
  std::vector<float> input_scale;     // int4: by input column; empty: none

  int64_t SizeBytes(int64_t num_rows, int64_t columns) const;
};
Result<MatrixLayout> LayoutOf(const MatrixSource& source);

// Rows [first, first + count) as bf16, [count, columns], whatever they are stored as.
Status FillBf16Rows(const MatrixSource& source, int64_t first, int64_t count, uint16_t* to);
// The same of a matrix in fp8: its bytes, and the factors of its rows.
void FillFp8Rows(const MatrixSource& source, int64_t first, int64_t count, uint8_t* to);
std::vector<float> Fp8RowScales(const MatrixSource& source);
// Tiles [first, first + count) of 16 rows of a matrix in int4 (weight_format.h).
Status FillInt4Tiles(const MatrixSource& source, const MatrixLayout& layout, int64_t first,
                     int64_t count, uint8_t* to);

}  // namespace nereid::gpu
