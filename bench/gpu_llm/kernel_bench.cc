// Measures matrix products alone: each matrix of a layer, by format and row count, in consecutive
// launches as in a recorded step, over more weights than the cache has, with their norm and gate.
// --kernel rope measures the rotary embedding with its cache writes instead: up to 512 rows of as
// many sequences, more rows of one sequence. --kernel attention measures the attention of prompts
// of so many rows, 8,192 in all, behind --cached tokens each. --kernel divisions prints the times
// of the split-K GEMM with each number of groups of outputs of a block, and of slices of the depth:
// format, outputs, depth, rows, groups, slices, microseconds.
//
//   gpu_kernel_bench [--shape 8b|1b|70b/4|qwen3-30b-a3b] [--rows 1,8,16] [--weights bf16|fp8|int4]
//                    [--kernel auto|stream|split|divisions|cublas|rope|attention] [--split 0]
//                    [--cached 0]
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "backends/gpu_llm/cuda/memory.h"
#include "backends/gpu_llm/kernels/attention/attention.h"
#include "backends/gpu_llm/kernels/attention/rope.h"
#include "backends/gpu_llm/kernels/forms.h"
#include "backends/gpu_llm/kernels/gemm/gemm.h"
#include "backends/gpu_llm/kernels/gemm/gemm_input.h"
#include "backends/gpu_llm/kernels/gemm/weight_kernels.h"
#include "backends/gpu_llm/model/linear.h"
#include "backends/gpu_llm/step_plan.h"
#include "bench/gpu_llm/graph_timer.h"
#include "bench/gpu_llm/number_list.h"

namespace nereid::bench {
namespace {

using namespace gpu;

constexpr double kPeakBandwidth = 4.65e12;  // bytes a second, of an H200
constexpr int kProcessors = 132;            // multiprocessors of an H200
constexpr int64_t kPoolBytes = int64_t{1} << 30;
constexpr int64_t kPartials = int64_t{16} << 20;  // of the split-K GEMM
constexpr int kMaxRows = 8192, kMaxDepth = 14336, kMaxOutputs = 28672;

struct Shape {
  const char* name;
  int num_outputs, depth;
  bool norms;
  GemmEpilogue output;
};

int64_t SizeBytes(const WeightMatrix& matrix) {
  const int64_t count = int64_t{matrix.num_outputs} * matrix.depth;
  switch (matrix.format) {
    case WeightFormat::kBf16:
      return count * 2;
    case WeightFormat::kFp8:
      return count;
    default:
      return matrix.num_outputs / kInt4TileRows * Int4TileBytes(matrix.depth, 1);
  }
}

class Bench {
 public:
  Bench()
      : pool_(std::move(*DeviceMemory::Allocate(kPoolBytes, "weights"))),
        scales_(std::move(*DeviceMemory::Allocate(1 << 20, "scales"))),
        in_(std::move(*DeviceMemory::Allocate(kMaxRows * kMaxDepth * 2, "input"))),
        normed_(std::move(*DeviceMemory::Allocate(kMaxRows * kMaxDepth * 2, "normed rows"))),
        norm_(std::move(*DeviceMemory::Allocate(1 << 16, "norm"))),
        out_(std::move(*DeviceMemory::Allocate(kMaxRows * kMaxOutputs * 2, "output"))),
        scratch_(std::move(*DeviceMemory::Allocate(kMaxRows * kMaxOutputs * 2, "scratch"))),
        partials_(std::move(*DeviceMemory::Allocate(kPartials * 4, "partial sums"))),
        tickets_(std::move(*DeviceMemory::Allocate(kMaxSplitTickets * 4, "counters"))) {
    Check(cudaMemset(tickets_.data(), 0, tickets_.size_bytes()));
    RandomFill(in_.as<__nv_bfloat16>(), kMaxRows * kMaxDepth, 1.0f, 1, nullptr);
    ConstantFill(norm_.as<__nv_bfloat16>(), 1 << 15, 1.0f, nullptr);
    Check(cudaMemset(out_.data(), 0, out_.size_bytes()));
  }

