// Matrix products of linear layers with the rows of a step, on the threads of a pool. Input rows
// are prepared first: columns in the order of the weights, scaled, and converted to fixed point for
// integer weights. [engine thread]
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "backends/cpu_reference/model/cpu_weights.h"
#include "backends/cpu_reference/ops/op_table.h"
#include "backends/cpu_reference/thread_pool.h"

namespace nereid::cpu {

// Each thread computes a range of outputs that begins at a multiple of this number.
inline constexpr int64_t kOutputGrain = kOutputsPerPanel;

struct MatmulInput {
  const float* floats = nullptr;         // [num_rows, columns]
  const uint8_t* fixed_point = nullptr;  // for integer weights: MatmulParams::fixed_point
};

// Makes room for `size` values. Buffers of a step only grow.
inline void EnsureSize(std::vector<float>& buffer, int64_t size) {
  if (static_cast<int64_t>(buffer.size()) < size) buffer.resize(size);
}

// The product of `linear` with prepared rows, of all outputs. `out` [num_rows, out_stride].
MatmulParams MatmulOf(const Linear& linear, const MatmulInput& in, int64_t num_rows, float* out,
                      int64_t out_stride);
// Into how many ranges for each thread the outputs of products with `num_weights` weights are
// divided.
int64_t RangesPerThread(int64_t num_weights, const ThreadPool& pool);

class LinearProducts {
 public:
  // Both must outlive the object.
  LinearProducts(const OpTable& ops, ThreadPool& pool)
      : ops_(ops), pool_(pool), scratch_(pool.num_threads()) {}

  // out (+)= linear(in).
  void Multiply(const Linear& linear, const float* in, int64_t num_rows, float* out,
                int64_t out_stride, bool accumulate = false);

  // --- for several products in one parallel loop ---
  // Prepares the same rows for each of `linears`, at most three; inputs[i] belongs to linears[i].
  // Valid until the next call, or the next one of Multiply.
  void Prepare(std::span<const Linear* const> linears, const float* in, int64_t num_rows,
               std::span<MatmulInput> inputs);
  // Computes outputs [first, last) of a product of prepared rows, on thread number `thread` of the
  // pool.
  void RunRange(MatmulParams product, int64_t first, int64_t last, int thread);

 private:
  const float* Arrange(const Linear& linear, const float* in, int64_t num_rows,
                       std::vector<float>& buffer);
  const uint8_t* ToFixedPoint(const float* in, int64_t num_rows, const FixedPointLayout& layout,
                              std::vector<uint8_t>& buffer);

  const OpTable& ops_;
  ThreadPool& pool_;
  std::array<std::vector<float>, 3> arranged_;
  std::array<std::vector<uint8_t>, 3> fixed_point_;
  std::vector<std::vector<float>> scratch_;  // per thread, for MatmulParams::scratch
};

}  // namespace nereid::cpu
