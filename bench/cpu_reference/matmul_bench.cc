// Our matrix product compared with OpenBLAS and oneDNN (if the build found them), on one thread, in
// processor time, so that other load on the machine does not count. Ours has bf16 weights. The
// libraries get float weights that were converted before or, "with conversion", are converted in
// each call.
//
//   matmul_bench [rows outputs columns]...
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <vector>

#include "backends/cpu_reference/ops/op_table.h"
#ifdef NEREID_BENCH_OPENBLAS
#include <cblas.h>
extern "C" void openblas_set_num_threads(int);
#endif
#ifdef NEREID_BENCH_ONEDNN
#include <oneapi/dnnl/dnnl.h>
extern "C" void omp_set_num_threads(int);
#endif

namespace nereid::bench {
namespace {

double ProcessorSeconds() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Median seconds of a call.
double Measure(const std::function<void()>& body) {
  body();
  std::vector<double> times;
  for (double sum = 0.0; sum < 0.2 || times.size() < 5; sum += times.back()) {
    const double start = ProcessorSeconds();
    body();
    times.push_back(ProcessorSeconds() - start);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

struct Shape {
  int64_t rows, outputs, columns;
};

void Print(const char* name, const Shape& shape, double seconds) {
  const double flops = 2.0 * static_cast<double>(shape.rows * shape.outputs * shape.columns);
  const double bytes = 2.0 * static_cast<double>(shape.outputs * shape.columns);
  std::printf("  %-32s %9.1f us  %7.1f GFLOP/s  %6.1f GB/s of bf16 weights\n", name, seconds * 1e6,
              flops / seconds / 1e9, bytes / seconds / 1e9);
}

void Run(const Shape& shape) {
  std::mt19937 random(1);
  std::vector<float> in(shape.rows * shape.columns), out(shape.rows * shape.outputs);
  std::vector<uint16_t> weights(shape.outputs * shape.columns);
  std::vector<float> wide(weights.size());
  std::vector<float> scratch(cpu::MatmulScratchFloats(shape.rows, shape.columns));
  for (float& value : in) value = static_cast<float>(random() % 1000) * 1e-3f;
  for (uint16_t& bits : weights) bits = static_cast<uint16_t>(0x3d00u | (random() & 0x80ffu));
  const auto widen = [&] {
    for (size_t i = 0; i < weights.size(); ++i) {
      const uint32_t bits = uint32_t{weights[i]} << 16;
      __builtin_memcpy(&wide[i], &bits, 4);
    }
  };
  widen();
  std::printf("%ld rows, %ld outputs, %ld columns\n", shape.rows, shape.outputs, shape.columns);
  for (const cpu::OpTable* ops : cpu::AvailableOps()) {
    cpu::MatmulParams params;
    params.in = in.data();
    params.num_rows = shape.rows;
    params.weights = {weights.data(), cpu::WeightFormat::kBf16, shape.outputs, shape.columns};
    params.out = out.data();
    params.out_stride = params.last_output = shape.outputs;
    params.scratch = scratch.data();
    Print(ops->isa.data(), shape, Measure([&] { ops->matmul(params); }));
  }
  [[maybe_unused]] const auto m = static_cast<int>(shape.rows), n = static_cast<int>(shape.outputs),
                              k = static_cast<int>(shape.columns);
#ifdef NEREID_BENCH_OPENBLAS
  const auto openblas = [&] {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, 1.0f, in.data(), k, wide.data(),
                k, 0.0f, out.data(), n);
  };
  Print("OpenBLAS sgemm", shape, Measure(openblas));
  Print("OpenBLAS sgemm with conversion", shape, Measure([&] {
          widen();
          openblas();
        }));
#endif
#ifdef NEREID_BENCH_ONEDNN
  const auto onednn = [&] {
    dnnl_sgemm('N', 'T', m, n, k, 1.0f, in.data(), k, wide.data(), k, 0.0f, out.data(), n);
  };
  Print("oneDNN sgemm", shape, Measure(onednn));
  Print("oneDNN sgemm with conversion", shape, Measure([&] {
          widen();
          onednn();
        }));
#endif
}

}  // namespace
}  // namespace nereid::bench

int main(int argc, char** argv) {
#ifdef NEREID_BENCH_OPENBLAS
  openblas_set_num_threads(1);
#endif
#ifdef NEREID_BENCH_ONEDNN
  omp_set_num_threads(1);
#endif
  std::vector<nereid::bench::Shape> shapes;
  for (int i = 1; i + 2 < argc; i += 3) {
    shapes.push_back({std::atoll(argv[i]), std::atoll(argv[i + 1]), std::atoll(argv[i + 2])});
  }
  if (shapes.empty()) {
    shapes = {{1, 1024, 384},   {4, 1024, 384},   {16, 1024, 384},  {64, 1024, 384},
              {256, 1024, 384}, {256, 384, 1024}, {256, 4096, 384}, {512, 8192, 2048}};
  }
  for (const auto& shape : shapes) nereid::bench::Run(shape);
}
