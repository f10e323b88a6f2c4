// Prepares input rows for the matrix products of linear layers: columns in the order of the
// weights, scaled, and converted to fixed point for integer weights. [engine thread]
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "backends/cpu_reference/model/cpu_weights.h"
#include "backends/cpu_reference/ops/op_table.h"
#include "backends/cpu_reference/thread_pool.h"

namespace nereid::cpu {

struct MatmulInput {
  const float* floats = nullptr;         // [num_rows, columns]
  const uint8_t* fixed_point = nullptr;  // for integer weights: MatmulParams::fixed_point
};

// Makes room for `size` values. Buffers of a step only grow.
inline void EnsureSize(std::vector<float>& buffer, int64_t size) {
  if (static_cast<int64_t>(buffer.size()) < size) buffer.resize(size);
}

class MatmulInputs {
 public:
  MatmulInputs(const OpTable& ops, ThreadPool& pool) : ops_(ops), pool_(pool) {}

  // Prepares the same rows for each of `linears`, at most three; inputs[i] belongs to linears[i].
  // Valid until the next call.
  void Prepare(std::span<const Linear* const> linears, const float* in, int64_t num_rows,
               std::span<MatmulInput> inputs);

 private:
  const float* Arrange(const Linear& linear, const float* in, int64_t num_rows,
                       std::vector<float>& buffer);
  const uint8_t* ToFixedPoint(const float* in, int64_t num_rows, const FixedPointLayout& layout,
                              std::vector<uint8_t>& buffer);

  const OpTable& ops_;
  ThreadPool& pool_;
  std::array<std::vector<float>, 3> arranged_;
  std::array<std::vector<uint8_t>, 3> fixed_point_;
};

}  // namespace nereid::cpu