  void Run(const Shape& shape, WeightFormat format, int num_rows, const std::string& kernel,
           int split) {
    GpuMatrix matrix;
    matrix.format = format;
    matrix.num_outputs = shape.num_outputs;
    matrix.depth = shape.depth;
    matrix.row_scales = scales_.as<float>();
    matrix.quantizes_input = CurrentForm() == KernelForm::kNative;
    if (kernel == "stream" && !CanStream(CurrentForm(), matrix, num_rows, shape.norms)) return;
    const int64_t bytes = SizeBytes(matrix), pitch = (bytes + 255) / 256 * 256;
    std::vector<GpuMatrix> matrices;
    for (int64_t at = 0; at + pitch <= kPoolBytes && matrices.size() < 64; at += pitch) {
      matrix.data = pool_.as<char>() + at;
      RandomFillMatrix(matrix, 1 + at, nullptr);
      matrices.push_back(matrix);
    }
    GpuWeights weights;
    weights.lm_head = matrices[0];
    auto runner = std::move(*LinearRunner::Create(weights, kMaxRows, kProcessors));
    auto cublas = std::move(*CublasGemm::Create());
    const bool is_fp8 = format == WeightFormat::kFp8 && matrix.quantizes_input;
    QuantizeRows({.in = in_.as<__nv_bfloat16>(),
                  .out = normed_.as<uint8_t>(),
                  .scales = scratch_.as<float>(),
                  .num_rows = num_rows,
                  .depth = shape.depth},
                 nullptr);
    int groups = 0;  // the fastest
    const auto multiply = [&](const GpuMatrix& one, bool may_time) {
      const __nv_bfloat16* norm = shape.norms ? norm_.as<__nv_bfloat16>() : nullptr;
      if (kernel == "stream") {
        StreamGemm({.weights = one,
                    .in = in_.as<__nv_bfloat16>(),
                    .norm_weight = norm,
                    .out = out_.data(),
                    .num_rows = num_rows,
                    .epsilon = 1e-5f,
                    .output = shape.output},
                   kProcessors, timer_.stream());
        return;
      }
      if (kernel == "split" || kernel == "divisions") {
        Check(SplitGemm({.weights = one,
                         .in = is_fp8 ? normed_.data() : in_.data(),
                         .in_scales = scratch_.as<float>(),
                         .out = out_.data(),
                         .num_rows = num_rows,
                         .output = shape.output,
                         .split = split,
                         .scratch = {.partials = partials_.as<float>(),
                                     .tickets = tickets_.as<int32_t>(),
                                     .num_partials = kPartials},
                         .groups = groups},
                        timer_.stream()));
        return;
      }
      if (kernel == "cublas") {  // without the gate
        CublasGemmCall call;
        call.weights = one.data;
        call.in = in_.data();
        call.out = out_.data();
        call.num_rows = num_rows;
        call.row_capacity = kMaxRows;
        call.num_outputs = one.num_outputs;
        call.depth = one.depth;
        if (const Status status = cublas.Run(call, may_time, timer_.stream()); !status.ok()) {
          std::printf("error: %s\n", status.message().c_str());
          std::exit(1);
        }
        return;
      }
      LinearCall call;
      call.weights = &one;
      call.in = in_.as<__nv_bfloat16>();
      call.norm_weight = norm;
      call.epsilon = 1e-5f;
      call.normed = normed_.as<__nv_bfloat16>();
      call.output = shape.output;
      call.out = out_.data();
      call.scratch = scratch_.data();
      call.row_capacity = kMaxRows;
      if (const Status status = runner.Run(call, num_rows, may_time, timer_.stream());
          !status.ok()) {
        std::printf("error: %s\n", status.message().c_str());
        std::exit(1);
      }
    };
    do {  // until the algorithm is chosen
      multiply(matrices[0], true);
      Check(cudaStreamSynchronize(timer_.stream()));
    } while ((kernel == "cublas" ? cublas.TakeNumTrials() : runner.TakeNumTrials()) > 0);
    const char* name = format == WeightFormat::kBf16  ? "bf16"
                       : format == WeightFormat::kFp8 ? "fp8"
                                                      : "int4";
    const auto measure = [&] {
      return timer_.Measure(static_cast<int>(matrices.size()),
                            [&](int i) { multiply(matrices[i], false); });
    };
    if (kernel == "divisions") {
      for (groups = 1; groups <= kMaxSplitGroups; ++groups) {
        for (split = 1; split <= kMaxSplit; ++split) {
          std::printf("%s,%d,%d,%d,%d,%d,%.2f\n", name, shape.num_outputs, shape.depth, num_rows,
                      groups, split, measure());
        }
      }
      return;
    }
    const double us = measure();
    const double operations = 2.0 * num_rows * shape.num_outputs * shape.depth;
    std::printf("%-5s %-8s %4d rows: %6.1f us, %5.0f GB/s, %3.0f %% of the roof, %3.0f TFLOP/s\n",
                name, shape.name, num_rows, us, static_cast<double>(bytes) / us / 1e3,
                100.0 * static_cast<double>(bytes) / (us * 1e-6) / kPeakBandwidth,
                operations / us / 1e6);
  }

