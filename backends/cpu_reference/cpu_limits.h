// What the executor on the CPU can hold: sequences, tokens and KV blocks. [load thread]
#pragma once

#include <cstdint>

#include "backends/llm_core/engine/executor.h"
#include "backends/llm_core/model/decoder_spec.h"
#include "nereid/status.h"

namespace nereid::cpu {

struct CpuExecutorOptions;

// INVALID_ARG if the KV cache that is asked for exceeds the machine's memory.
Result<llm::ExecutorLimits> CpuLimits(const llm::DecoderSpec& spec,
                                      const CpuExecutorOptions& options);

}  // namespace nereid::cpu
