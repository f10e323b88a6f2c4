// The registry of kernels: its choices for the shapes in bench/gpu_llm/shapes are those of
// kernel_choices.txt, and the kernels can run them.
#include "backends/gpu_llm/kernel_registry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "backends/gpu_llm/kernels/gemm/tile_gemm_shape.h"
#include "backends/gpu_llm/model/sharding.h"
#include "backends/gpu_llm/step_plan.h"
#include "backends/llm_core/model/architecture.h"
#include "tests/support/source_path.h"

namespace nereid::gpu {
namespace {

constexpr int kNumProcessors = 132;
constexpr int kMostRows = 8192;
// Of a block of threads, by the CUDA C++ Programming Guide: of 9.0, and the least of all GPUs that
// the portable form supports (8.6, 8.9, 12.0).
constexpr int kNativeSharedBytes = 227 * 1024, kPortableSharedBytes = 99 * 1024;

constexpr KernelForm kForms[] = {KernelForm::kNative, KernelForm::kPortable};
constexpr KernelMode kModes[] = {KernelMode::kFastest, KernelMode::kBatchInvariant};
const char* Text(KernelForm form) {
  return form == KernelForm::kNative ? "native" : "portable";
}

struct Weights {
  const char* name;
  WeightFormat format;
  bool quantizes_rows;
  bool has_block_scales = false;
};
constexpr Weights kWeights[] = {{"bf16", WeightFormat::kBf16, false},
                                {"int4", WeightFormat::kInt4, false},
                                {"fp8", WeightFormat::kFp8, false},
                                {"fp8, rows too", WeightFormat::kFp8, true},
                                {"fp8 blocks, rows too", WeightFormat::kFp8, true, true}};

struct Shape {
  std::string name;
  llm::DecoderSpec spec;
};

const std::vector<Shape>& Shapes() {
  static const std::vector<Shape> shapes = [] {
    std::vector<Shape> read;
    const std::filesystem::path folder = SourcePath("bench/gpu_llm/shapes");
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const auto config = llm::Checkpoint::OpenConfig(entry.path().string());
      EXPECT_TRUE(config.ok()) << config.status().message();
      const auto model = llm::ReadDecoderSpec(*config);
      EXPECT_TRUE(model.ok()) << model.status().message();
      if (model.ok()) read.push_back({entry.path().filename().string(), model->spec});
    }
    std::sort(read.begin(), read.end(),
              [](const Shape& a, const Shape& b) { return a.name < b.name; });
    return read;
  }();
  return shapes;
}

WeightMatrix Matrix(const Weights& weights, int64_t num_outputs, int64_t depth) {
  WeightMatrix matrix;
  matrix.format = weights.format;
  static constexpr uint32_t kBlockScales[1] = {};  // not read
  matrix.quantizes_input = weights.quantizes_rows;
  if (weights.has_block_scales) matrix.block_scales = kBlockScales;
  matrix.num_outputs = static_cast<int>(num_outputs);
  matrix.depth = static_cast<int>(depth);
  return matrix;
}

struct NamedProduct {
  const char* name;
  Product product;
};

// The products of a layer, and the LM head, as model/decoder.cc calls them.
std::vector<NamedProduct> ProductsOf(const llm::DecoderSpec& spec, const Weights& weights,
                                     KernelForm form, KernelMode mode) {
  const bool norms = spec.norm.kind == llm::NormKind::kRms;
  const bool is_gated = spec.mlp == llm::MlpKind::kGated;
  const bool fuses_gate = is_gated && spec.activation == llm::Activation::kSilu && !spec.mlp_bias;
  const GemmEpilogue gate = fuses_gate ? GemmEpilogue::kSiluGate
                            : is_gated ? GemmEpilogue::kGate
                                       : GemmEpilogue::kActivate;
  const GemmEpilogue added = spec.post_norms ? GemmEpilogue::kBf16 : GemmEpilogue::kAdd;
  std::vector<NamedProduct> products;
  const auto add = [&](const char* name, const WeightMatrix& matrix, bool is_normed,
                       GemmEpilogue output) {
    Product product;
    product.form = form;
    product.mode = mode;
    product.weights = matrix;
    product.norms = is_normed;
    product.output = output;
    product.num_processors = kNumProcessors;
    products.push_back({name, product});
  };
  add("qkv", Matrix(weights, spec.q_size() + 2 * spec.kv_size(), spec.hidden_size), norms,
      GemmEpilogue::kBf16);
  add("attention's output", Matrix(weights, spec.hidden_size, spec.q_size()), false, added);
  if (spec.moe.num_experts == 0) {
    add("gate and up",
        Matrix(weights, (is_gated ? 2 : 1) * spec.intermediate_size, spec.hidden_size),
        norms && !spec.parallel_residual, gate);
    add("down", Matrix(weights, spec.hidden_size, spec.intermediate_size), false, added);
  }
  add("LM head", Matrix(kWeights[0], PaddedVocabulary(spec.vocab_size), spec.hidden_size), norms,
      GemmEpilogue::kFloat);
  products.back().product.selects_rows = true;
  return products;
}

// "StreamGemm <= 8, cuBLASLt" for the rows of steps.
std::string RowsOf(const Product& given) {
  std::ostringstream text;
  Product product = given;
  for (product.num_rows = 1; product.num_rows <= kMostRows;) {
    const ProductKernel kernel = ChooseProduct(product).kernel;
    while (product.num_rows <= kMostRows && ChooseProduct(product).kernel == kernel)
      ++product.num_rows;
    text << (text.tellp() > 0 ? ", " : "") << KernelName(kernel);
    if (product.num_rows <= kMostRows) text << " <= " << product.num_rows - 1;
  }
  return text.str();
}

ExpertsProduct ExpertsOf(const llm::DecoderSpec& spec, const Weights& weights, KernelForm form,
                         KernelMode mode) {
  ExpertsProduct product;
  product.form = form;
  product.mode = mode;
  product.gate_up = Matrix(weights, 2 * spec.moe.intermediate_size, spec.hidden_size);
  product.down = Matrix(weights, spec.hidden_size, spec.moe.intermediate_size);
  product.experts_per_token = spec.moe.experts_per_token;
  product.num_experts = spec.moe.num_experts;
  return product;
}

std::string RowsOf(const ExpertsProduct& given) {
  std::ostringstream text;
  ExpertsProduct product = given;
  const auto describe = [](const ExpertsChoice& choice) {
    const std::string rows = " " + std::to_string(choice.tile_rows);
    std::string name = choice.kernel == ExpertKernel::kExpertGemm    ? "ExpertGemm"
                       : choice.kernel == ExpertKernel::kTileExperts ? "TileExperts" + rows
                                                                     : "StreamExperts" + rows;
    if (choice.router == RouteKernel::kExpertGemm) name += " after a router in three kernels";
    return name;
  };
  for (product.num_tokens = 1; product.num_tokens <= kMostRows;) {
    const std::string kernel = describe(ChooseExperts(product));
    while (product.num_tokens <= kMostRows && describe(ChooseExperts(product)) == kernel)
      ++product.num_tokens;
    text << (text.tellp() > 0 ? ", " : "") << kernel;
    if (product.num_tokens <= kMostRows) text << " <= " << product.num_tokens - 1;
  }
  return text.str();
}

FusedDecoder DecoderOf(const llm::DecoderSpec& spec, const Weights& weights, KernelForm form) {
  FusedDecoder decoder;
  decoder.form = form;
  decoder.spec = &spec;
  decoder.sizes.format = weights.format;
  decoder.sizes.scales_per_block = 1;
  decoder.sizes.hidden_size = spec.hidden_size;
  decoder.sizes.inner_size = spec.intermediate_size;
  decoder.sizes.num_heads = spec.num_heads;
  decoder.sizes.num_kv_heads = spec.num_kv_heads;
  decoder.sizes.head_dim = spec.head_dim;
  decoder.sizes.num_experts = spec.moe.num_experts;
  decoder.sizes.experts_per_token = spec.moe.experts_per_token;
  decoder.sizes.expert_inner_size = spec.moe.intermediate_size;
  decoder.sizes.head_outputs = PaddedVocabulary(spec.vocab_size);
  decoder.sizes.layers = StepLayersOf(spec);
  return decoder;
}

// The kernels of batch-invariant products, which do not depend on the rows.
std::string BatchInvariantKernels(const llm::DecoderSpec& spec, const Weights& weights,
                                  KernelForm form) {
  std::set<std::string> kernels;
  for (const NamedProduct& named : ProductsOf(spec, weights, form, KernelMode::kBatchInvariant))
    kernels.insert(RowsOf(named.product));
  std::string text;
  for (const std::string& kernel : kernels) text += (text.empty() ? "" : " or ") + kernel;
  return text;
}

void WriteChoices(const Shape& shape, std::ostream& out) {
  const llm::DecoderSpec& spec = shape.spec;
  for (const KernelForm form : kForms) {
    for (const Weights& weights : kWeights) {
      out << shape.name << ", " << Text(form) << ", " << weights.name << "\n";
      const DecodeStepChoice step = ChooseDecodeStep(DecoderOf(spec, weights, form));
      if (step.steps.max_rows > 0) {
        out << "  decode step: one launch <= " << step.steps.max_rows << "\n";
      } else {
        out << "  decode step: separate kernels; one launch needs " << step.missing << "\n";
      }
      for (const NamedProduct& named : ProductsOf(spec, weights, form, KernelMode::kFastest)) {
        const WeightMatrix& matrix = named.product.weights;
        const bool is_head = named.product.output == GemmEpilogue::kFloat;
        if (is_head && weights.format != WeightFormat::kBf16) continue;  // it is in bf16
        out << "  " << named.name << " [" << matrix.num_outputs << ", " << matrix.depth
            << "]: " << RowsOf(named.product) << "\n";
      }
      out << "  batch-invariant: " << BatchInvariantKernels(spec, weights, form) << "\n";
      if (spec.moe.num_experts == 0) continue;
      for (const KernelMode mode : kModes) {
        out << "  experts" << (mode == KernelMode::kFastest ? "" : ", batch-invariant") << ": "
            << RowsOf(ExpertsOf(spec, weights, form, mode)) << "\n";
      }
    }
  }
}

// Gemma 2's 8 key/value heads: 16 sequences fill 128 of 132 multiprocessors, 24 do not fit on them.
TEST(KernelRegistryTest, ValuesHaveStagesWhereBlocksShareMultiprocessors) {
  const auto blocks = [](int sequences) {
    StepPlannerOptions options;
    options.num_kv_heads = 8;
    options.num_processors = kNumProcessors;
    options.attention_blocks = DecodeAttentionBlocks(KernelForm::kNative, 256, CacheFormat::kBf16);
    return 8 * StepPlanner(options).MaxDecodeItems(sequences);
  };
  EXPECT_FALSE(StagesValues(KernelMode::kFastest, blocks(16), kNumProcessors));
  EXPECT_TRUE(StagesValues(KernelMode::kFastest, blocks(24), kNumProcessors));
  EXPECT_FALSE(StagesValues(KernelMode::kBatchInvariant, blocks(24), kNumProcessors));
}

// After an intended change, run the test with NEREID_WRITE_DOCS=1 to write the file.
TEST(KernelRegistryTest, ChoicesForTheShapesAreThoseOfTheFile) {
  const std::string path = SourcePath("tests/backends/gpu_llm/kernel_choices.txt");
  std::ostringstream choices;
  for (const Shape& shape : Shapes()) WriteChoices(shape, choices);
  if (std::getenv("NEREID_WRITE_DOCS") != nullptr) {
    std::ofstream(path) << choices.str();
    return;
  }
  std::ifstream file(path);
  std::istringstream got(choices.str());
  std::string expected_line, got_line, heading;
  for (int line = 1;; ++line) {
    const bool has_expected = static_cast<bool>(std::getline(file, expected_line));
    ASSERT_EQ(has_expected, static_cast<bool>(std::getline(got, got_line))) << path << ":" << line;
    if (!has_expected) break;
    if (expected_line[0] != ' ') heading = expected_line;
    EXPECT_EQ(got_line, expected_line) << path << ":" << line << ", " << heading;
  }
}

// Shared memory that the stream GEMM needs, its static arrays included.
int StreamGemmBytes(const Product& product, int num_rows) {
  using namespace stream_gemm_shape;
  const auto bytes = [&]<WeightFormat kFormat>() {
    using Stage = StageShape<kFormat>;
    const StreamGemmPlan plan = PlanFor<kFormat>(product.weights, num_rows, product.norms);
    const int token_tiles = num_rows <= 8 ? 1 : 2;
    const int fixed = 2 * Stage::kWarps * token_tiles * 32 * 16 +
                      8 * token_tiles * Stage::kWarps * 4 + 8 * (2 * kMaxStages + 1);
    return fixed + std::max(kMinSharedBytes,
                            plan.num_stages * Stage::Bytes(product.weights.scales_per_block) +
                                plan.input_bytes);
  };
  switch (product.weights.format) {
    case WeightFormat::kBf16:
      return bytes.operator()<WeightFormat::kBf16>();
    case WeightFormat::kFp8:
      return bytes.operator()<WeightFormat::kFp8>();
    case WeightFormat::kInt4:
      return bytes.operator()<WeightFormat::kInt4>();
  }
  return 0;
}

// What the headers of the launchers demand (gemm.h, expert_gemm.h, tile_gemm.h).
void ExpectRuns(const Product& product, const ProductChoice& choice) {
  const WeightMatrix& weights = product.weights;
  const bool is_native = product.form == KernelForm::kNative;
  const bool reads_fp8 = weights.format == WeightFormat::kFp8 && !choice.dequantizes;
  switch (choice.kernel) {
    case ProductKernel::kStreamGemm: {
      const int rows = std::min(product.num_rows, kStreamMaxRows);
      Product prepared = product;
      if (choice.prepares_rows) prepared.norms = false;
      EXPECT_FALSE(product.gathers_columns && !choice.prepares_rows);
      EXPECT_EQ(weights.num_outputs % 16, 0);
      EXPECT_EQ(weights.depth % 8, 0);
      if (is_native) EXPECT_LE(StreamGemmBytes(prepared, rows), kNativeSharedBytes);
      break;
    }
    case ProductKernel::kSplitGemm:
    case ProductKernel::kFp8SplitGemm: {
      EXPECT_EQ(weights.num_outputs % 16, 0);
      EXPECT_EQ(weights.depth % (reads_fp8 ? 16 : 8), 0);
      EXPECT_EQ(choice.kernel == ProductKernel::kFp8SplitGemm, is_native && reads_fp8);
      if (is_native) {
        const int tile = SplitGemmTile(product.num_rows);
        EXPECT_TRUE(tile == 32 || tile == 64 || tile == 128) << tile;
      } else {
        const tile_gemm_shape::SplitPlan plan =
            tile_gemm_shape::PlanSplit(weights.format, weights.scales_per_block, product.num_rows,
                                       weights.num_outputs, weights.depth, product.num_processors,
                                       8, SplitPartials(product.form, product.num_processors));
        EXPECT_LE(tile_gemm_shape::TileGemmShapeOf(plan.of).shared_bytes(), kPortableSharedBytes);
        EXPECT_GE(plan.num_slices, 1);
      }
      break;
    }
    case ProductKernel::kFp8ExpertGemm:
      EXPECT_TRUE(is_native && reads_fp8 && weights.quantizes_input);
      EXPECT_NE(product.output, GemmEpilogue::kFloat);
      EXPECT_EQ(weights.num_outputs % 16, 0);
      EXPECT_EQ(weights.depth % 16, 0);
      break;
    case ProductKernel::kFp8Cublas:
      EXPECT_TRUE(reads_fp8 && weights.quantizes_input && weights.block_scales == nullptr);
      EXPECT_EQ(weights.num_outputs % 16, 0);
      EXPECT_EQ(weights.depth % 16, 0);
      break;
    case ProductKernel::kCublas:
      EXPECT_EQ(choice.dequantizes, weights.format != WeightFormat::kBf16);
      break;
    case ProductKernel::kExpertGemm:
      EXPECT_TRUE(is_native);
      EXPECT_FALSE(reads_fp8);
      EXPECT_EQ(weights.depth % 8, 0);
      if (product.output != GemmEpilogue::kFloat) EXPECT_EQ(weights.num_outputs % 8, 0);
      if (weights.format == WeightFormat::kInt4 && !choice.dequantizes) {
        EXPECT_EQ(weights.num_outputs % kInt4TileRows, 0);
        EXPECT_NE(product.output, GemmEpilogue::kFloat);
      }
      break;
    case ProductKernel::kGroupedGemm:
      EXPECT_EQ(choice.dequantizes, weights.format != WeightFormat::kBf16);
      EXPECT_EQ(weights.depth % 8, 0);
      break;
  }
}

TEST(KernelRegistryTest, ChosenKernelsCanRunTheProducts) {
  for (const Shape& shape : Shapes()) {
    for (const KernelForm form : kForms) {
      for (const KernelMode mode : kModes) {
        for (const Weights& weights : kWeights) {
          for (NamedProduct& named : ProductsOf(shape.spec, weights, form, mode)) {
            for (const bool gathers : {false, true}) {
              for (int rows = 1; rows <= kMostRows; rows += rows < 300 ? 1 : 331) {
                SCOPED_TRACE(::testing::Message()
                             << shape.name << ", " << Text(form) << ", " << weights.name << ", "
                             << named.name << ", " << rows << " rows, gathers " << gathers);
                named.product.gathers_columns = gathers;
                named.product.num_rows = rows;
                ExpectRuns(named.product, ChooseProduct(named.product));
                if (HasFailure()) return;
              }
            }
          }
        }
      }
    }
  }
}

// With columns that only one kernel takes, too.
TEST(KernelRegistryTest, EveryRuleOfProductsDecidesSomeProduct) {
  std::set<int> rules;
  for (const KernelForm form : kForms) {
    for (const KernelMode mode : kModes) {
      for (const Weights& weights : kWeights) {
        for (const auto& [outputs, depth] :
             std::initializer_list<std::pair<int, int>>{{4096, 4096},
                                                        {4096, 14336},
                                                        {28672, 4096},
                                                        {128256, 4096},
                                                        {2048, 4096},
                                                        {64, 24}}) {
          for (const GemmEpilogue output :
               {GemmEpilogue::kBf16, GemmEpilogue::kSiluGate, GemmEpilogue::kGate}) {
            for (const int rows : {1, 2, 4, 8, 12, 16, 20, 40, 100, 200, 1000}) {
              Product product;
              product.form = form;
              product.mode = mode;
              product.weights = Matrix(weights, outputs, depth);
              product.output = output;
              product.num_rows = rows;
              product.num_processors = kNumProcessors;
              rules.insert(ChooseProduct(product).rule);
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(static_cast<int>(rules.size()), NumProductRules());
}

// A batch-invariant row meets the same kernel in steps of all sizes.
TEST(KernelRegistryTest, BatchInvariantProductsDoNotDependOnTheNumberOfRows) {
  for (const Shape& shape : Shapes()) {
    for (const KernelForm form : kForms) {
      for (const Weights& weights : kWeights) {
        for (NamedProduct& named :
             ProductsOf(shape.spec, weights, form, KernelMode::kBatchInvariant)) {
          named.product.num_rows = 1;
          const ProductChoice first = ChooseProduct(named.product);
          for (int rows = 2; rows <= kMostRows; rows += rows < 300 ? 1 : 331) {
            named.product.num_rows = rows;
            EXPECT_EQ(ChooseProduct(named.product).rule, first.rule) << named.name << rows;
          }
        }
      }
    }
  }
}

TEST(KernelRegistryTest, TilesOfExpertsHoldTheMeanNumberOfRows) {
  std::set<int> rules;
  for (const Shape& shape : Shapes()) {
    if (shape.spec.moe.num_experts == 0) continue;
    for (const KernelForm form : kForms) {
      for (const KernelMode mode : kModes) {
        for (const Weights& weights : kWeights) {
          ExpertsProduct product = ExpertsOf(shape.spec, weights, form, mode);
          for (product.num_tokens = 1; product.num_tokens <= kMostRows; ++product.num_tokens) {
            const ExpertsChoice choice = ChooseExperts(product);
            rules.insert(choice.rule);
            if (choice.kernel == ExpertKernel::kExpertGemm) continue;
            // The other kernel with tiles cannot read fp8 weights in the native form.
            EXPECT_TRUE(!weights.quantizes_rows || choice.kernel == ExpertKernel::kTileExperts);
            EXPECT_NE(
                std::find(std::begin(kStreamTileRows), std::end(kStreamTileRows), choice.tile_rows),
                std::end(kStreamTileRows));
            EXPECT_LE(choice.tile_rows, 64);  // of int4
            EXPECT_LE(product.num_tokens * product.experts_per_token,
                      int64_t{choice.tile_rows} * product.num_experts);
            EXPECT_EQ(choice.router, RouteKernel::kRoute);  // which sorts the pairs
          }
        }
      }
    }
  }
  EXPECT_EQ(static_cast<int>(rules.size()), NumExpertRules());
}

TEST(KernelRegistryTest, DecodeStepsInOneLaunchHaveAKernel) {
  int num_fused = 0;
  for (const Shape& shape : Shapes()) {
    for (const KernelForm form : kForms) {
      for (const Weights& weights : kWeights) {
        FusedDecoder decoder = DecoderOf(shape.spec, weights, form);
        const DecodeStepChoice choice = ChooseDecodeStep(decoder);
        EXPECT_EQ(choice.steps.max_rows == 0, choice.missing != nullptr);
        if (choice.steps.max_rows == 0) continue;
        ++num_fused;
        EXPECT_LE(choice.steps.max_rows, kDecodeStepRows);
        ASSERT_GE(FindStepKernel(decoder.sizes), 0);
        FusedDecoder not_optimised = decoder;
        not_optimised.has_optimised_kernels = false;
        EXPECT_STREQ(ChooseDecodeStep(not_optimised).missing, "kernels compiled with optimisation");
        for (const CacheFormat cache : {CacheFormat::kFp8, CacheFormat::kInt8}) {
          decoder.sizes.cache_format = cache;
          EXPECT_EQ(ChooseDecodeStep(decoder).steps.max_rows, choice.steps.max_rows);
        }
      }
    }
  }
  EXPECT_GT(num_fused, 0);
}

TEST(KernelRegistryTest, DecodeStepsWithHeadsOf16HaveAKernelForBf16Alone) {
  DecodeStepSizes sizes = {};
  sizes.format = WeightFormat::kBf16, sizes.cache_format = CacheFormat::kBf16;
  sizes.hidden_size = 64, sizes.head_dim = 16, sizes.layers = StepLayers::kPlain;
  EXPECT_GE(FindStepKernel(sizes), 0);
  sizes.cache_format = CacheFormat::kFp8;
  EXPECT_EQ(FindStepKernel(sizes), -1);
  sizes.format = WeightFormat::kInt4, sizes.cache_format = CacheFormat::kBf16;
  EXPECT_EQ(FindStepKernel(sizes), -1);
}

TEST(KernelRegistryTest, UnitsOfAttentionAreTheLargestEqualPartsOfAGroup) {
  EXPECT_EQ(StepUnitHeads(1), 1);
  EXPECT_EQ(StepUnitHeads(7), 7);
  EXPECT_EQ(StepUnitHeads(8), 8);
  EXPECT_EQ(StepUnitHeads(12), 6);
  EXPECT_EQ(StepUnitHeads(48), 8);
  EXPECT_EQ(StepUnitHeads(71), 1);
}

TEST(KernelRegistryTest, CachesOfLongPromptsAreUnpackedOnceIfThereIsMemory) {
  // Tokens, tiles, KV blocks of 8 heads, and blocks of one head that fit.
  const auto heads = [](CacheFormat cache, int tokens, int tiles, int blocks, int64_t fit) {
    return UnpackedHeads({cache, tokens, tiles, blocks, 8, fit, 132});
  };
  EXPECT_EQ(heads(CacheFormat::kBf16, 4096, 128, 64, 512), 0);
  EXPECT_EQ(heads(CacheFormat::kInt8, 1023, 32, 64, 512), 0);
  EXPECT_EQ(heads(CacheFormat::kInt8, 1024, 32, 64, 512), 8);
  EXPECT_EQ(heads(CacheFormat::kFp8, 4096, 128, 65, 512), 7);
  EXPECT_EQ(heads(CacheFormat::kFp8, 8192, 256, 512, 512), 1);
  EXPECT_EQ(heads(CacheFormat::kFp8, 1024, 32, 512, 512), 0);  // too few tiles for one head
  EXPECT_EQ(heads(CacheFormat::kFp8, 8192, 256, 513, 512), 0);
}

TEST(KernelRegistryTest, HeadsTakeTurnsWherePromptsAreBehindLongContexts) {
  const auto take_turns = [](int tokens, int blocks) {
    return TakesHeadsInTurn({CacheFormat::kBf16, tokens, tokens / 32, blocks, 8, 0, 132});
  };
  EXPECT_FALSE(take_turns(8192, 8192 / 64));
  EXPECT_FALSE(take_turns(8192, 8192 / 64 * 3 / 2 - 1));
  EXPECT_TRUE(take_turns(8192, 8192 / 64 * 3 / 2));
  EXPECT_TRUE(take_turns(512, 131072 / 64));
}

TEST(KernelRegistryTest, SumsInOneShotFitThePacketBuffers) {
  constexpr int64_t kBuffer = 1 << 18;
  for (int num_gpus = 2; num_gpus <= 8; ++num_gpus) {
    EXPECT_TRUE(SumsInOneShot(num_gpus, kBuffer / (num_gpus - 1), kBuffer));
    EXPECT_FALSE(SumsInOneShot(num_gpus, kBuffer / (num_gpus - 1) + 1, kBuffer));
  }
}

}  // namespace
}  // namespace nereid::gpu
