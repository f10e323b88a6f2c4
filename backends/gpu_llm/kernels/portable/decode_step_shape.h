// Shared memory and threads of the portable fused decode step. Free of CUDA, so that tests compare
// them with GPUs that the machine does not have.
#pragma once

namespace nereid::gpu::portable_shape {

inline constexpr int kCopyWarps = 2;
inline constexpr int kStepThreads = 32 * (8 + 4);
// All blocks run at the same time, one on each multiprocessor.
inline constexpr int kStepRegisters = 168;

// A slot holds 16 rows of 1,024 bytes, with a pitch that avoids bank conflicts, or 16 blocks of
// int4 weights, or half of a KV block. More slots would fit on some GPUs. With twelve, an H200
// decoded 1 % faster at batch 1 in bf16 and 4 % slower in int4; the cause was not found.
inline constexpr int kStepSlotBytes = 16 * (1024 + 64);
inline constexpr int kStepSlots = 4;
// What lies before the ring.
inline constexpr int kStepStateBytes = 22 * 1024 + 512;

}  // namespace nereid::gpu::portable_shape
