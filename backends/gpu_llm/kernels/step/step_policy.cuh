// What differs between the forms of a fused decode step: how it fills its ring, and how it unpacks
// fp8 weights.
#pragma once

#ifdef NEREID_PORTABLE_KERNELS
#include "backends/gpu_llm/kernels/step/portable/step_policy.cuh"
#else
#include "backends/gpu_llm/kernels/step/native/step_policy.cuh"
#endif
