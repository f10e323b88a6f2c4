// Measures the kernels around the matrix products: the share of the memory bandwidth that each
// reaches for so many rows of an 8B model (hidden 4096, inner 14336, vocabulary 128256), with
// consecutive launches in a CUDA graph over more memory than the cache has. Counts the bytes that a
// kernel must read and write.
//
//   gpu_row_bench [8192]
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "backends/gpu_llm/cuda/memory.h"
#include "backends/gpu_llm/kernels/gemm/gemm_input.h"
#include "backends/gpu_llm/kernels/gemm/weight_format.h"
#include "backends/gpu_llm/kernels/gemm/weight_kernels.h"
#include "backends/gpu_llm/kernels/rows/activation.h"
#include "backends/gpu_llm/kernels/rows/embedding.h"
#include "backends/gpu_llm/kernels/rows/norm.h"
#include "backends/gpu_llm/kernels/sampling/logits.h"
#include "backends/gpu_llm/kernels/sampling/sample.h"
#include "bench/gpu_llm/graph_timer.h"

namespace nereid::bench {
namespace {

using namespace gpu;

constexpr double kPeakBandwidth = 4.65e12;  // bytes a second, of an H200
constexpr int kHidden = 4096, kInner = 14336, kVocabulary = 128256, kMaxLogitRows = 512;
constexpr int kLaunches = 6;
constexpr float kEpsilon = 1e-5f;  // of the norms
constexpr int64_t kPoolBytes = int64_t{4} << 30;

DeviceMemory AllocateMemory(int64_t size_bytes) {
  return std::move(*DeviceMemory::Allocate(size_bytes, "a benchmark"));
}

class Bench {
 public:
  Bench()
      : from_(AllocateMemory(kPoolBytes)),
        to_(AllocateMemory(kPoolBytes)),
        weight_(AllocateMemory(1 << 20)),
        words_(AllocateMemory(1 << 20)) {
    RandomFill(from_.as<__nv_bfloat16>(), kPoolBytes / 2, 1.0f, 1, nullptr);
    Check(cudaMemset(to_.data(), 0, kPoolBytes));
    ConstantFill(weight_.as<__nv_bfloat16>(), 1 << 19, 1.0f, nullptr);
    std::vector<int32_t> ids(1 << 18);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * 7919 % kVocabulary);
    Check(cudaMemcpy(words_.data(), ids.data(), 4 * ids.size(), cudaMemcpyHostToDevice));
  }

  void Rows(int num_rows) {
    const double row = 2.0 * kHidden, inner = 2.0 * kInner;
    const auto* weight = weight_.as<__nv_bfloat16>();
    Run("RMS norm", num_rows, 2 * row, 2.0 * kHidden, [&](const char* in, char* out) {
      RmsNorm({.in = As(in),
               .weight = weight,
               .out = As(out),
               .num_rows = num_rows,
               .hidden_size = kHidden,
               .epsilon = kEpsilon},
              timer_.stream());
    });
    Run("LayerNorm", num_rows, 2 * row, 2.0 * kHidden, [&](const char* in, char* out) {
      LayerNorm({.in = As(in),
                 .weight = weight,
                 .bias = weight,
                 .out = As(out),
                 .num_rows = num_rows,
                 .hidden_size = kHidden,
                 .epsilon = kEpsilon},
                timer_.stream());
    });
    Run("residual add", num_rows, 3 * row, 2.0 * kHidden, [&](const char* in, char* out) {
      ResidualAdd({.in = As(in),
                   .norm_weight = weight,
                   .residual = As(out),
                   .num_rows = num_rows,
                   .hidden_size = kHidden,
                   .epsilon = kEpsilon},
                  timer_.stream());
    });
    Run("SiLU gate", num_rows, 3 * inner, 4.0 * kInner, [&](const char* in, char* out) {
      SiluGate(As(in), As(out), num_rows, kInner, timer_.stream());
    });
    Run("GELU", num_rows, 2 * inner, 2.0 * kInner, [&](const char* in, char* out) {
      Activate({.in = As(in),
                .out = As(out),
                .num_rows = num_rows,
                .inner_size = kInner,
                .kind = llm::Activation::kGelu,
                .is_gated = false},
               timer_.stream());
    });
    Run("quantize rows", num_rows, 1.5 * row, 2.0 * kHidden, [&](const char* in, char* out) {
      QuantizeRows({.in = As(in),
                    .out = reinterpret_cast<uint8_t*>(out),
                    .scales = reinterpret_cast<float*>(weight_.as<char>() + (1 << 19)),
                    .num_rows = num_rows,
                    .depth = kHidden},
                   timer_.stream());
    });
    Run("gather columns", num_rows, 2 * row, 2.0 * kHidden, [&](const char* in, char* out) {
      GatherColumns({.in = As(in), .out = As(out), .num_rows = num_rows, .depth = kHidden},
                    timer_.stream());
    });
    Run("embedding", num_rows, 2 * row, 0.0, [&](const char*, char* out) {
      EmbeddingParams params = {};
      params.ids = words_.as<int32_t>();
      params.table = from_.as<__nv_bfloat16>();
      params.out = As(out);
      params.num_rows = num_rows;
      params.hidden_size = kHidden;
      params.scale = 1.0f;
      Embed(params, timer_.stream());
    });
    Logits(std::min(num_rows, kMaxLogitRows));
    MeasureDequantize(WeightFormat::kInt4, "dequantize int4", 2.0 + 0.5 + 2.0 / 128);
    MeasureDequantize(WeightFormat::kFp8, "dequantize fp8", 2.0 + 1.0);
  }