  // 32 and 8 heads of 128; prompts of `length` tokens behind `cached` tokens.
  void RunAttention(int length, int cached, CacheFormat format) {
    constexpr int kHeads = 32, kKvHeads = 8, kDim = 128;
    const int count = std::max(1, 8192 / length);
    const int blocks = (cached + length + kBlockTokens - 1) / kBlockTokens;
    std::vector<std::vector<int32_t>> tables(count);
    llm::StepBatch batch;
    for (int i = 0; i < count; ++i) {
      for (int b = 0; b < blocks; ++b) tables[i].push_back(b * count + i);
      llm::BatchEntry& sequence = batch.entries.emplace_back();
      sequence.first_token = i * length;
      sequence.num_tokens = length;
      sequence.num_cached = cached;
      sequence.block_table = tables[i];
      batch.token_ids.insert(batch.token_ids.end(), length, 0);
    }
    StepPlanner planner(
        {.num_heads = kHeads, .num_kv_heads = kKvHeads, .num_processors = kProcessors});
    planner.Plan(batch);
    const int64_t words_bytes = static_cast<int64_t>(planner.words().size_bytes());
    const DeviceMemory words = std::move(*DeviceMemory::Allocate(words_bytes, "a plan"));
    Check(cudaMemcpy(words.data(), planner.words().data(), words_bytes, cudaMemcpyHostToDevice));
    const int64_t cache_bytes = int64_t{count} * blocks * kKvHeads * HeadBytes(kDim, format);
    if (cache_bytes > kPoolBytes) {
      std::printf("a cache of %lld bytes exceeds the benchmark's %lld\n",
                  static_cast<long long>(cache_bytes), static_cast<long long>(kPoolBytes));
      return;
    }
    Check(cudaMemset(pool_.data(), 0x3c, cache_bytes));  // small numbers in every format
    const StepLayout layout(planner.shape());
    PrefillAttentionParams params = {};
    params.qkv = out_.as<__nv_bfloat16>();
    params.out = scratch_.as<__nv_bfloat16>();
    params.cache = pool_.data();
    params.tiles = reinterpret_cast<const PrefillTile*>(words.as<int32_t>() + layout.prefill_tiles);
    params.words = words.as<int32_t>();
    params.num_tiles = planner.shape().num_prefill;
    params.num_heads = kHeads;
    params.num_kv_heads = kKvHeads;
    params.head_dim = kDim;
    params.qkv_stride = (kHeads + 2 * kKvHeads) * kDim;
    params.out_stride = kHeads * kDim;
    params.scale = 0.088f;
    params.format = format;
    RandomFill(out_.as<__nv_bfloat16>(), int64_t{count} * length * params.qkv_stride, 1.0f, 3,
               nullptr);
    if (format == CacheFormat::kBf16)
      RandomFill(pool_.as<__nv_bfloat16>(), cache_bytes / 2, 1.0f, 4, nullptr);
    for (const bool head_by_head : {false, true}) {
      params.head_by_head = head_by_head;
      params.num_processors = head_by_head ? 0 : kProcessors;
      const double us = timer_.Measure(8, [&](int) { PrefillAttention(params, timer_.stream()); });
      const double operations =
          2.0 * count * length * (2.0 * cached + length + 1.0) * kHeads * kDim;
      std::printf(
          "attention, cache of %d bytes an element, %5d tokens x %3d behind %6d, %s: %7.1f us, "
          "%3.0f "
          "TFLOP/s\n",
          format == CacheFormat::kBf16 ? 2 : 1, length, count, cached,
          head_by_head ? "head by head" : "all heads", us, operations / us / 1e6);
    }
  }

