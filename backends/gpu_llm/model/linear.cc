// Chooses between the two; around cuBLASLt, norm and gate are kernels of their own.
#include "gpu_llm/model/linear.h"

#include "gpu_llm/kernels/rms_norm.h"
#include "gpu_llm/kernels/silu_gate.h"

namespace nereid::gpu {

Result<LinearRunner> LinearRunner::Create(int num_processors) {
  NEREID_ASSIGN_OR_RETURN(Gemm gemm, Gemm::Create());
  return LinearRunner(std::move(gemm), num_processors);
}

Status LinearRunner::Run(const LinearCall& call, int num_rows, bool may_time, cudaStream_t stream) {
  if (num_rows == 0) return {};
  const auto num_outputs = static_cast<int>(call.num_outputs);
  const auto depth = static_cast<int>(call.depth);
  if (CanStream(num_rows, num_outputs, depth, call.norm_weight != nullptr)) {
    StreamGemm({call.weights, call.in, call.rows, call.norm_weight, call.out, num_rows, num_outputs,
                depth, call.epsilon, call.output},
               num_processors_, stream);
    return CudaStatus(cudaGetLastError(), "a streamed product");
  }
  const bool gates = call.output == StreamOutput::kSiluGate;
  if (call.norm_weight != nullptr) {
    RmsNorm({call.in, call.rows, call.norm_weight, call.normed, num_rows, depth, call.epsilon},
            stream);
  }
  GemmCall gemm;
  gemm.weights = call.weights;
  gemm.in = call.norm_weight != nullptr ? call.normed : call.in;
  gemm.out = gates ? call.scratch : call.out;
  gemm.scratch = call.scratch;
  gemm.num_rows = num_rows;
  gemm.num_outputs = num_outputs;
  gemm.depth = depth;
  gemm.out_is_float = call.output == StreamOutput::kFloat;
  gemm.accumulates = call.output == StreamOutput::kAdd;
  NEREID_RETURN_IF_ERROR(gemm_.Run(gemm, may_time, stream));
  if (gates) {
    SiluGate(static_cast<const __nv_bfloat16*>(call.scratch), static_cast<__nv_bfloat16*>(call.out),
             num_rows, num_outputs / 2, stream);
  }
  return {};
}

}  // namespace nereid::gpu
