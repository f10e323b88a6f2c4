// The kernel launchers of one form (device/form.h), as a table. kernel_table.cu fills it in each
// form; forms.cc chooses the table of a device. kernel_registry.h says which launcher an operation
// uses.
#pragma once

#include "backends/gpu_llm/kernels/attention/attention.h"
#include "backends/gpu_llm/kernels/attention/rope.h"
#include "backends/gpu_llm/kernels/comm/all_reduce.h"
#include "backends/gpu_llm/kernels/device/delay.h"
#include "backends/gpu_llm/kernels/gemm/adapter_gemm.h"
#include "backends/gpu_llm/kernels/gemm/expert_gemm.h"
#include "backends/gpu_llm/kernels/gemm/gemm.h"
#include "backends/gpu_llm/kernels/gemm/gemm_input.h"
#include "backends/gpu_llm/kernels/gemm/stream_experts.h"
#include "backends/gpu_llm/kernels/gemm/weight_kernels.h"
#include "backends/gpu_llm/kernels/rows/activation.h"
#include "backends/gpu_llm/kernels/rows/embedding.h"
#include "backends/gpu_llm/kernels/rows/expert_rows.h"
#include "backends/gpu_llm/kernels/rows/head_input.h"
#include "backends/gpu_llm/kernels/rows/hidden_states.h"
#include "backends/gpu_llm/kernels/rows/moe.h"
#include "backends/gpu_llm/kernels/rows/norm.h"
#include "backends/gpu_llm/kernels/sampling/logits.h"
#include "backends/gpu_llm/kernels/sampling/rank_tokens.h"
#include "backends/gpu_llm/kernels/sampling/sample.h"
#include "backends/gpu_llm/kernels/sampling/top_tokens.h"
#include "backends/gpu_llm/kernels/step/decode_step.h"

// Every launcher, and what a form answers about the device, by folder.
// clang-format off
#define NEREID_FOR_EACH_KERNEL(Do) \
  /* attention */ Do(DecodeAttention) Do(DecodeAttentionQuantized) Do(PrefillAttention) \
      Do(UnpackCache) Do(MoveTokens) Do(RopeWrite) Do(FillRopeTable) \
  /* comm */ Do(MaxOneShotElements) Do(AllReduce) Do(AllReduceNorm) Do(GatherLogits) \
      Do(BroadcastTokens) \
  /* device */ Do(DelayStream) \
  /* gemm */ Do(StreamGemm) Do(SplitGemm) Do(GroupedGemm) Do(ExpertGemm) Do(StreamExperts) \
      Do(TileExperts) Do(GatherColumns) Do(QuantizeRows) Do(Dequantize) Do(AdapterShrink) Do(AdapterExpand) \
      Do(RandomFill) Do(RandomFillMatrix) Do(ConstantFill) \
  /* rows */ Do(Embed) Do(RmsNorm) Do(LayerNorm) Do(ResidualAdd) Do(HeadInput) Do(CopyRows) \
      Do(SiluGate) Do(SiluResidual) Do(Activate) Do(Route) Do(SelectExperts) Do(SortPairs) \
      Do(SortExpertRows) Do(Combine) \
  /* sampling */ Do(FinishLogits) Do(SpreadLogits) Do(PickLogProbs) Do(ArgMax) Do(DrawTokens) \
      Do(FindTopTokens) Do(RankTokens) \
  /* step */ Do(FitsDecodeStep) Do(RunDecodeStep) Do(TryDecodeStep) Do(CopyStepHiddenStates)
// clang-format on

namespace nereid::gpu {

// The code that the driver loaded for a form: compute capabilities times ten. If they differ, it
// compiled or runs code of an older GPU.
struct LoadedKernelCode {
  int ptx_version = 0, binary_version = 0;
};

struct KernelTable {
#define NEREID_KERNEL_FIELD(name) decltype(&::nereid::gpu::name) name;
  NEREID_FOR_EACH_KERNEL(NEREID_KERNEL_FIELD)
#undef NEREID_KERNEL_FIELD
  LoadedKernelCode (*LoadedCode)();
};

}  // namespace nereid::gpu
