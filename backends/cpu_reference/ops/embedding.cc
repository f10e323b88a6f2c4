// Gathers rows of a table. Bandwidth-bound.
#include "backends/cpu_reference/ops/embedding.h"

#include "backends/cpu_reference/ops/simd.h"

namespace nereid::cpu::NEREID_ISA {
namespace {

// out = (add ? out : 0) + row * scale
template <typename W>
void AddRow(const W* row, int64_t size, float scale, bool add, float* out) {
  const int64_t whole = size - size % kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    const VecF value = LoadWeights(row + i) * scale;
    Store(out + i, add ? Load(out + i) + value : value);
  }
  if (whole != size) {
    const int rest = static_cast<int>(size - whole);
    const VecF value = LoadWeightsPart(row + whole, rest) * scale;
    StorePart(out + whole, add ? LoadPart(out + whole, rest) + value : value, rest);
  }
}

void AddRowOf(const WeightMatrix& table, int64_t row, float scale, bool add, float* out) {
  const int64_t offset = row * table.columns;
  switch (table.type) {
    case WeightFormat::kF32:
      return AddRow(static_cast<const float*>(table.data) + offset, table.columns, scale, add, out);
    case WeightFormat::kBf16:
      return AddRow(static_cast<const Bf16*>(table.data) + offset, table.columns, scale, add, out);
    case WeightFormat::kF16:
      return AddRow(static_cast<const Fp16*>(table.data) + offset, table.columns, scale, add, out);
    case WeightFormat::kF8E4M3:
    case WeightFormat::kInt4:
    case WeightFormat::kInt8:
      return;  // quantized embeddings are rejected at load
  }
}

}  // namespace

void Embedding(const EmbeddingParams& p) {
  for (int64_t i = 0; i < p.num_tokens; ++i) {
    float* out = p.out + i * p.table.columns;
    AddRowOf(p.table, p.ids[i], p.scale, false, out);
    if (p.positions_table.data != nullptr)
      AddRowOf(p.positions_table, p.positions[i], 1.0f, true, out);
  }
}

}  // namespace nereid::cpu::NEREID_ISA
