// The ring of KV blocks of decode attention, in the form that is compiled.
#pragma once

#ifdef NEREID_PORTABLE_KERNELS
#include "backends/gpu_llm/kernels/attention/portable/kv_ring.cuh"
#else
#include "backends/gpu_llm/kernels/attention/native/kv_ring.cuh"
#endif
