// What differs between the forms of a kernel file that is compiled in both. The only condition on
// the form in device code.
#pragma once

#ifdef NEREID_PORTABLE_KERNELS
#include "backends/gpu_llm/kernels/device/portable_policy.cuh"
#else
#include "backends/gpu_llm/kernels/device/native_policy.cuh"
#endif
