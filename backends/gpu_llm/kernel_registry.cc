// The tables of the registry, and what each kernel can run.
#include "backends/gpu_llm/kernel_registry.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "backends/gpu_llm/kernels/gemm/tile_gemm_shape.h"
#include "backends/gpu_llm/kernels/portable/shared_bytes.h"
#include "backends/llm_core/model/decoder_spec.h"

namespace nereid::gpu {
namespace {

// Sets of forms.
constexpr uint32_t kNative = 1, kPortable = 2, kBothForms = 3;
constexpr bool Has(uint32_t forms, KernelForm form) {
  return (forms & (form == KernelForm::kNative ? kNative : kPortable)) != 0;
}

// Sets of operands: the format of the weights, and for fp8 whether rows are quantized, too.
constexpr uint32_t kBf16 = 1, kInt4 = 2, kFp8 = 4, kFp8Rows = 8, kAll = 15;
uint32_t OperandsOf(const WeightMatrix& weights, bool gathers_columns) {
  switch (weights.format) {
    case WeightFormat::kBf16:
      return kBf16;
    case WeightFormat::kInt4:
      return kInt4;
    case WeightFormat::kFp8:
      break;
  }
  return QuantizesRows(weights, gathers_columns) ? kFp8Rows : kFp8;
}

constexpr int kAnyRows = std::numeric_limits<int>::max();
constexpr KernelMode kFast = KernelMode::kFastest, kInvariant = KernelMode::kBatchInvariant;

// ---- products ----

using ProductCondition = bool (*)(const Product&);

constexpr ProductCondition kAlways = nullptr;
// The fused gate saves a kernel after the product.
constexpr ProductCondition kGates = [](const Product& p) {
  return p.output == GemmEpilogue::kSiluGate ||
         (p.output == GemmEpilogue::kGate && p.form == KernelForm::kNative);
};
constexpr ProductCondition kDoesNotGate = [](const Product& p) { return !kGates(p); };
// The LM head is wide: too large for the fixed costs of cuBLASLt to matter.
constexpr ProductCondition kIsWide = [](const Product& p) {
  return p.weights.num_outputs > 8 * p.weights.depth;
};
constexpr ProductCondition kIsNotWide = [](const Product& p) { return !kIsWide(p); };
constexpr ProductCondition kGatesAndIsNotWide = [](const Product& p) {
  return kGates(p) && !kIsWide(p);
};
// Each block of the stream GEMM has one tile, and copies the input beside the weights.
constexpr ProductCondition kHasATileABlock = [](const Product& p) {
  return !p.norms && p.weights.num_outputs <= 16 * p.num_processors && p.weights.depth <= 4096 &&
         !kIsWide(p);
};
// Every block of the stream GEMM keeps the whole input in shared memory, so with a long one the
// split-K GEMM wins earlier.
constexpr ProductCondition kHasShortInput = [](const Product& p) {
  return p.num_rows == 1 || int64_t{p.num_rows} * p.weights.depth < 28672;
};
constexpr ProductCondition kGatesOrIsDeep = [](const Product& p) {
  return kGates(p) || p.weights.depth >= 2 * p.weights.num_outputs;
};

struct ProductRule {
  uint32_t forms;
  KernelMode mode;
  uint32_t operands;
  ProductKernel kernel;
  int max_rows;
  ProductCondition condition;
};
// The limits of the native form were measured on the layers and the LM head of an 8B model on an
// H200, those of int4 and fp8 also with whole models of other families (gpu_few_rows.csv); those of
// the portable form on the layers on an H100. More than kStreamMaxRows rows take
// several launches of the stream GEMM, each of which reads the weights. Above the limits of
// SplitGemm(), dequantizing int4 and fp8 weights to memory costs less than cuBLASLt gains.
constexpr ProductRule kProductRules[] = {
    // forms    mode        operands  kernel                  rows      if
    {kNative, kFast, kBf16, ProductKernel::kStreamGemm, 16, kHasATileABlock},
    {kNative, kFast, kBf16, ProductKernel::kStreamGemm, 8, kHasShortInput},
    {kNative, kFast, kBf16, ProductKernel::kStreamGemm, 8, kIsWide},
    {kNative, kFast, kBf16, ProductKernel::kSplitGemm, 128, kGatesAndIsNotWide},
    {kNative, kFast, kBf16, ProductKernel::kSplitGemm, 64, kIsNotWide},
    {kNative, kFast, kInt4, ProductKernel::kStreamGemm, 8, kAlways},
    {kNative, kFast, kInt4, ProductKernel::kSplitGemm, 256, kAlways},
    {kNative, kFast, kFp8, ProductKernel::kStreamGemm, 32, kAlways},
    {kNative, kFast, kFp8Rows, ProductKernel::kFp8SplitGemm, 256, kGatesOrIsDeep},
    {kNative, kFast, kFp8Rows, ProductKernel::kFp8SplitGemm, 128, kAlways},
    // The portable split-K GEMM needs a separate norm kernel, which only the product with a gate,
    // the largest one, pays for.
    {kPortable, kFast, kBf16, ProductKernel::kStreamGemm, 2, kGates},
    {kPortable, kFast, kBf16, ProductKernel::kStreamGemm, 8, kDoesNotGate},
    {kPortable, kFast, kBf16, ProductKernel::kSplitGemm, 32, kGates},
    {kPortable, kFast, kBf16, ProductKernel::kSplitGemm, 16, kAlways},
    {kPortable, kFast, kInt4, ProductKernel::kStreamGemm, 8, kDoesNotGate},
    {kPortable, kFast, kInt4, ProductKernel::kSplitGemm, 256, kAlways},
    {kPortable, kFast, kFp8, ProductKernel::kStreamGemm, 2, kGates},
    {kPortable, kFast, kFp8, ProductKernel::kStreamGemm, 8, kDoesNotGate},
    {kPortable, kFast, kFp8, ProductKernel::kSplitGemm, 256, kAlways},
    {kPortable, kFast, kFp8, ProductKernel::kStreamGemm, 16, kAlways},
    {kPortable, kFast, kFp8Rows, ProductKernel::kStreamGemm, 8, kAlways},
    {kBothForms, kFast, kFp8Rows, ProductKernel::kFp8Cublas, kAnyRows, kAlways},
    {kNative, kFast, kFp8Rows, ProductKernel::kFp8ExpertGemm, kAnyRows, kAlways},  // block scales
    {kBothForms, kFast, kAll, ProductKernel::kCublas, kAnyRows, kAlways},
    {kNative, kInvariant, kAll, ProductKernel::kExpertGemm, kAnyRows, kAlways},
    {kBothForms, kInvariant, kAll, ProductKernel::kGroupedGemm, kAnyRows, kAlways},
};

// Whether the kernel adds a bias, and applies any activation and gate, to its sums. Of more than
// kShareRows rows, an activation without a gate was faster as a kernel of its own
// (bench/results/gpu_families.csv).
bool Finishes(ProductKernel kernel, const Product& p) {
  switch (kernel) {
    case ProductKernel::kStreamGemm:
      return p.form == KernelForm::kNative;
    case ProductKernel::kSplitGemm:
    case ProductKernel::kFp8SplitGemm:
      return p.form == KernelForm::kNative &&
             (p.output != GemmEpilogue::kActivate || p.num_rows <= kShareRows);
    case ProductKernel::kCublas:
    case ProductKernel::kFp8Cublas:
    case ProductKernel::kFp8ExpertGemm:
    case ProductKernel::kExpertGemm:
    case ProductKernel::kGroupedGemm:
      return false;
  }
  return false;
}

// Whether the stream GEMM norms the rows itself and reads them as they are.
bool StreamsRowsAsTheyAre(const Product& p) {
  return !p.gathers_columns &&
         CanStream(p.form, p.weights, std::min(p.num_rows, kStreamMaxRows), p.norms);
}

// Whether the batch-invariant product reads the weights as they are.
bool ReadsWeights(const Product& p) {
  if (p.weights.format == WeightFormat::kFp8) return false;
  if (p.output == GemmEpilogue::kFloat)
    return p.weights.format == WeightFormat::kBf16 && p.weights.depth % 8 == 0;
  return CanRunExpertGemm(p.form, p.weights);
}

// StreamExperts() gives the bits of ExpertGemm(), and has tiles of 64 outputs and up to 64 rows
// instead of 256 and 256, so that few rows of a small matrix have enough blocks of threads.
constexpr int kMaxTiledRows = 64;
int InvariantTileRows(const Product& p) {
  if (p.form != KernelForm::kNative || p.weights.format != WeightFormat::kBf16 ||
      p.output == GemmEpilogue::kFloat || p.num_rows > kMaxTiledRows ||
      p.weights.num_outputs > 128 * p.num_processors) {
    return 0;
  }
  int rows = 8;
  while (rows < p.num_rows) rows *= 2;
  return rows;
}

Product Dequantized(Product p) {
  p.weights.format = WeightFormat::kBf16;
  return p;
}

// ---- experts ----

struct ExpertRule {
  ExpertKernel kernel;
  uint32_t forms;
  uint32_t operands;
  int min_inner;         // depth of the down projection
  int tile_rows;         // not of kExpertGemm
  double max_mean_rows;  // of an expert; at most tile_rows
};
// The tiles hold nearly every expert's rows if tokens select experts evenly: each further tile of
// an expert reads its weights again. StreamExperts() needs rows in bf16; batch-invariant steps use
// it where its bits are those of ExpertGemm(). In the native form the tile GEMM is faster for int4
// experts, for large ones in bf16, and for fp8 ones while a step selects few of them (it unpacks
// their weights, and leaves the rows in bf16).
constexpr ExpertRule kExpertRules[] = {
    // kernel, forms, operands, min_inner, tile_rows, max_mean_rows
    {ExpertKernel::kTileExperts, kNative, kInt4, 0, 8, 4.0},
    {ExpertKernel::kTileExperts, kNative, kInt4, 0, 16, 9.0},
    {ExpertKernel::kTileExperts, kNative, kInt4, 0, 32, 20.0},
    {ExpertKernel::kTileExperts, kNative, kFp8Rows, 0, 8, 0.25},
    {ExpertKernel::kTileExperts, kNative, kBf16, 4096, 8, 4.0},
    {ExpertKernel::kTileExperts, kNative, kBf16, 4096, 16, 9.0},
    {ExpertKernel::kStreamExperts, kBothForms, kAll, 0, 8, 4.0},
    {ExpertKernel::kStreamExperts, kBothForms, kAll, 0, 16, 9.0},
    {ExpertKernel::kStreamExperts, kBothForms, kAll, 0, 32, 20.0},
    {ExpertKernel::kStreamExperts, kBothForms, kAll, 0, 64, 46.0},
    {ExpertKernel::kExpertGemm, kBothForms, kAll, 0, 0, 1e30},
};
// From so many rows on, three kernels route faster than one.
constexpr int64_t kManyRouteRows = 512;

bool CanRunExperts(const ExpertRule& rule, const ExpertsProduct& p) {
  const uint32_t operands = OperandsOf(p.gate_up, false) | OperandsOf(p.down, false);
  return Has(rule.forms, p.form) && (operands & ~rule.operands) == 0 &&
         p.down.depth >= rule.min_inner;
}
bool CanStreamExperts(const ExpertsProduct& p) {
  const auto quantizes = [](const WeightMatrix& weights) {
    return weights.format == WeightFormat::kFp8 && weights.quantizes_input;
  };
  if (quantizes(p.gate_up) || quantizes(p.down)) return false;
  return p.mode == kFast ||
         (StreamsLikeExpertGemm(p.form, p.gate_up) && StreamsLikeExpertGemm(p.form, p.down));
}

// ---- decode steps in one launch ----

struct DecodeStepRule {
  uint32_t forms;
  WeightFormat format;
  StepLayers layers;
  int min_expert_inner;  // experts of a shorter depth fill only parts of the ring's slots
  int min_head_dim;      // 0: any
  int max_rows;
};
// A model uses the first rule that fits it. For more rows than a rule says, and for models that no
// rule fits, separate kernels are not slower.
constexpr DecodeStepRule kDecodeStepRules[] = {
    {kBothForms, WeightFormat::kBf16, StepLayers::kPlain, 0, 0, kDecodeStepRows},
    {kBothForms, WeightFormat::kFp8, StepLayers::kPlain, 0, 0, kDecodeStepRows},
    {kBothForms, WeightFormat::kInt4, StepLayers::kPlain, 0, 0, kDecodeStepRows},
    {kNative, WeightFormat::kBf16, StepLayers::kExperts, 4096, 0, 2},
    {kNative, WeightFormat::kBf16, StepLayers::kExperts, 32, 0, 4},
    {kPortable, WeightFormat::kBf16, StepLayers::kExperts, 4096, 0, 2},
    {kPortable, WeightFormat::kBf16, StepLayers::kExperts, 32, 0, kDecodeStepRows},
    {kNative, WeightFormat::kInt4, StepLayers::kExperts, 4096, 0, kDecodeStepRows},
    {kNative, WeightFormat::kInt4, StepLayers::kExperts, 32, 0, 1},
    {kPortable, WeightFormat::kInt4, StepLayers::kExperts, 32, 0, kDecodeStepRows},
    {kNative, WeightFormat::kFp8, StepLayers::kExperts, 4096, 0, kDecodeStepRows},
    {kNative, WeightFormat::kFp8, StepLayers::kExperts, 64, 0, 4},
    {kPortable, WeightFormat::kFp8, StepLayers::kExperts, 4096, 0, 1},
    {kPortable, WeightFormat::kFp8, StepLayers::kExperts, 64, 0, kDecodeStepRows},
    {kBothForms, WeightFormat::kBf16, StepLayers::kGeneral, 0, 0, kDecodeStepRows},
    {kNative, WeightFormat::kFp8, StepLayers::kGeneral, 0, 256, kDecodeStepRows},
    {kNative, WeightFormat::kFp8, StepLayers::kGeneral, 0, 128, 4},
    {kNative, WeightFormat::kFp8, StepLayers::kGeneral, 0, 0, 1},
    {kPortable, WeightFormat::kFp8, StepLayers::kGeneral, 0, 0, kDecodeStepRows},
    {kBothForms, WeightFormat::kInt4, StepLayers::kGeneral, 0, 0, kDecodeStepRows},
};

bool IsGeneral(const FusedDecoder& model) {
  return model.sizes.layers == StepLayers::kGeneral;
}
int StepGroup(const llm::DecoderSpec& spec) {
  return spec.num_kv_heads > 0 ? spec.num_heads / spec.num_kv_heads : 0;
}

struct DecodeStepLimit {
  const char* needs;
  bool (*holds)(const FusedDecoder&);
};
constexpr DecodeStepLimit kDecodeStepLimits[] = {
    {"layers", [](const FusedDecoder& m) { return !m.spec->layers.empty(); }},
    {"one GPU", [](const FusedDecoder& m) { return m.num_gpus == 1; }},
    // Without optimisation the launch fails on an H200; why was not found out.
    {"kernels compiled with optimisation",
     [](const FusedDecoder& m) { return m.has_optimised_kernels; }},
    {"steps that may depend on the batch", [](const FusedDecoder& m) { return m.mode == kFast; }},
    {"weights in GPU memory", [](const FusedDecoder& m) { return !m.streams_weights; }},
    {"matrices of one format", [](const FusedDecoder& m) { return m.has_plain_weights; }},
    {"no attention sinks", [](const FusedDecoder& m) { return m.spec->num_sink_tokens == 0; }},
    {"dense layers",
     [](const FusedDecoder& m) { return !IsGeneral(m) || m.sizes.num_experts == 0; }},
    {"RMS norms after attention and MLP",
     [](const FusedDecoder& m) {
       return !m.spec->post_norms ||
              (m.spec->norm.kind == llm::NormKind::kRms && !m.spec->norm.has_bias);
     }},
    {"rope over multiples of 4 columns",
     [](const FusedDecoder& m) {
       return std::all_of(m.spec->ropes.begin(), m.spec->ropes.end(),
                          [](const llm::RopeSpec& rope) { return rope.dim % 4 == 0; });
     }},
    {"one scale of scores",
     [](const FusedDecoder& m) {
       return std::all_of(m.spec->layers.begin(), m.spec->layers.end(),
                          [](const llm::LayerSpec& layer) { return layer.score_scale == 1.0f; });
     }},
    // Each unit of attention reads the key/value head again.
    {"up to 8 query heads a key/value head, or a number with a divisor of 4 to 8",
     [](const FusedDecoder& m) {
       const int group = StepGroup(*m.spec);
       return group > 0 && m.sizes.num_heads % m.sizes.num_kv_heads == 0 &&
              (group <= kDecodeStepUnitHeads || StepUnitHeads(group) >= 4);
     }},
    {"int4 in groups of 128 or more",
     [](const FusedDecoder& m) {
       return m.sizes.format != WeightFormat::kInt4 || m.sizes.scales_per_block == 1;
     }},
    {"sizes in multiples of 32, in fp8 of 64, outputs of 16",
     [](const FusedDecoder& m) {
       const DecodeStepSizes& s = m.sizes;
       const int q_size = s.num_heads * s.head_dim, kv_size = s.num_kv_heads * s.head_dim;
       const int unit = s.format == WeightFormat::kFp8 ? 64 : 32;
       return s.hidden_size % unit == 0 && s.inner_size % unit == 0 && q_size % unit == 0 &&
              s.expert_inner_size % unit == 0 &&
              (q_size + 2 * kv_size) % kDecodeStepTileOutputs == 0 &&
              s.head_outputs % kDecodeStepTileOutputs == 0;
     }},
    {"up to 8 of 512 experts a token",
     [](const FusedDecoder& m) {
       return m.sizes.num_experts <= kDecodeStepMaxExperts &&
              m.sizes.experts_per_token <= kDecodeStepRowExperts &&
              m.sizes.experts_per_token <= m.sizes.num_experts;
     }},
    {"a kernel for its heads, hidden_size, weights and cache",
     [](const FusedDecoder& m) { return FindStepKernel(m.sizes) >= 0; }},
};

// ---- attention ----

// Tokens from which on unpacking once costs less than unpacking for each tile.
constexpr int kMinUnpackedTokens = 1024;

}  // namespace

const char* KernelName(ProductKernel kernel) {
  switch (kernel) {
    case ProductKernel::kStreamGemm:
      return "StreamGemm";
    case ProductKernel::kSplitGemm:
      return "SplitGemm";
    case ProductKernel::kCublas:
      return "cuBLASLt";
    case ProductKernel::kFp8Cublas:
      return "cuBLASLt on fp8 rows";
    case ProductKernel::kFp8SplitGemm:
      return "SplitGemm on fp8 rows";
    case ProductKernel::kFp8ExpertGemm:
      return "ExpertGemm on fp8 rows";
    case ProductKernel::kExpertGemm:
      return "ExpertGemm";
    case ProductKernel::kGroupedGemm:
      return "GroupedGemm";
  }
  return "?";
}

ProductChoice ChooseProduct(const Product& p) {
  const uint32_t operands = OperandsOf(p.weights, p.gathers_columns);
  const auto* const rule = std::find_if(
      std::begin(kProductRules), std::end(kProductRules), [&](const ProductRule& candidate) {
        return Has(candidate.forms, p.form) && candidate.mode == p.mode &&
               (candidate.operands & operands) != 0 && p.num_rows <= candidate.max_rows &&
               (candidate.condition == nullptr || candidate.condition(p)) &&
               CanRun(candidate.kernel, p);
      });
  ProductChoice choice;
  choice.kernel = rule->kernel;
  choice.rule = static_cast<int>(rule - std::begin(kProductRules));
  choice.finishes = Finishes(rule->kernel, p);
  const bool is_quantized = p.weights.format != WeightFormat::kBf16;
  switch (rule->kernel) {
    case ProductKernel::kStreamGemm:
      choice.prepares_rows = !StreamsRowsAsTheyAre(p);
      break;
    case ProductKernel::kFp8SplitGemm:
    case ProductKernel::kFp8ExpertGemm:
    case ProductKernel::kFp8Cublas:  // quantizing the rows norms them
      break;
    case ProductKernel::kSplitGemm:
      choice.prepares_rows = true;
      break;
    case ProductKernel::kExpertGemm:
      choice.prepares_rows = true;
      choice.dequantizes = is_quantized && !ReadsWeights(p);
      choice.tile_rows = InvariantTileRows(p);
      break;
    case ProductKernel::kCublas:
    case ProductKernel::kGroupedGemm:
      choice.prepares_rows = true;
      choice.dequantizes = is_quantized;
      break;
  }
  return choice;
}

int NumProductRules() {
  return static_cast<int>(std::size(kProductRules));
}

bool CanRun(ProductKernel kernel, const Product& p) {
  switch (kernel) {
    case ProductKernel::kStreamGemm:
      return StreamsRowsAsTheyAre(p) ||
             (!QuantizesRows(p.weights, p.gathers_columns) &&
              CanStream(p.form, p.weights, std::min(p.num_rows, kStreamMaxRows), false));
    case ProductKernel::kSplitGemm:
    case ProductKernel::kFp8SplitGemm:
      return CanSplit(p.form, p.weights);
    case ProductKernel::kFp8Cublas:
      return QuantizesRows(p.weights, p.gathers_columns) && p.weights.block_scales == nullptr;
    case ProductKernel::kFp8ExpertGemm:
      return QuantizesRows(p.weights, p.gathers_columns) && p.output != GemmEpilogue::kFloat &&
             CanRunExpertGemm(p.form, p.weights);
    case ProductKernel::kExpertGemm:
      return (!p.selects_rows || p.norms || p.gathers_columns) &&
             (ReadsWeights(p) || ReadsWeights(Dequantized(p)));
    case ProductKernel::kCublas:
    case ProductKernel::kGroupedGemm:
      return true;
  }
  return false;
}

// cuBLASLt needs rows of whole 16-byte chunks.
bool QuantizesRows(const WeightMatrix& weights, bool gathers_columns) {
  return weights.format == WeightFormat::kFp8 && weights.quantizes_input && !gathers_columns &&
         weights.depth % 16 == 0 && weights.num_outputs % 16 == 0;
}

bool CanStream(KernelForm form, const WeightMatrix& weights, int num_rows, bool norms) {
  if (num_rows > kStreamMaxRows || weights.num_outputs % stream_gemm_shape::kTileOutputs != 0)
    return false;
  if (form == KernelForm::kPortable) return weights.depth % 8 == 0;
  if (weights.depth % (weights.format == WeightFormat::kInt4 ? 8 : 32) != 0) return false;
  if (weights.block_scales != nullptr) return false;
  using stream_gemm_shape::PlanFor;
  const stream_gemm_shape::StreamGemmPlan plan =
      weights.format == WeightFormat::kBf16 ? PlanFor<WeightFormat::kBf16>(weights, num_rows, norms)
      : weights.format == WeightFormat::kFp8
          ? PlanFor<WeightFormat::kFp8>(weights, num_rows, norms)
          : PlanFor<WeightFormat::kInt4>(weights, num_rows, norms);
  // For bf16 weights, an input that does not fit is left to cuBLASLt, which is as fast then.
  return plan.num_stages >= 2 && (plan.in_shared || weights.format != WeightFormat::kBf16);
}

bool CanSplit(KernelForm form, const WeightMatrix& weights) {
  if (weights.num_outputs % kInt4TileRows != 0) return false;
  if (weights.format != WeightFormat::kFp8) return weights.depth % 8 == 0;
  // The native kernel multiplies fp8 by fp8, the portable one unpacks fp8 to bf16.
  return weights.quantizes_input == (form == KernelForm::kNative) && weights.depth % 16 == 0;
}

bool CanRunExpertGemm(KernelForm form, const WeightMatrix& weights) {
  const int outputs =
      form == KernelForm::kNative && weights.format == WeightFormat::kInt4 ? kInt4TileRows : 8;
  if (weights.num_outputs % outputs != 0) return false;
  if (weights.format != WeightFormat::kFp8) return weights.depth % 8 == 0;
  return weights.depth % 16 == 0 && !(form == KernelForm::kPortable && weights.quantizes_input);
}

int64_t SplitPartials(KernelForm form, int num_processors) {
  return form == KernelForm::kNative ? NumSharePartials(num_processors)
                                     : tile_gemm_shape::MaxPartials(num_processors);
}

int SplitGemmTile(int num_rows) {
  if (num_rows <= 32) return 32;
  return num_rows <= 64 ? 64 : 128;
}

int GroupedGemmTile(int num_rows) {
  return num_rows <= 2 * kSmallExpertTile ? kSmallExpertTile : kLargeExpertTile;
}

int ExpertGemmTile(KernelForm form, int num_rows, int num_experts) {
  if (form == KernelForm::kNative) return num_rows / num_experts > 96 ? 256 : 128;
  return num_rows > 48 * num_experts ? 128 : 64;
}

ExpertsChoice ChooseExperts(const ExpertsProduct& p) {
  const double mean_rows = static_cast<double>(p.num_tokens * p.experts_per_token) / p.num_experts;
  const bool streams = CanStreamExperts(p);
  const auto* const rule = std::find_if(
      std::begin(kExpertRules), std::end(kExpertRules), [&](const ExpertRule& candidate) {
        if (mean_rows > candidate.max_mean_rows || !CanRunExperts(candidate, p)) return false;
        switch (candidate.kernel) {
          case ExpertKernel::kTileExperts:
            return p.mode == kFast;
          case ExpertKernel::kStreamExperts:
            return streams;
          case ExpertKernel::kExpertGemm:
            return true;
        }
        return false;
      });
  ExpertsChoice choice;
  choice.kernel = rule->kernel;
  choice.tile_rows = rule->tile_rows;
  choice.rule = static_cast<int>(rule - std::begin(kExpertRules));
  if (choice.kernel == ExpertKernel::kExpertGemm && p.mode == kFast &&
      p.num_tokens >= kManyRouteRows)
    choice.router = RouteKernel::kExpertGemm;
  return choice;
}

int NumExpertRules() {
  return static_cast<int>(std::size(kExpertRules));
}

// Both add an output's products from the first column to the last, unless StreamExperts() divides
// the depth into slices.
bool StreamsLikeExpertGemm(KernelForm form, const WeightMatrix& weights) {
  if (form == KernelForm::kPortable) return false;
  return weights.format == WeightFormat::kBf16 ||
         (weights.format == WeightFormat::kInt4 && weights.depth < kMinSlicedDepth);
}

StepLayers StepLayersOf(const llm::DecoderSpec& spec) {
  const bool is_plain =
      spec.norm.kind == llm::NormKind::kRms && !spec.post_norms && !spec.parallel_residual &&
      !spec.attention_out_bias && !spec.mlp_bias && spec.mlp == llm::MlpKind::kGated &&
      spec.activation == llm::Activation::kSilu && spec.attention_soft_cap <= 0.0f &&
      spec.position == llm::PositionKind::kRope && spec.head_dim <= kWideHeadDim &&
      StepGroup(spec) <= kDecodeStepUnitHeads;
  if (!is_plain) return StepLayers::kGeneral;
  return std::any_of(spec.layers.begin(), spec.layers.end(),
                     [](const llm::LayerSpec& layer) { return layer.is_moe; })
             ? StepLayers::kExperts
             : StepLayers::kPlain;
}

DecodeStepChoice ChooseDecodeStep(const FusedDecoder& model) {
  for (const DecodeStepLimit& limit : kDecodeStepLimits) {
    if (!limit.holds(model)) return {{}, limit.needs};
  }
  for (const DecodeStepRule& rule : kDecodeStepRules) {
    if (Has(rule.forms, model.form) && rule.format == model.sizes.format &&
        rule.layers == model.sizes.layers &&
        model.sizes.expert_inner_size >= rule.min_expert_inner &&
        model.sizes.head_dim >= rule.min_head_dim) {
      return {{rule.max_rows, model.sizes.head_dim <= kWideHeadDim}, nullptr};
    }
  }
  return {{}, "experts for which one launch is faster"};
}

bool HasHeadDim(int head_dim) {
  return std::find(std::begin(portable_shape::kHeadDims), std::end(portable_shape::kHeadDims),
                   head_dim) != std::end(portable_shape::kHeadDims);
}

// Two KV blocks of wide heads fill the shared memory.
int DecodeAttentionBlocks(KernelForm form, int head_dim, CacheFormat cache) {
  const bool is_alone =
      form == KernelForm::kNative && head_dim > 128 && cache == CacheFormat::kBf16;
  return is_alone ? 1 : 2;
}

// The ring of a launch holds six KV blocks of heads of 128 columns (portable: two or four), and
// half as many of heads of 256. Items of two blocks are faster with heads of 256 (tables "KV blocks
// of an item" of bench/results/gpu_general_steps.csv and gpu_portable_steps.csv). With heads of 128
// they are slower in the native form, and were not measured in the portable one.
int FusedItemBlocks(int head_dim) {
  return head_dim > 128 ? 2 : 6;
}

// With a block for each multiprocessor, one block's larger stages are faster. Launches have as many
// blocks as multiprocessors beside those of whole contexts (StepPlanner::MaxDecodeItems()).
bool StagesValues(KernelMode mode, int num_blocks, int num_processors) {
  return mode == kFast && num_blocks > 2 * num_processors;
}

int UnpackedHeads(const PromptAttention& attention) {
  if (attention.cache == CacheFormat::kBf16 || attention.num_tokens < kMinUnpackedTokens) return 0;
  const int heads = static_cast<int>(std::min<int64_t>(
      attention.num_kv_heads, attention.max_unpacked / std::max(1, attention.num_blocks)));
  // Fewer tiles than multiprocessors would leave some of them idle.
  const bool fills = int64_t{heads} * attention.num_tiles >= attention.num_processors;
  return heads == attention.num_kv_heads || fills ? heads : 0;
}

// Measured on an H200 with chunks of 8,192 tokens: the attention of a prompt's first chunk is not
// faster in this way, that of a chunk behind 24,576 tokens is 3 % faster.
bool TakesHeadsInTurn(const PromptAttention& attention) {
  const int64_t context = int64_t{attention.num_blocks} * kBlockTokens;
  return 2 * context >= 3 * int64_t{attention.num_tokens};
}

// Two-shot needs two trips over the link and moves each byte twice. One-shot needs one trip and
// sends each byte, doubled by the epochs, to every other GPU.
bool SumsInOneShot(int num_gpus, int64_t count, int64_t max_one_shot) {
  return count * (num_gpus - 1) <= max_one_shot;
}

}  // namespace nereid::gpu
