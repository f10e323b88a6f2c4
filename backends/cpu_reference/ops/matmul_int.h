// The product with integer weights, on fixed-point input. For ops alone.
#pragma once

#include "backends/cpu_reference/ops/matmul.h"

namespace nereid::cpu {

// What every implementation does with a segment's sums of one output, in this order:
//   all = 65536 * sum(v d0) + (256 * sum(v d1) + sum(v d2))     each sum exact, in int32
//   total += (all - zero * sum of the input) * (scale of the weights * scale of the input)
// so that all of them, of one instruction set, give the same bits.

namespace amx {
// For more rows than a few, where IntegersSuitAmx. [any thread, once AmxIsUsable() was true]
bool IntegersSuitAmx(const MatmulParams& params);
void MatmulIntegers(const MatmulParams& params);
}  // namespace amx

}  // namespace nereid::cpu
