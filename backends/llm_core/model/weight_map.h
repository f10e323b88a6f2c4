// Which checkpoint tensor, and which rows of it, feeds each weight of a decoder. Architectures fill
// a WeightMap; ResolveWeights checks it against a checkpoint and gives the bytes. [load thread]
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "backends/llm_core/checkpoint/checkpoint.h"
#include "backends/llm_core/model/decoder_spec.h"
#include "backends/llm_core/model/quantization.h"
#include "nereid/status.h"

namespace nereid::llm {

enum class WeightKind : uint8_t {
  kTokenEmbedding,
  kPositionEmbedding,
  kFinalNorm,
  kFinalNormBias,
  kLmHead,
  kLmHeadBias,
  kInputNorm,
  kInputNormBias,
  kPostAttentionNorm,
  kPostAttentionNormBias,
  kPreMlpNorm,
  kPreMlpNormBias,
  kPostMlpNorm,
  kQ,
  kQBias,
  kK,
  kKBias,
  kV,
  kVBias,
  kQNorm,
  kKNorm,
  kAttentionOut,
  kAttentionOutBias,
  kRouter,
  kGate,
  kGateBias,
  kUp,
  kUpBias,
  kDown,
  kDownBias,
};

inline constexpr int32_t kNoLayer = -1;
inline constexpr int32_t kNoExpert = -1;

struct WeightKey {
  int32_t layer = kNoLayer;
  WeightKind kind = WeightKind::kTokenEmbedding;
  int32_t expert = kNoExpert;
  auto operator<=>(const WeightKey&) const = default;
};

// Rows of a checkpoint tensor. The weight is [num_groups * group_rows, columns]: group g is the
// rows [first_row + g * group_stride, + group_rows) of the tensor, which is stored [columns, rows]
// when `transposed`. A vector (norm, bias) has columns 0.
struct WeightSource {
  std::string tensor;
  std::vector<int64_t> tensor_shape;  // expected, as stored
  bool transposed = false;
  int64_t first_row = 0;
  int64_t group_rows = 0;
  int64_t group_stride = 0;
  int64_t num_groups = 1;

  int64_t num_rows() const { return num_groups * group_rows; }
  // Row of the stored tensor that holds row `row` of the weight.
  int64_t SourceRow(int64_t row) const {
    return first_row + row / group_rows * group_stride + row % group_rows;
  }
};

// Whole tensors, and the parts of fused ones.
WeightSource Matrix(std::string tensor, int64_t rows, int64_t columns);
WeightSource Vector(std::string tensor, int64_t rows);
// Rows [first, first + rows) of a fused matrix of `total` rows (columns 0: of a fused vector).
WeightSource RowsOf(std::string tensor, int64_t total, int64_t columns, int64_t first,
                    int64_t rows);

struct WeightMap {
  std::map<WeightKey, WeightSource> sources;
  // Checkpoint tensors whose names end so are of no use to the decoder (saved buffers): not
  // "extra".
  std::vector<std::string> ignored_suffixes;
  // Nor are those whose names begin so: of a part that is not the decoder.
  std::vector<std::string> ignored_prefixes;
  // Of embeddings that are the head's weight as well: what a head of its own would be called. Where
  // the checkpoint has both and they differ, its config is wrong and they count as two; a head
  // alone is both.
  std::string tied_head;
  // Other beginnings of names, tried in turn where the checkpoint has no token embedding of the
  // plain name (GPT-2 of the hub, decoders within a larger model).
  struct OtherPrefix {
    std::string from, to;
  };
  std::vector<OtherPrefix> other_prefixes;
};

// The tensors beside a quantised one; what the method or the checkpoint has not is without bytes.
// Int4Rows (int4_rows.h) reads them all alike.
struct QuantParts {
  QuantMethod method = QuantMethod::kNone;
  int32_t num_bits = 0;    // of integers, 4 or 8; 0: no integers
  int64_t group_size = 0;  // columns that share a scale, at least 1; 0: no groups
  int32_t zero_offset = 0;
  bool quantizes_input = false;  // as QuantSpec's
  TensorView scales, zeros, group_index, input_scale;
};

struct ResolvedWeight {
  TensorView tensor;  // quantised: the packed values; source.tensor_shape is that of the matrix
  WeightSource source;
  QuantParts quant;
};
using ResolvedWeights = std::map<WeightKey, ResolvedWeight>;

// Matches map and checkpoint. All faults come in one INVALID_ARG message: tensors missing, of an
// unexpected shape or type (F32, F16 and BF16 are known, and those of `quant`), and tensors that
// nothing uses.
Result<ResolvedWeights> ResolveWeights(const WeightMap& map, const Checkpoint& checkpoint,
                                       const QuantSpec& quant = {});

}  // namespace nereid::llm
