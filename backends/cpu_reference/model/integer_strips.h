// Converts stored integer weights to the strips of WeightFormat, a vector of words at a time, so
// that loading is limited by memory bandwidth. [load thread]
#pragma once

#include <cstdint>
#include <span>

#include "backends/cpu_reference/ops/weight_format.h"
#include "backends/llm_core/model/weight_map.h"

namespace nereid::cpu {

// Writes the strips of `matrix` to `to`; padding outputs of the last strip are zero. `column_order`
// as in IntegerWeightRows. Returns false and writes nothing if the rows must be packed one by one:
// for other layouts, and for rows that are not contiguous or not aligned to words.
bool PackStrips(const llm::ResolvedWeight& weight, std::span<const int32_t> column_order,
                const WeightMatrix& matrix, uint8_t* to);

}  // namespace nereid::cpu