  // 32 and 8 heads of 128.
  void RunRope(int num_rows, CacheFormat format) {
    constexpr int kHeads = 32, kKvHeads = 8, kDim = 128;
    const bool is_decode = num_rows <= 512;
    const int blocks = is_decode ? num_rows : (num_rows + kBlockTokens - 1) / kBlockTokens;
    std::vector<int32_t> positions(num_rows), slots(num_rows);
    for (int row = 0; row < num_rows; ++row) {
      positions[row] = is_decode ? 640 : row;
      slots[row] = is_decode ? row * kBlockTokens + row % kBlockTokens : row;
    }
    const auto upload = [](const std::vector<int32_t>& values) {
      DeviceMemory memory = std::move(*DeviceMemory::Allocate(4 * values.size(), "a plan"));
      Check(cudaMemcpy(memory.data(), values.data(), 4 * values.size(), cudaMemcpyHostToDevice));
      return memory;
    };
    const DeviceMemory positions_there = upload(positions), slots_there = upload(slots),
                       table =
                           std::move(*DeviceMemory::Allocate(kDim / 2 * 16384 * 8, "a rope table"));
    Check(cudaMemset(table.data(), 0, table.size_bytes()));
    RopeWriteParams rope = {};
    rope.qkv = out_.as<__nv_bfloat16>();
    rope.positions = positions_there.as<int32_t>();
    rope.cache_slots = slots_there.as<int32_t>();
    rope.cos_sin = table.as<float2>();
    rope.num_rows = num_rows;
    rope.num_heads = kHeads;
    rope.num_kv_heads = kKvHeads;
    rope.head_dim = rope.rope_dim = kDim;
    rope.format = format;
    rope.rows_are_independent = is_decode;
    const int64_t layer_bytes = blocks * kKvHeads * HeadBytes(kDim, format);
    const auto layers = static_cast<int>(std::min<int64_t>(32, kPoolBytes / layer_bytes));
    const double us = timer_.Measure(layers, [&](int layer) {
      rope.cache = pool_.as<char>() + layer * layer_bytes;
      RopeWrite(rope, timer_.stream());
    });
    const double element = format == CacheFormat::kBf16 ? 2.0 : 1.0;
    const double bytes = num_rows * double{kDim} *
                         (2.0 * (kHeads + 2 * kKvHeads) + 2.0 * kHeads + element * 2 * kKvHeads);
    std::printf("rope, cache of %.0f bytes an element, %5d rows: %6.1f us, %3.0f %% of the roof\n",
                element, num_rows, us, 100.0 * bytes / (us * 1e-6) / kPeakBandwidth);
  }

 private:
  DeviceMemory pool_, scales_, in_, normed_, norm_, out_, scratch_, partials_, tickets_;
  GraphTimer timer_;
};

std::vector<Shape> Attention(int hidden, int qkv, int attention) {
  return {{"qkv", qkv, hidden, true, GemmEpilogue::kBf16},
          {"out", hidden, attention, false, GemmEpilogue::kAdd}};
}

std::vector<Shape> Layer(int hidden, int qkv, int attention, int inner) {
  return {{"qkv", qkv, hidden, true, GemmEpilogue::kBf16},
          {"out", hidden, attention, false, GemmEpilogue::kAdd},
          {"gate_up", 2 * inner, hidden, true, GemmEpilogue::kSiluGate},
          {"down", hidden, inner, false, GemmEpilogue::kAdd}};
}

int Main(int argc, char** argv) {
  std::map<std::string, std::string> given = {{"--shape", "8b"}, {"--rows", "1,8,16"},
                                              {"--weights", ""}, {"--kernel", "auto"},
                                              {"--split", "0"},  {"--cached", "0"}};
  for (int i = 1; i + 1 < argc; i += 2) given[argv[i]] = argv[i + 1];
  setvbuf(stdout, nullptr, _IOLBF, 0);
  Bench bench;
  const std::map<std::string, std::vector<Shape>> models = {
      {"1b", Layer(2048, 3072, 2048, 8192)},
      {"8b", Layer(4096, 6144, 4096, 14336)},
      {"70b/4", Layer(8192, 2560, 2048, 7168)},
      {"qwen3-30b-a3b", Attention(2048, 5120, 4096)},
  };
  const auto model = models.find(given["--shape"]);
  if (model == models.end()) {
    std::printf("error: no shape is called \"%s\"\n", given["--shape"].c_str());
    return 1;
  }
  const std::pair<const char*, WeightFormat> formats[] = {
      {"bf16", WeightFormat::kBf16}, {"fp8", WeightFormat::kFp8}, {"int4", WeightFormat::kInt4}};
  for (const auto& [name, format] : formats) {
    if (!given["--weights"].empty() && given["--weights"] != name) continue;
    for (const int num_rows : NumbersOf(given["--rows"])) {
      if (given["--kernel"] == "attention") {
        if (format != WeightFormat::kInt4)
          bench.RunAttention(num_rows, std::atoi(given["--cached"].c_str()),
                             format == WeightFormat::kFp8 ? CacheFormat::kFp8 : CacheFormat::kBf16);
        continue;
      }
      if (given["--kernel"] == "rope") {
        if (format != WeightFormat::kInt4)
          bench.RunRope(num_rows,
                        format == WeightFormat::kFp8 ? CacheFormat::kFp8 : CacheFormat::kBf16);
        continue;
      }
      for (const Shape& shape : model->second)
        bench.Run(shape, format, num_rows, given["--kernel"], std::atoi(given["--split"].c_str()));
    }
  }
  return 0;
}

}  // namespace
}  // namespace nereid::bench

int main(int argc, char** argv) {
  return nereid::bench::Main(argc, argv);
}
