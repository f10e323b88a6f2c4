// Products alone: each matrix of a layer, by format and rows, one behind the other as in a recorded
// step, over more weights than the cache holds; with the norm and the gate that belong to them.
//
//   gpu_kernel_bench [--shape 8b|1b] [--rows 1,8,16] [--weights bf16|fp8|int4] [--kernel
//   auto|stream|int4_gemm]
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "gpu_llm/cuda/memory.h"
#include "gpu_llm/cuda/stream.h"
#include "gpu_llm/kernels/int4_gemm.h"
#include "gpu_llm/kernels/random_fill.h"
#include "gpu_llm/kernels/stream_gemm.h"
#include "gpu_llm/model/linear.h"

namespace nereid::bench {
namespace {

using namespace gpu;

constexpr double kRoof = 4.65e12;  // bytes a second, of an H200
constexpr int64_t kPoolBytes = int64_t{1} << 30;
constexpr int kMaxRows = 2048, kMaxDepth = 14336, kMaxOutputs = 28672;

struct Shape {
  const char* name;
  int num_outputs, depth;
  bool norms;
  StreamOutput output;
};

void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::printf("error: %s\n", cudaGetErrorString(error));
  std::exit(1);
}

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
        stream_(std::move(*MakeStream())),
        start_(std::move(*MakeEvent(cudaEventDefault))),
        end_(std::move(*MakeEvent(cudaEventDefault))) {
    RandomFill(in_.as<__nv_bfloat16>(), kMaxRows * kMaxDepth, 1.0f, 1, nullptr);
    ConstantFill(norm_.as<__nv_bfloat16>(), 1 << 15, 1.0f, nullptr);
    Check(cudaMemset(out_.data(), 0, out_.size_bytes()));
  }

