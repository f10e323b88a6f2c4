// Measures the experts of a layer alone, in consecutive launches as in a recorded step, over more
// weights than the cache has: routing, the two products by each form, combination, and all of them
// as the engine runs them.
//
//   gpu_expert_step_bench [--shape qwen3-30b-a3b|mixtral-8x7b] [--rows 1,8,64] [--forms 1]
// --forms 0: only what the engine runs.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "backends/gpu_llm/cuda/memory.h"
#include "backends/gpu_llm/kernels/gemm/gemm.h"
#include "backends/gpu_llm/kernels/gemm/stream_experts.h"
#include "backends/gpu_llm/kernels/gemm/weight_kernels.h"
#include "backends/gpu_llm/kernels/rows/moe.h"
#include "backends/gpu_llm/model/experts.h"
#include "bench/gpu_llm/graph_timer.h"
#include "bench/gpu_llm/number_list.h"

namespace nereid::bench {
namespace {

using namespace gpu;

constexpr double kPeakBandwidth = 4.65e12;  // bytes a second, of an H200
constexpr int kMaxRows = 2048, kNumLayers = 2, kProcessors = 132;

class Bench {
 public:
  explicit Bench(llm::DecoderSpec spec)
      : spec_(std::move(spec)),
        experts_(std::move(*Experts::Create(spec_, GpuWeights(), kMaxRows, kProcessors, false))),
        matrix_(int64_t{spec_.hidden_size} * spec_.moe.intermediate_size),
        max_pairs_(int64_t{kMaxRows} * spec_.moe.experts_per_token),
        pool_(Allocate(6 * matrix_ * spec_.moe.num_experts * kNumLayers)),
        router_(Allocate(2 * int64_t{spec_.moe.num_experts} * spec_.hidden_size)),
        norm_(Allocate(2 * spec_.hidden_size)),
        in_(Allocate(2 * int64_t{kMaxRows} * spec_.hidden_size)),
        normed_(Allocate(2 * int64_t{kMaxRows} * spec_.hidden_size)),
        gate_up_(Allocate(Experts::GateUpBytes(spec_, kMaxRows))),
        gated_(Allocate(2 * max_pairs_ * spec_.moe.intermediate_size)),
        out_(Allocate(2 * max_pairs_ * spec_.hidden_size)),
        ticket_(Allocate(4)),
        routes_(Allocate(64 * max_pairs_ + 12 * 4096)) {
    const auto fill = [](const DeviceMemory& memory, float bound, uint64_t seed) {
      RandomFill(memory.as<__nv_bfloat16>(), static_cast<int64_t>(memory.size_bytes() / 2), bound,
                 seed, nullptr);
    };
    fill(pool_, 0.03f, 1);
    fill(router_, 0.03f, 2);
    fill(in_, 1.0f, 3);
    fill(out_, 1.0f, 4);
    ConstantFill(norm_.as<__nv_bfloat16>(), spec_.hidden_size, 1.0f, nullptr);
    Check(cudaMemset(ticket_.data(), 0, 4));
    for (int i = 0; i < kNumLayers; ++i) {
      GpuLayer& layer = layers_.emplace_back();
      auto* at = pool_.as<__nv_bfloat16>() + i * 3 * matrix_ * spec_.moe.num_experts;
      layer.router = router_.as<__nv_bfloat16>();
      layer.expert_gate_up = Matrices(at, 2 * spec_.moe.intermediate_size, spec_.hidden_size);
      layer.expert_down = Matrices(at + 2 * matrix_ * spec_.moe.num_experts, spec_.hidden_size,
                                   spec_.moe.intermediate_size);
    }
  }

