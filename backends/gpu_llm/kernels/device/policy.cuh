// Includes the policy of the form that is being compiled: what differs between native and portable
// kernels in files that are compiled in both forms.
#pragma once

#ifdef NEREID_PORTABLE_KERNELS
#include "backends/gpu_llm/kernels/device/portable_policy.cuh"
#else
#include "backends/gpu_llm/kernels/device/native_policy.cuh"
#endif