  void Run(const Shape& shape, WeightFormat format, int num_rows, const std::string& kernel) {
    GpuMatrix matrix;
    matrix.format = format;
    matrix.num_outputs = shape.num_outputs;
    matrix.depth = shape.depth;
    matrix.row_scales = scales_.as<float>();
    matrix.quantizes_input = true;
    if (kernel == "stream" && !CanStream(matrix, num_rows, shape.norms)) return;
    if (kernel == "int4_gemm" && format != WeightFormat::kInt4) return;
    const int64_t bytes = SizeBytes(matrix), pitch = (bytes + 255) / 256 * 256;
    std::vector<GpuMatrix> matrices;
    for (int64_t at = 0; at + pitch <= kPoolBytes && matrices.size() < 64; at += pitch) {
      matrix.data = pool_.as<char>() + at;
      RandomFillMatrix(matrix, 1 + at, nullptr);
      matrices.push_back(matrix);
    }
    GpuWeights weights;
    weights.lm_head = matrices[0];
    auto runner = std::move(*LinearRunner::Create(weights, kMaxRows, 132));
    DeviceMemory partials = std::move(*DeviceMemory::Allocate(Int4GemmPartialBytes(132), "parts"));
    DeviceMemory tickets = std::move(*DeviceMemory::Allocate(1 << 20, "tickets"));
    Check(cudaMemset(tickets.data(), 0, tickets.size_bytes()));
    const auto multiply = [&](const GpuMatrix& one, bool may_time) {
      const __nv_bfloat16* norm = shape.norms ? norm_.as<__nv_bfloat16>() : nullptr;
      if (kernel == "stream") {
        StreamGemm({one, in_.as<__nv_bfloat16>(), nullptr, norm, out_.data(), num_rows, 1e-5f,
                    shape.output},
                   132, stream_.get());
        return;
      }
      if (kernel == "int4_gemm") {
        Int4Gemm({one, in_.as<__nv_bfloat16>(), out_.data(), num_rows, shape.output,
                  partials.as<float>(), tickets.as<int32_t>()},
                 132, stream_.get());
        return;
      }
      const LinearCall call = {
          &one,           in_.as<__nv_bfloat16>(),     nullptr,      norm,
          1e-5f,          normed_.as<__nv_bfloat16>(), shape.output, out_.data(),
          scratch_.data()};
      if (const Status status = runner.Run(call, num_rows, may_time, stream_.get()); !status.ok()) {
        std::printf("error: %s\n", status.message().c_str());
        std::exit(1);
      }
    };
    multiply(matrices[0], true);
    Check(cudaDeviceSynchronize());
    Check(cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeThreadLocal));
    for (const GpuMatrix& one : matrices) multiply(one, false);
    cudaGraph_t nodes = nullptr;
    Check(cudaStreamEndCapture(stream_.get(), &nodes));
    cudaGraphExec_t graph = nullptr;
    Check(cudaGraphInstantiate(&graph, nodes, 0));
    float best = 1e9f;
    for (int turn = 0; turn < 6; ++turn) {
      Check(cudaEventRecord(start_.get(), stream_.get()));
      Check(cudaGraphLaunch(graph, stream_.get()));
      Check(cudaEventRecord(end_.get(), stream_.get()));
      Check(cudaEventSynchronize(end_.get()));
      float ms = 0.0f;
      Check(cudaEventElapsedTime(&ms, start_.get(), end_.get()));
      best = ms < best ? ms : best;
    }
    Check(cudaGraphExecDestroy(graph));
    Check(cudaGraphDestroy(nodes));
    const double us = 1e3 * best / static_cast<double>(matrices.size());
    const char* name = format == WeightFormat::kBf16  ? "bf16"
                       : format == WeightFormat::kFp8 ? "fp8"
                                                      : "int4";
    const double operations = 2.0 * num_rows * shape.num_outputs * shape.depth;
    std::printf("%-5s %-8s %4d rows: %6.1f us, %5.0f GB/s, %3.0f %% of the roof, %3.0f TFLOP/s\n",
                name, shape.name, num_rows, us, static_cast<double>(bytes) / us / 1e3,
                100.0 * static_cast<double>(bytes) / (us * 1e-6) / kRoof, operations / us / 1e6);
  }

 private:
  DeviceMemory pool_, scales_, in_, normed_, norm_, out_, scratch_;
  Stream stream_;
  Event start_, end_;
};

std::vector<Shape> Layer(int hidden, int qkv, int inner) {
  return {{"qkv", qkv, hidden, true, StreamOutput::kBf16},
          {"out", hidden, hidden, false, StreamOutput::kAdd},
          {"gate_up", 2 * inner, hidden, true, StreamOutput::kSiluGate},
          {"down", hidden, inner, false, StreamOutput::kAdd}};
}

int Main(int argc, char** argv) {
  std::map<std::string, std::string> given = {
      {"--shape", "8b"}, {"--rows", "1,8,16"}, {"--weights", ""}, {"--kernel", "auto"}};
  for (int i = 1; i + 1 < argc; i += 2) given[argv[i]] = argv[i + 1];
  setvbuf(stdout, nullptr, _IOLBF, 0);
  Bench bench;
  const auto shapes = given["--shape"] == "1b" ? Layer(2048, 3072, 8192) : Layer(4096, 6144, 14336);
  const std::pair<const char*, WeightFormat> formats[] = {
      {"bf16", WeightFormat::kBf16}, {"fp8", WeightFormat::kFp8}, {"int4", WeightFormat::kInt4}};
  for (const auto& [name, format] : formats) {
    if (!given["--weights"].empty() && given["--weights"] != name) continue;
    const std::string rows = given["--rows"];
    for (size_t at = 0; at < rows.size(); at = std::min(rows.size(), rows.find(',', at)) + 1) {
      for (const Shape& shape : shapes)
        bench.Run(shape, format, std::atoi(rows.c_str() + at), given["--kernel"]);
    }
  }
  return 0;
}

}  // namespace
}  // namespace nereid::bench

int main(int argc, char** argv) {
  return nereid::bench::Main(argc, argv);
}
