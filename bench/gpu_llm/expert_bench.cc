// Measures a layer's experts by operator, in consecutive launches as in a step: the sort of the
// rows, the two matrix products with each kernel, and the combination. Experts of the rows are
// random and uniform.
//
//   gpu_expert_bench [--shape qwen3-30b-a3b|mixtral-8x7b] [--tokens 2048,8192]
//                    [--kernel all|tiles|sorted] [--weights bf16|fp8|int4] [--skewed 0]
// --skewed 1: expert e is chosen in proportion to 1 / (e + 4).
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "backends/gpu_llm/cuda/memory.h"
#include "backends/gpu_llm/kernels/gemm/expert_gemm.h"
#include "backends/gpu_llm/kernels/gemm/gemm.h"
#include "backends/gpu_llm/kernels/gemm/weight_kernels.h"
#include "backends/gpu_llm/kernels/rows/expert_rows.h"
#include "backends/gpu_llm/kernels/rows/moe.h"
#include "bench/gpu_llm/graph_timer.h"
#include "bench/gpu_llm/number_list.h"

namespace nereid::bench {
namespace {

using namespace gpu;

struct Shape {
  int hidden, inner, num_experts, per_token;
};

DeviceMemory Allocate(int64_t bytes) {
  return std::move(*DeviceMemory::Allocate(bytes, "a benchmark"));
}
DeviceMemory RandomBf16(int64_t count, float bound, uint64_t seed) {
  DeviceMemory memory = Allocate(2 * count);
  RandomFill(memory.as<__nv_bfloat16>(), count, bound, seed, nullptr);
  return memory;
}

// The same matrix of all experts, one after the other.
struct Experts {
  WeightMatrix all;
  DeviceMemory memory, scales;
  int64_t stride_bytes = 0;
};
Experts RandomExpertWeights(WeightFormat format, int num_experts, int num_outputs, int depth,
                            uint64_t seed) {
  Experts result;
  const int64_t elements = int64_t{num_outputs} * depth;
  result.stride_bytes = format == WeightFormat::kBf16 ? 2 * elements
                        : format == WeightFormat::kFp8
                            ? elements
                            : num_outputs / kInt4TileRows * Int4TileBytes(depth, 1);
  result.memory = Allocate(result.stride_bytes * num_experts);
  result.scales = Allocate(int64_t{4} * num_outputs * num_experts);
  result.all.format = format;
  result.all.data = result.memory.data();
  result.all.row_scales = result.scales.as<float>();
  result.all.num_outputs = num_outputs * num_experts;
  result.all.depth = depth;
  RandomFillMatrix(result.all, seed, nullptr);
  return result;
}

std::vector<int32_t> RandomExperts(const Shape& shape, int num_tokens, bool is_skewed) {
  std::mt19937 random(1);
  std::vector<int32_t> experts;
  for (int row = 0; row < num_tokens; ++row) {
    std::vector<std::pair<double, int32_t>> keys;  // exponential races: sampling without repetition
    for (int32_t e = 0; e < shape.num_experts; ++e) {
      const double weight = is_skewed ? 1.0 / (e + 4) : 1.0;
      keys.emplace_back(std::exponential_distribution<double>(weight)(random), e);
    }
    std::partial_sort(keys.begin(), keys.begin() + shape.per_token, keys.end());
    for (int i = 0; i < shape.per_token; ++i) experts.push_back(keys[i].second);
  }
  return experts;
}

class Bench {
 public:
  Bench(const Shape& shape, WeightFormat format, int max_tokens)
      : shape_(shape),
        format_(format),
        gate_up_(RandomExpertWeights(format, shape.num_experts, 2 * shape.inner, shape.hidden, 1)),
        down_(RandomExpertWeights(format, shape.num_experts, shape.hidden, shape.inner, 2)),
        in_(RandomBf16(int64_t{max_tokens} * shape.hidden, 1.0f, 3)),
        gated_(RandomBf16(int64_t{max_tokens} * shape.per_token * shape.inner, 1.0f, 4)),
        outputs_(RandomBf16(int64_t{max_tokens} * shape.per_token * shape.hidden, 1.0f, 5)),
        in_scales_(Allocate(int64_t{4} * max_tokens * shape.per_token)),
        sum_(Allocate(int64_t{2} * max_tokens * shape.hidden)) {
    Check(cudaDeviceGetAttribute(&num_processors_, cudaDevAttrMultiProcessorCount, 0));
  }

