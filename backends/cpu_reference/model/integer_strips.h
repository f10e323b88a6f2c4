// Integers as the checkpoints store them, straight into the strips of WeightType:
// a vector of words at a time, so that a load is bound by memory. [load thread]
#pragma once

#include <cstdint>
#include <span>

#include "backends/cpu_reference/ops/weight_type.h"
#include "backends/llm_core/model/weight_map.h"

namespace nereid::cpu {

// Fills the strips of `matrix` at `to`, whose last outputs may be none. `column_order`: as of
// Int4Rows. False, and nothing is written, for what has to go row by row: other layouts, and rows
// that do not begin and end with a word or do not lie together.
bool PackStrips(const llm::ResolvedWeight& weight, std::span<const int32_t> column_order,
                const WeightMatrix& matrix, uint8_t* to);

}  // namespace nereid::cpu
