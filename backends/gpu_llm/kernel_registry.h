// The registry of kernels. For each operation that has several kernels, one table
// (kernel_registry.cc) says which of them runs, by the form of the kernels, the weight format, the
// rows, the shape, the format of the cache and whether steps are batch-invariant. The first row of
// a table that applies decides. model/ asks here before it launches. Free of CUDA, so that tests
// check every choice against what the kernels can run. [any thread]
#pragma once

#include <cstdint>

#include "backends/gpu_llm/kernel_form.h"
#include "backends/gpu_llm/kernels/attention/cache_layout.h"
#include "backends/gpu_llm/kernels/gemm/gemm_shapes.h"
#include "backends/gpu_llm/kernels/gemm/weight_format.h"
#include "backends/gpu_llm/kernels/step/decode_step_sizes.h"
#include "backends/gpu_llm/step_plan.h"

namespace nereid::llm {
struct DecoderSpec;
}

namespace nereid::gpu {

// kBatchInvariant: a row's result does not depend on the other rows of its step.
enum class KernelMode : int32_t { kFastest, kBatchInvariant };

// ---- products of rows with one matrix: model/linear.h ----

struct Product {
  KernelForm form = KernelForm::kNative;
  KernelMode mode = KernelMode::kFastest;
  WeightMatrix weights;          // of its pointers, only whether there are block scales is read
  bool gathers_columns = false;  // the matrix has an order or a scale of its columns
  GemmEpilogue output = GemmEpilogue::kBf16;
  bool norms = false;         // an RMS norm of the rows comes first
  bool selects_rows = false;  // by indices
  int num_rows = 0;
  int num_processors = 0;  // of the device
};

enum class ProductKernel : int32_t {
  kStreamGemm,
  kSplitGemm,
  kCublas,     // on bf16
  kFp8Cublas,  // on rows that are quantized to fp8, as kFp8SplitGemm
  kFp8SplitGemm,
  kFp8ExpertGemm,  // likewise, of one expert
  kExpertGemm,     // of one expert
  kGroupedGemm,    // of one expert
};
const char* KernelName(ProductKernel kernel);

struct ProductChoice {
  ProductKernel kernel = ProductKernel::kCublas;
  bool prepares_rows = false;  // norm and order of columns are kernels before the product
  bool dequantizes = false;    // the weights to bf16 before the product
  bool finishes = false;       // the kernel adds the bias and applies activation and gate itself
  // With kExpertGemm: rows of a tile of StreamExperts(), which gives the same bits. 0:
  // ExpertGemm().
  int tile_rows = 0;
  int rule = -1;  // index in the table
};
ProductChoice ChooseProduct(const Product& product);
int NumProductRules();
// Whether the kernel can compute the product. Selected rows are written in order beforehand, if the
// product has a norm or gathers columns.
bool CanRun(ProductKernel kernel, const Product& product);
// Whether products of many rows with the matrix quantize the rows to fp8.
bool QuantizesRows(const WeightMatrix& weights, bool gathers_columns);

// What single kernels can run.
bool CanStream(KernelForm form, const WeightMatrix& weights, int num_rows, bool norms);
bool CanSplit(KernelForm form, const WeightMatrix& weights);
bool CanRunExpertGemm(KernelForm form, const WeightMatrix& weights);

// Elements of SplitScratch::partials that make every useful split possible; 0: none are needed.
int64_t SplitPartials(KernelForm form, int num_processors);

// Rows of a tile of the kernel's variant for so many rows. Split-K GEMM: of the native form; the
// portable one follows PlanSplit() (kernels/gemm/tile_gemm_shape.h).
int SplitGemmTile(int num_rows);
int GroupedGemmTile(int num_rows);
// `num_rows`: of all experts.
int ExpertGemmTile(KernelForm form, int num_rows, int num_experts);

// ---- mixtures of experts: model/experts.h ----

struct ExpertsProduct {
  KernelForm form = KernelForm::kNative;
  KernelMode mode = KernelMode::kFastest;
  WeightMatrix gate_up, down;  // of one expert; pointers as in Product
  int64_t num_tokens = 0;
  int experts_per_token = 1, num_experts = 1;
};
enum class ExpertKernel : int32_t {
  kStreamExperts,
  kTileExperts,
  kExpertGemm,  // on rows that are copied to sorted order, in tiles of its own
};
enum class RouteKernel : int32_t {
  kRoute,       // norm, scores, selection and sorting in one kernel, or two
  kExpertGemm,  // norm, scores and selection in a kernel each
};
struct ExpertsChoice {
  ExpertKernel kernel = ExpertKernel::kExpertGemm;
  int tile_rows = 0;  // of kStreamExperts and kTileExperts
  RouteKernel router = RouteKernel::kRoute;
  int rule = -1;  // index in the table
};
ExpertsChoice ChooseExperts(const ExpertsProduct& product);
int NumExpertRules();
// Whether StreamExperts() gives the bits of ExpertGemm().
bool StreamsLikeExpertGemm(KernelForm form, const WeightMatrix& weights);

// ---- decode steps of few sequences: model/decode_step_runner.h ----

// A decoder, and how it runs.
struct FusedDecoder {
  KernelForm form = KernelForm::kNative;
  KernelMode mode = KernelMode::kFastest;
  const llm::DecoderSpec* spec = nullptr;
  DecodeStepSizes sizes = {};
  // All matrices of layers have the format of `sizes`, the LM head is in bf16, and no matrix
  // gathers columns.
  bool has_plain_weights = true;
  bool streams_weights = false;  // from host memory
  int num_gpus = 1;
  bool has_optimised_kernels = true;  // kernels/forms.h
};
struct DecodeStepChoice {
  FusedSteps steps;               // max_rows 0: separate kernels
  const char* missing = nullptr;  // what the model lacks for it
};
DecodeStepChoice ChooseDecodeStep(const FusedDecoder& model);
// What the layers of a model have: DecodeStepSizes::layers.
StepLayers StepLayersOf(const llm::DecoderSpec& spec);

// ---- attention: model/decoder.h ----

// Whether the attention kernels have this head_dim.
bool HasHeadDim(int head_dim);

// Blocks of threads of decode attention for which a multiprocessor has room: 1 or 2.
int DecodeAttentionBlocks(KernelForm form, int head_dim, CacheFormat cache);

// The fewest KV blocks of a context that an item of a decode step in one launch has.
int FusedItemBlocks(int head_dim);

// Whether decode attention copies keys and values of wide heads to stages of their own, so that a
// multiprocessor has room for two blocks of threads after all. Steps of any batch must give the
// same bits in the batch-invariant mode, which therefore never does so.
bool StagesValues(KernelMode mode, int num_blocks, int num_processors);

// How the tokens of prompts read a cache. Tokens of decoding sequences always read it as it is.
struct PromptAttention {
  CacheFormat cache = CacheFormat::kBf16;
  int num_tokens = 0, num_tiles = 0;  // of the step
  int num_blocks = 0;                 // KV blocks of the prompts' contexts
  int num_kv_heads = 1;
  int64_t max_unpacked = 0;  // KV blocks of one head that fit into the memory for it
  int num_processors = 0;
};
// How many key/value heads have their contexts unpacked to bf16 at a time, once for all tiles of
// queries that read them. 0: none are; the attention kernel unpacks each block that it reads.
int UnpackedHeads(const PromptAttention& attention);
// Whether all tiles of one key/value head are computed before those of the next one, each tile by a
// block of threads of its own. Blocks that run at the same time then read the same keys and values.
// Otherwise every multiprocessor has one block of threads, which computes tiles of all heads.
bool TakesHeadsInTurn(const PromptAttention& attention);

// ---- sums over GPUs: kernels/comm ----

// Whether AllReduceAlgorithm::kAuto of `count` elements is kOneShot, else kTwoShot. `max_one_shot`:
// elements that the packet buffers hold.
bool SumsInOneShot(int num_gpus, int64_t count, int64_t max_one_shot);

}  // namespace nereid::gpu