  void Run(int num_tokens, const std::string& kernel, bool is_skewed) {
    const int num_pairs = num_tokens * shape_.per_token;
    const std::vector<int32_t> experts = RandomExperts(shape_, num_tokens, is_skewed);
    const DeviceMemory d_experts = Allocate(4 * num_pairs), pairs = Allocate(4 * num_pairs),
                       places = Allocate(4 * num_pairs), weights = Allocate(4 * num_pairs),
                       first_rows = Allocate(4 * (shape_.num_experts + 1)),
                       counts = Allocate(4 * (shape_.num_experts + 1));
    Check(cudaMemcpy(d_experts.data(), experts.data(), 4 * num_pairs, cudaMemcpyHostToDevice));
    Check(cudaMemset(counts.data(), 0, counts.size_bytes()));
    Check(cudaMemset(weights.data(), 0, weights.size_bytes()));
    const double row_bytes = 2.0 * shape_.hidden;
    const double pair_operations = 2.0 * num_pairs * shape_.hidden * shape_.inner;
    const double matrix_bytes = static_cast<double>(down_.stride_bytes) * shape_.num_experts;
    const bool is_fp8 = format_ == WeightFormat::kFp8;
    const double inner_bytes = 2.0 * num_pairs * shape_.inner;
    const int tile_rows = num_pairs <= 4 * shape_.num_experts ? kSmallExpertTile : kLargeExpertTile;
    const auto num_tiles =
        static_cast<int>(MaxExpertTiles(num_pairs, shape_.num_experts, tile_rows));
    const DeviceMemory tiles = Allocate(num_tiles * static_cast<int64_t>(sizeof(ExpertTile)));

    if (kernel != "sorted" && format_ == WeightFormat::kBf16) {
      Measure(num_tokens, "sort, one block", {4.0 * num_pairs * 4, 0.0}, [&] {
        SortPairs({.experts = d_experts.as<int32_t>(),
                   .pairs = pairs.as<int32_t>(),
                   .sorted_index = places.as<int32_t>(),
                   .tiles = tiles.as<ExpertTile>(),
                   .num_pairs = num_pairs,
                   .num_experts = shape_.num_experts,
                   .tile_rows = tile_rows,
                   .num_tiles = num_tiles},
                  timer_.stream());
      });
      GroupedGemmParams gemm = {};
      gemm.in = in_.as<__nv_bfloat16>();
      gemm.pairs = pairs.as<int32_t>();
      gemm.pairs_per_row = shape_.per_token;
      gemm.weights = gate_up_.memory.as<__nv_bfloat16>();
      gemm.expert_stride = int64_t{2} * shape_.inner * shape_.hidden;
      gemm.tiles = tiles.as<ExpertTile>();
      gemm.out = gated_.data();
      gemm.num_tiles = num_tiles;
      gemm.num_outputs = 2 * shape_.inner;
      gemm.depth = shape_.hidden;
      gemm.tile_rows = tile_rows;
      gemm.gates = true;
      Measure(num_tokens, "gate and up, tiles",
              {2 * matrix_bytes + num_tokens * row_bytes + inner_bytes, 2 * pair_operations},
              [&] { GroupedGemm(gemm, timer_.stream()); });
      gemm.in = gated_.as<__nv_bfloat16>();
      gemm.pairs = nullptr;
      gemm.weights = down_.memory.as<__nv_bfloat16>();
      gemm.expert_stride = int64_t{shape_.inner} * shape_.hidden;
      gemm.out = outputs_.data();
      gemm.num_outputs = shape_.hidden;
      gemm.depth = shape_.inner;
      gemm.gates = false;
      Measure(num_tokens, "down, tiles",
              {matrix_bytes + num_pairs * row_bytes + inner_bytes, pair_operations},
              [&] { GroupedGemm(gemm, timer_.stream()); });
    }
    Measure(num_tokens, "sort and copy rows", {(num_pairs + num_tokens) * row_bytes, 0.0}, [&] {
      SortExpertRows({.experts = d_experts.as<int32_t>(),
                      .sorted_index = places.as<int32_t>(),
                      .first_rows = first_rows.as<int32_t>(),
                      .counts = counts.as<int32_t>(),
                      .in = in_.data(),
                      .out = outputs_.data(),
                      .num_rows = num_tokens,
                      .num_experts = shape_.num_experts,
                      .experts_per_token = shape_.per_token,
                      .row_bytes = 2 * shape_.hidden},
                     timer_.stream());
    });
    if (kernel != "tiles") {
      for (const DeviceMemory* rows : {&outputs_, &gated_}) {
        WeightMatrix values = {};  // finite in fp8
        values.format = WeightFormat::kFp8;
        values.row_scales = in_scales_.as<float>();
        values.data = rows->data();
        values.depth = rows == &outputs_ ? shape_.hidden : shape_.inner;
        values.num_outputs = num_pairs;
        if (is_fp8) RandomFillMatrix(values, 9, nullptr);
      }
      const auto multiply = [&](const char* name, const Experts& experts, const DeviceMemory& in,
                                const DeviceMemory& out, GemmEpilogue output, double bytes) {
        ExpertGemmParams gemm = {};
        gemm.weights = experts.all;
        gemm.weights.num_outputs /= shape_.num_experts;
        gemm.stride_bytes = experts.stride_bytes;
        gemm.scale_stride = gemm.weights.num_outputs;
        gemm.first_rows = first_rows.as<int32_t>();
        gemm.in = in.data();
        gemm.in_scales = in_scales_.as<float>();
        gemm.out = out.data();
        gemm.num_rows = num_pairs;
        gemm.num_experts = shape_.num_experts;
        gemm.output = output;
        Measure(num_tokens, name,
                {bytes, 2.0 * num_pairs * gemm.weights.num_outputs * gemm.weights.depth},
                [&] { Check(ExpertGemm(gemm, num_processors_, timer_.stream())); });
      };
      const double element = is_fp8 ? 0.5 : 1.0;
      multiply("gate and up, sorted rows", gate_up_, outputs_, gated_, GemmEpilogue::kSiluGate,
               2 * matrix_bytes + element * num_pairs * row_bytes + inner_bytes);
      multiply("down, sorted rows", down_, gated_, outputs_, GemmEpilogue::kBf16,
               matrix_bytes + num_pairs * row_bytes + element * inner_bytes);
    }
    Measure(num_tokens, "combine", {(num_pairs + num_tokens) * row_bytes, 0.0}, [&] {
      Combine({.in = outputs_.as<__nv_bfloat16>(),
               .sorted_index = places.as<int32_t>(),
               .router_weights = weights.as<float>(),
               .out = sum_.as<__nv_bfloat16>(),
               .num_rows = num_tokens,
               .hidden_size = shape_.hidden,
               .experts_per_token = shape_.per_token,
               .accumulates = false},
              timer_.stream());
    });
  }