 private:
  static const __nv_bfloat16* As(const char* bytes) {
    return reinterpret_cast<const __nv_bfloat16*>(bytes);
  }
  static __nv_bfloat16* As(char* bytes) { return reinterpret_cast<__nv_bfloat16*>(bytes); }

  void Logits(int num_rows) {
    const double row = 4.0 * kVocabulary;
    Run("logit bias and cap", num_rows, 2 * row, row, [&](const char*, char* out) {
      FinishLogits({.logits = reinterpret_cast<float*>(out),
                    .num_rows = num_rows,
                    .vocab_size = kVocabulary,
                    .stride = kVocabulary,
                    .soft_cap = 30.0f},
                   timer_.stream());
    });
    const DeviceMemory parts =
                           AllocateMemory(sizeof(PartialArgMax) * kArgMaxSplits * kMaxLogitRows),
                       tickets = AllocateMemory(4 * kMaxLogitRows),
                       sums = AllocateMemory(4 * kMaxLogitRows),
                       results = AllocateMemory(16 * kMaxLogitRows), half = AllocateMemory(4),
                       slots = AllocateMemory(4 * kMaxLogitRows);
    Check(cudaMemset(tickets.data(), 0, tickets.size_bytes()));
    Check(cudaMemset(half.data(), 0, half.size_bytes()));
    Check(cudaMemset(slots.data(), 0xff, slots.size_bytes()));
    ArgMaxParams params = {};
    params.partials = parts.as<PartialArgMax>();
    params.tickets = tickets.as<int32_t>();
    params.log_sums = sums.as<float>();
    params.target.buffer_index = half.as<int32_t>();
    params.target.ids = results.as<int32_t>();
    params.target.log_probs = results.as<float>() + 2 * kMaxLogitRows;
    params.target.slots = slots.as<int32_t>();
    params.target.max_num_rows = kMaxLogitRows;
    params.num_rows = num_rows;
    params.vocab_size = kVocabulary;
    Run("most likely token", num_rows, row, row, [&](const char*, char* out) {
      params.logits = reinterpret_cast<const float*>(out);
      ArgMax(params, timer_.stream());
    });
  }

  // Gate and up; `bytes`: read and written for each element.
  void MeasureDequantize(WeightFormat format, const char* name, double bytes) {
    WeightMatrix matrix;
    matrix.format = format;
    matrix.num_outputs = 2 * kInner;
    matrix.depth = kHidden;
    matrix.row_scales = weight_.as<float>();
    Run(name, matrix.num_outputs, bytes * kHidden, 2.0 * kHidden, [&](const char* in, char* out) {
      matrix.data = in;
      Dequantize(matrix, As(out), timer_.stream());
    });
  }

  // `row_bytes`: read and written; `stride`: bytes from one row to the next, the maximum of input
  // and output.
  void Run(const char* name, int num_rows, double row_bytes, double stride,
           const std::function<void(const char* in, char* out)>& launch) {
    const auto step = static_cast<int64_t>(stride * num_rows);
    const double us = timer_.Measure(kLaunches, [&](int i) {
      const int64_t at = (i + 1) * step <= kPoolBytes ? i * step : 0;
      launch(from_.as<char>() + at, to_.as<char>() + at);
    });
    std::printf("%-18s %6d rows: %7.1f us, %3.0f %% of the bandwidth\n", name, num_rows, us,
                100.0 * num_rows * row_bytes / (us * 1e-6) / kPeakBandwidth);
  }

  DeviceMemory from_, to_, weight_, words_;
  GraphTimer timer_;
};

int Main(int argc, char** argv) {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  const int num_rows = argc > 1 ? std::atoi(argv[1]) : 8192;
  if (num_rows < 1 || num_rows > 65536) {
    std::printf("rows: 1 to 65536\n");
    return 1;
  }
  Bench().Rows(num_rows);
  return 0;
}

}  // namespace
}  // namespace nereid::bench

int main(int argc, char** argv) {
  return nereid::bench::Main(argc, argv);
}