  void Run(int num_rows, bool measures_forms) {
    auto* words = routes_.as<int32_t>();
    const auto num_pairs = static_cast<int>(num_rows * int64_t{spec_.moe.experts_per_token});
    RouteParams route = {};
    route.in = in_.as<__nv_bfloat16>();
    route.norm_weight = norm_.as<__nv_bfloat16>();
    route.epsilon = 1e-5f;
    route.normed = normed_.as<__nv_bfloat16>();
    route.router = router_.as<__nv_bfloat16>();
    route.scores = gate_up_.as<float>();
    route.experts = words;
    route.router_weights = reinterpret_cast<float*>(words + max_pairs_);
    route.num_rows = num_rows;
    route.hidden_size = spec_.hidden_size;
    route.num_experts = spec_.moe.num_experts;
    route.experts_per_token = spec_.moe.experts_per_token;
    route.normalizes = true;
    SortPairsParams sort = {};
    sort.experts = words;
    sort.pairs = words + 2 * max_pairs_;
    sort.sorted_index = words + 3 * max_pairs_;
    sort.tiles = reinterpret_cast<ExpertTile*>(words + 4 * max_pairs_);
    sort.num_pairs = num_pairs;
    sort.num_experts = spec_.moe.num_experts;
    sort.tile_rows = 8;
    sort.num_tiles = static_cast<int>(MaxExpertTiles(num_pairs, sort.num_experts, sort.tile_rows));
    const double route_us = timer_.Measure(
        16, [&](int) { Check(Route(route, sort, ticket_.as<int32_t>(), timer_.stream())); });
    std::vector<int32_t> chosen(num_pairs);
    Check(cudaMemcpy(chosen.data(), words, 4 * chosen.size(), cudaMemcpyDeviceToHost));
    const double num_read =
        static_cast<double>(std::set<int32_t>(chosen.begin(), chosen.end()).size());
    const double bytes = 6.0 * num_read * static_cast<double>(matrix_);
    std::printf("%4d rows, %3.0f experts: routing %5.1f us\n", num_rows, num_read, route_us);
    if (measures_forms) {
      for (const int tile_rows : {8, 16, 32, 64, 128, -kSmallExpertTile, -kLargeExpertTile})
        RunForm(sort, tile_rows, bytes);
    }
    const double combine_us = timer_.Measure(16, [&](int) {
      Combine({.in = gate_up_.as<__nv_bfloat16>(),
               .sorted_index = sort.sorted_index,
               .router_weights = route.router_weights,
               .out = out_.as<__nv_bfloat16>(),
               .num_rows = num_rows,
               .hidden_size = spec_.hidden_size,
               .experts_per_token = spec_.moe.experts_per_token,
               .accumulates = true},
              timer_.stream());
    });
    ExpertsCall call;
    call.in = route.in;
    call.norm_weight = route.norm_weight;
    call.normed = route.normed;
    call.gate_up = &gate_up_;
    call.gated = &gated_;
    call.ticket = ticket_.as<int32_t>();
    call.out = out_.as<__nv_bfloat16>();
    call.accumulates = true;
    call.num_tokens = num_rows;
    const double us = timer_.Measure(16, [&](int i) {
      call.weights = &layers_[i % kNumLayers];
      if (const Status status = experts_.Run(call, timer_.stream()); !status.ok()) {
        std::printf("error: %s\n", status.message().c_str());
        std::exit(1);
      }
    });
    std::printf("  combination %5.1f us; a layer's experts %6.1f us, %5.0f GB/s, %3.0f %%\n",
                combine_us, us, bytes / us / 1e3, 100.0 * bytes / (us * 1e-6) / kPeakBandwidth);
  }

 private:
  static DeviceMemory Allocate(int64_t bytes) {
    return std::move(*DeviceMemory::Allocate(bytes, "a benchmark"));
  }

  static GpuExperts Matrices(__nv_bfloat16* data, int num_outputs, int depth) {
    GpuExperts experts;
    experts.first.data = data;
    experts.first.num_outputs = num_outputs;
    experts.first.depth = depth;
    experts.stride_elements = int64_t{num_outputs} * depth;
    experts.stride_bytes = 2 * experts.stride_elements;
    return experts;
  }