 private:
  struct Work {
    double bytes, operations;
  };
  void Measure(int num_tokens, const char* name, const Work& work,
               const std::function<void()>& launch) {
    const double us = timer_.Measure(work.operations > 1e12 ? 2 : 8, [&](int) { launch(); });
    std::printf("%5d tokens, %-26s %8.1f us, %5.0f GB/s, %4.0f TFLOP/s\n", num_tokens, name, us,
                work.bytes / us / 1e3, work.operations / us / 1e6);
  }

  Shape shape_;
  WeightFormat format_;
  int num_processors_ = 0;
  Experts gate_up_, down_;
  DeviceMemory in_, gated_, outputs_, in_scales_, sum_;
  GraphTimer timer_;
};

int Main(int argc, char** argv) {
  std::map<std::string, std::string> given = {{"--shape", "qwen3-30b-a3b"},
                                              {"--tokens", "2048,8192"},
                                              {"--kernel", "all"},
                                              {"--weights", "bf16"},
                                              {"--skewed", "0"}};
  for (int i = 1; i + 1 < argc; i += 2) given[argv[i]] = argv[i + 1];
  setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::vector<int> tokens = NumbersOf(given["--tokens"]);
  const Shape shape = given["--shape"] == "mixtral-8x7b"
                          ? Shape{.hidden = 4096, .inner = 14336, .num_experts = 8, .per_token = 2}
                          : Shape{.hidden = 2048, .inner = 768, .num_experts = 128, .per_token = 8};
  const std::string weights = given["--weights"];
  std::printf("%s, %s\n", given["--shape"].c_str(), weights.c_str());
  const WeightFormat format = weights == "int4"  ? WeightFormat::kInt4
                              : weights == "fp8" ? WeightFormat::kFp8
                                                 : WeightFormat::kBf16;
  Bench bench(shape, format, *std::max_element(tokens.begin(), tokens.end()));
  for (const int count : tokens) bench.Run(count, given["--kernel"], given["--skewed"] != "0");
  return 0;
}

}  // namespace
}  // namespace nereid::bench

int main(int argc, char** argv) {
  return nereid::bench::Main(argc, argv);
}
