// Column reordering, scaling and fixed-point conversion of input rows.
#include "backends/cpu_reference/model/matmul_inputs.h"

namespace nereid::cpu {
namespace {

// Loops over fewer numbers than this are not parallelized.
constexpr int64_t kMinShared = 1 << 14;

bool TakeTheSame(const Linear& a, const Linear& b) {
  return !a.transforms_input() && !b.transforms_input() && a.weights.is_integer() &&
         b.weights.is_integer() &&
         FixedPointLayout::For(a.weights) == FixedPointLayout::For(b.weights);
}

}  // namespace

void MatmulInputs::Prepare(std::span<const Linear* const> linears, const float* in,
                           int64_t num_rows, std::span<MatmulInput> inputs) {
  for (size_t i = 0; i < linears.size(); ++i) {
    const Linear& linear = *linears[i];
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

const uint8_t* MatmulInputs::ToFixedPoint(const float* in, int64_t num_rows,
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

const float* MatmulInputs::Arrange(const Linear& linear, const float* in, int64_t num_rows,
                                   std::vector<float>& buffer) {
  if (!linear.transforms_input()) return in;
  const int64_t columns = linear.weights.columns;
  if (buffer.size() < static_cast<size_t>(num_rows * columns)) buffer.resize(num_rows * columns);
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
