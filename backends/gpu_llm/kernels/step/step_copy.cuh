// How a fused decode step fills its ring, in the form that is compiled.
#pragma once

#ifdef NEREID_PORTABLE_KERNELS
#include "backends/gpu_llm/kernels/step/portable/step_copy.cuh"
#else
#include "backends/gpu_llm/kernels/step/native/step_copy.cuh"
#endif
