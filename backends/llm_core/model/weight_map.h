// Maps each weight of a decoder to rows of a checkpoint tensor. Architectures fill a WeightMap;
// ResolveWeights checks it against a checkpoint and returns the bytes. [load thread]
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
  kFeatureProjection,  // of an EAGLE-3 head: the target's hidden states to the head's size
  kFeatureNorm,        // of an EAGLE-3 head's layer: norm of the hidden state
  kResidualBlock,      // of a Medusa head: x + SiLU(weight x + bias)
  kResidualBlockBias,
};

inline constexpr int32_t kNoLayer = -1;
inline constexpr int32_t kNoExpert = -1;

struct WeightKey {
  int32_t layer = kNoLayer;
  WeightKind kind = WeightKind::kTokenEmbedding;
  int32_t expert = kNoExpert;
  auto operator<=>(const WeightKey&) const = default;
};

// Rows of a checkpoint tensor that form a weight of [num_groups * group_rows, columns]. Group g is
// the rows [first_row + g * group_stride, + group_rows) of the tensor. With `transposed`, the
// tensor is stored as [columns, rows]. A vector (norm, bias) has columns 0.
struct WeightSource {
  std::string tensor;
  std::vector<int64_t> tensor_shape;  // expected shape, as stored
  bool transposed = false;
  int64_t first_row = 0;
  int64_t group_rows = 0;
  int64_t group_stride = 0;
  int64_t num_groups = 1;

  int64_t num_rows() const { return num_groups * group_rows; }
  // The row of the stored tensor that contains row `row` of the weight.
  int64_t SourceRow(int64_t row) const {
    return first_row + row / group_rows * group_stride + row % group_rows;
  }
};

// A whole tensor as a matrix or a vector.
WeightSource Matrix(std::string tensor, int64_t rows, int64_t columns);
WeightSource Vector(std::string tensor, int64_t rows);
// Rows [first, first + rows) of a fused matrix with `total` rows, or of a fused vector if columns
// is 0.
WeightSource RowsOf(std::string tensor, int64_t total, int64_t columns, int64_t first,
                    int64_t rows);

struct WeightMap {
  std::map<WeightKey, WeightSource> sources;
  // Suffixes of checkpoint tensors that the decoder does not need, such as saved buffers. They are
  // not reported as extra.
  std::vector<std::string> ignored_suffixes;
  // Prefixes of checkpoint tensors of other model parts. They are not reported as extra.
  std::vector<std::string> ignored_prefixes;
  // For tied embeddings: the name that a separate head would have. If the checkpoint has both and
  // they differ, the config is wrong and both are used. If it has only the head, the head is also
  // the embedding.
  std::string tied_head;
  // Alternative name prefixes, tried in order if the checkpoint has no token embedding under the
  // plain name (GPT-2 of the Hugging Face hub, decoders within a larger model).
  struct PrefixRename {
    std::string from, to;
  };
  std::vector<PrefixRename> prefix_renames;
};

// The additional tensors of a quantized weight. Tensors that the method or the checkpoint does not
// have are without bytes. IntegerWeightRows reads all integer layouts.
struct QuantTensors {
  QuantMethod method = QuantMethod::kNone;
  int32_t num_bits = 0;    // of integer weights, 4 or 8; 0: not integer
  int64_t group_size = 0;  // columns that share a scale, at least 1; 0: no groups
  int32_t zero_offset = 0;
  bool quantizes_input = false;  // see QuantSpec
  CheckpointTensor scales, zeros, group_index, input_scale;
};

struct ResolvedWeight {
  // Packed values if quantized; source.tensor_shape is then the shape of the matrix.
  CheckpointTensor tensor;
  WeightSource source;
  QuantTensors quant;
};
using ResolvedWeights = std::map<WeightKey, ResolvedWeight>;

// Matches the map with a checkpoint. One INVALID_ARG message names all errors: missing tensors,
// unexpected shapes or types (allowed are F32, F16, BF16 and those of `quant`), and unused tensors.
Result<ResolvedWeights> ResolveWeights(const WeightMap& map, const Checkpoint& checkpoint,
                                       const QuantSpec& quant = {});

}  // namespace nereid::llm
