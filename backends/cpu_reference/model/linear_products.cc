// Column reordering, scaling and fixed-point conversion of input rows, and parallel products.
#include "backends/cpu_reference/model/linear_products.h"

namespace nereid::cpu {
namespace {

// Loops over fewer numbers than this are not parallelized.
constexpr int64_t kMinShared = 1 << 14;
// Each range of a product packs the input again and starts with a cache miss on its weights. A
// thread gets four ranges if each then has at least this many weights, otherwise two.
constexpr int64_t kWeightsWorthARange = 1 << 17;

bool TakeTheSame(const Linear& a, const Linear& b) {
  return !a.transforms_input() && !b.transforms_input() && a.weights.is_integer() &&
         b.weights.is_integer() &&
         FixedPointLayout::For(a.weights) == FixedPointLayout::For(b.weights);
}

}  // namespace

MatmulParams MatmulOf(const Linear& linear, const MatmulInput& in, int64_t num_rows, float* out,
                      int64_t out_stride) {
  MatmulParams params;
  params.in = in.floats;
  params.fixed_point = in.fixed_point;
  params.num_rows = num_rows;
  params.weights = linear.weights;
  params.bias = linear.bias_or_null();
  params.out = out;
  params.out_stride = out_stride;
  params.last_output = linear.weights.rows;
  return params;
}

int64_t RangesPerThread(int64_t num_weights, const ThreadPool& pool) {
  return num_weights >= 4 * pool.num_threads() * kWeightsWorthARange ? 4 : 2;
}

void LinearProducts::Multiply(const Linear& linear, const float* in, int64_t num_rows, float* out,
                              int64_t out_stride, bool accumulate) {
  const Linear* linears[] = {&linear};
  MatmulInput input;
  Prepare(linears, in, num_rows, std::span(&input, 1));
  MatmulParams product = MatmulOf(linear, input, num_rows, out, out_stride);
  product.accumulate = accumulate;
  const auto run = [&](int64_t first, int64_t last, int thread) {
    RunRange(product, first, last, thread);
  };
  const int64_t outputs = linear.weights.rows, weights = outputs * linear.weights.columns;
  if (num_rows * weights < kMinSharedWork) {
    run(0, outputs, 0);
  } else {
    pool_.ParallelRanges(outputs, kOutputGrain, run, RangesPerThread(weights, pool_));
  }
}

void LinearProducts::RunRange(MatmulParams product, int64_t first, int64_t last, int thread) {
  product.first_output = first;
  product.last_output = last;
  product.scratch = scratch_[thread].data();
  ops_.matmul(product);
}

void LinearProducts::Prepare(std::span<const Linear* const> linears, const float* in,
                             int64_t num_rows, std::span<MatmulInput> inputs) {
  for (size_t i = 0; i < linears.size(); ++i) {
    const Linear& linear = *linears[i];
    const int64_t scratch_size = MatmulScratchFloats(num_rows, linear.weights.columns);
    for (std::vector<float>& scratch : scratch_) EnsureSize(scratch, scratch_size);
    inputs[i] = {Arrange(linear, in, num_rows, arranged_[i]), nullptr};
    if (!linear.weights.is_integer()) continue;
    for (size_t before = 0; before < i; ++before) {
      if (TakeTheSame(*linears[before], linear)) inputs[i] = inputs[before];
    }
    if (inputs[i].fixed_point != nullptr) continue;
    inputs[i].fixed_point = ToFixedPoint(inputs[i].floats, num_rows,
                                         FixedPointLayout::For(linear.weights), fixed_point_[i]);
  }
}

const uint8_t* LinearProducts::ToFixedPoint(const float* in, int64_t num_rows,
                                            const FixedPointLayout& layout,
                                            std::vector<uint8_t>& buffer) {
  const auto size = static_cast<size_t>(num_rows * layout.row_bytes()) + 64;
  if (buffer.size() < size) buffer.resize(size);
  const auto address = reinterpret_cast<uintptr_t>(buffer.data());
  uint8_t* const out = buffer.data() + ((address + 63) / 64 * 64 - address);
  const auto run = [&](int64_t first, int64_t last, int) {
    ops_.fixed_point(
        {in + first * layout.columns, last - first, layout, out + first * layout.row_bytes()});
  };
  num_rows* layout.columns < kMinShared ? run(0, num_rows, 0)
                                        : pool_.ParallelRanges(num_rows, 1, run);
  return out;
}

const float* LinearProducts::Arrange(const Linear& linear, const float* in, int64_t num_rows,
                                     std::vector<float>& buffer) {
  if (!linear.transforms_input()) return in;
  const int64_t columns = linear.weights.columns;
  EnsureSize(buffer, num_rows * columns);
  for (int64_t row = 0; row < num_rows; ++row) {
    const float* from = in + row * columns;
    float* to = buffer.data() + row * columns;
    for (int64_t c = 0; c < columns; ++c) {
      const int64_t source = linear.column_order.empty() ? c : linear.column_order[c];
      to[c] = linear.input_scale.empty() ? from[source] : from[source] * linear.input_scale[source];
    }
  }
  return buffer.data();
}

}  // namespace nereid::cpu