  // tile_rows < 0: the grouped GEMM, with as many.
  void RunForm(SortPairsParams sort, int tile_rows, double bytes) {
    sort.tile_rows = std::abs(tile_rows);
    sort.num_tiles =
        static_cast<int>(MaxExpertTiles(sort.num_pairs, sort.num_experts, sort.tile_rows));
    SortPairs(sort, timer_.stream());
    Check(cudaStreamSynchronize(timer_.stream()));
    double us[2];
    for (const bool is_down : {false, true}) {
      us[is_down] = timer_.Measure(8, [&](int i) {
        const GpuLayer& layer = layers_[i % kNumLayers];
        const GpuExperts& matrices = is_down ? layer.expert_down : layer.expert_gate_up;
        GroupedGemmParams gemm = {};
        gemm.in = (is_down ? gated_ : normed_).as<__nv_bfloat16>();
        gemm.pairs = is_down ? nullptr : sort.pairs;
        gemm.pairs_per_row = spec_.moe.experts_per_token;
        gemm.tiles = sort.tiles;
        gemm.num_tiles = sort.num_tiles;
        gemm.tile_rows = sort.tile_rows;
        gemm.weights = static_cast<const __nv_bfloat16*>(matrices.first.data);
        gemm.expert_stride = matrices.stride_elements;
        gemm.num_outputs = matrices.first.num_outputs;
        gemm.depth = matrices.first.depth;
        gemm.gates = !is_down;
        gemm.out = (is_down ? gate_up_ : gated_).data();
        if (tile_rows < 0) {
          GroupedGemm(gemm, timer_.stream());
        } else {
          Check(StreamExperts({.gemm = gemm,
                               .weights = matrices.first,
                               .stride_bytes = matrices.stride_bytes,
                               .num_experts = spec_.moe.num_experts,
                               .tiles_are_older = is_down},
                              kProcessors, timer_.stream()));
        }
      });
    }
    const double up_bytes = bytes * 2 / 3, down_bytes = bytes / 3;
    std::printf("  %s of %3d: gate and up %6.1f us, %5.0f GB/s, down %6.1f us, %5.0f GB/s\n",
                tile_rows < 0 ? "grouped tiles" : "streamed tiles", sort.tile_rows, us[0],
                up_bytes / us[0] / 1e3, us[1], down_bytes / us[1] / 1e3);
  }

  llm::DecoderSpec spec_;
  Experts experts_;
  int64_t matrix_, max_pairs_;
  DeviceMemory pool_, router_, norm_, in_, normed_, gate_up_, gated_, out_, ticket_, routes_;
  std::vector<GpuLayer> layers_;
  GraphTimer timer_;
};

llm::DecoderSpec Shape(const std::string& name) {
  const bool is_qwen = name == "qwen3-30b-a3b";
  llm::DecoderSpec spec;
  spec.hidden_size = is_qwen ? 2048 : 4096;
  spec.mlp = llm::MlpKind::kGated;
  spec.activation = llm::Activation::kSilu;
  spec.norm.epsilon = 1e-5f;
  spec.moe.num_experts = is_qwen ? 128 : 8;
  spec.moe.experts_per_token = is_qwen ? 8 : 2;
  spec.moe.intermediate_size = is_qwen ? 768 : 14336;
  spec.moe.normalize_top_k = true;
  return spec;
}

int Main(int argc, char** argv) {
  std::map<std::string, std::string> given = {
      {"--shape", "qwen3-30b-a3b"}, {"--rows", "1,8,64"}, {"--forms", "1"}};
  for (int i = 1; i + 1 < argc; i += 2) given[argv[i]] = argv[i + 1];
  setvbuf(stdout, nullptr, _IOLBF, 0);
  if (given["--shape"] != "qwen3-30b-a3b" && given["--shape"] != "mixtral-8x7b") {
    std::printf("error: no shape is called \"%s\"\n", given["--shape"].c_str());
    return 1;
  }
  Bench bench(Shape(given["--shape"]));
  for (const int num_rows : NumbersOf(given["--rows"]))
    bench.Run(num_rows, given["--forms"] == "1");
  return 0;
}

}  // namespace
}  // namespace nereid::bench

int main(int argc, char** argv) {
  return nereid::bench::Main(argc, argv);
}
