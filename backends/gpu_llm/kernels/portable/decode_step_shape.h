// Shared memory and threads of the portable fused decode step. Free of CUDA, so that tests compare
// them with GPUs that the machine does not have.
#pragma once

namespace nereid::gpu::portable_shape {

inline constexpr int kCopyWarps = 4;
inline constexpr int kStepThreads = 32 * (8 + 4);
// All blocks run at the same time, one on each multiprocessor.
inline constexpr int kStepRegisters = 168;

// A slot holds 16 rows of 1,024 bytes, with a pitch that avoids bank conflicts, or 16 blocks of
// int4 weights, or half of a KV block.
inline constexpr int kStepSlotBytes = 16 * (1024 + 64);
inline constexpr int kMinStepSlots = 4, kMaxStepSlots = 8;
// What lies before the ring.
inline constexpr int kStepStateBytes = 23 * 1024 + 512;

constexpr int StepSharedBytes(int num_slots) {
  return kStepStateBytes + num_slots * kStepSlotBytes;
}
// Returns the number of slots of the ring on a GPU whose blocks of threads may have `shared_bytes`
// of shared memory. The 99 KB of GPUs of 8.6, 8.9 and 12.0 have room for kMinStepSlots.
constexpr int NumStepSlots(int shared_bytes) {
  return StepSharedBytes(kMaxStepSlots) <= shared_bytes ? kMaxStepSlots : kMinStepSlots;
}

}  // namespace nereid::gpu::portable_shape
