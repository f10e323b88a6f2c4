// Chooses between the two; around cuBLASLt, norm and gate are kernels of their own.
#include "gpu_llm/model/linear.h"

#include <algorithm>

#include "gpu_llm/kernels/dequantize.h"
#include "gpu_llm/kernels/gather_columns.h"
#include "gpu_llm/kernels/rms_norm.h"
#include "gpu_llm/kernels/silu_gate.h"

namespace nereid::gpu {
namespace {

// Rows up to which streaming is faster than cuBLASLt, for which quantised weights have to be
// unpacked first; more than the kernel takes at a time go in turns, of which each reads the
// weights.
int MaxStreamRows(WeightFormat format) {
  switch (format) {
    case WeightFormat::kBf16:
      return 8;
    case WeightFormat::kFp8:
      return 2 * kStreamMaxRows;
    case WeightFormat::kInt4:
      return 3 * kStreamMaxRows;
  }
  return 0;
}

int64_t OutputRowBytes(StreamOutput output, int64_t num_outputs) {
  if (output == StreamOutput::kFloat) return num_outputs * 4;
  return output == StreamOutput::kSiluGate ? num_outputs : num_outputs * 2;
}

}  // namespace

Result<LinearRunner> LinearRunner::Create(const GpuWeights& weights, int max_num_rows,
                                          int num_processors) {
  NEREID_ASSIGN_OR_RETURN(Gemm gemm, Gemm::Create());
  LinearRunner runner(std::move(gemm), num_processors);
  int64_t depth = 0, elements = 0;
  for (const GpuMatrix* matrix : weights.matrices()) {
    if (matrix->gathers()) depth = std::max<int64_t>(depth, matrix->depth);
    if (matrix->format != WeightFormat::kBf16)
      elements = std::max(elements, int64_t{matrix->num_outputs} * matrix->depth);
  }
  NEREID_ASSIGN_OR_RETURN(runner.gathered_, DeviceMemory::Allocate(max_num_rows * depth * 2,
                                                                   "rows in a matrix's order"));
  NEREID_ASSIGN_OR_RETURN(runner.dequantized_,
                          DeviceMemory::Allocate(elements * 2, "unpacked weights"));
  return runner;
}

void LinearRunner::PrepareInput(LinearCall& call, int num_rows, cudaStream_t stream) {
  const int depth = call.weights->depth;
  if (call.norm_weight != nullptr) {
    RmsNorm({call.in, call.rows, call.norm_weight, call.normed, num_rows, depth, call.epsilon},
            stream);
    call.in = call.normed;
    call.rows = nullptr;
    call.norm_weight = nullptr;
  }
  if (call.weights->gathers()) {
    auto* gathered = gathered_.as<__nv_bfloat16>();
    GatherColumns({call.in, call.rows, call.weights->column_order, call.weights->input_scale,
                   gathered, num_rows, depth},
                  stream);
    call.in = gathered;
    call.rows = nullptr;
  }
}

Status LinearRunner::Stream(const LinearCall& call, int num_rows, cudaStream_t stream) {
  const int64_t row_bytes = OutputRowBytes(call.output, call.weights->num_outputs);
  for (int first = 0; first < num_rows; first += kStreamMaxRows) {
    const __nv_bfloat16* in =
        call.rows != nullptr ? call.in : call.in + int64_t{first} * call.weights->depth;
    const int32_t* rows = call.rows != nullptr ? call.rows + first : nullptr;
    StreamGemm({*call.weights, in, rows, call.norm_weight,
                static_cast<char*>(call.out) + first * row_bytes,
                std::min(kStreamMaxRows, num_rows - first), call.epsilon, call.output},
               num_processors_, stream);
  }
  return CudaStatus(cudaGetLastError(), "a streamed product");
}

Status LinearRunner::Run(const LinearCall& given, int num_rows, bool may_time,
                         cudaStream_t stream) {
  if (num_rows == 0) return {};
  LinearCall call = given;
  const GpuMatrix& weights = *call.weights;
  const bool is_small = num_rows <= MaxStreamRows(weights.format);
  const int at_once = std::min(num_rows, kStreamMaxRows);
  if (is_small && !weights.gathers() && CanStream(weights, at_once, call.norm_weight != nullptr))
    return Stream(call, num_rows, stream);
  PrepareInput(call, num_rows, stream);
  if (is_small && CanStream(weights, at_once, false)) return Stream(call, num_rows, stream);

  const bool gates = call.output == StreamOutput::kSiluGate;
  GemmCall gemm;
  gemm.weights = static_cast<const __nv_bfloat16*>(weights.data);
  if (weights.format != WeightFormat::kBf16) {
    Dequantize(weights, dequantized_.as<__nv_bfloat16>(), stream);
    gemm.weights = dequantized_.as<__nv_bfloat16>();
  }
  gemm.in = call.in;
  gemm.out = gates ? call.scratch : call.out;
  gemm.scratch = call.scratch;
  gemm.num_rows = num_rows;
  gemm.num_outputs = weights.num_outputs;
  gemm.depth = weights.depth;
  gemm.out_is_float = call.output == StreamOutput::kFloat;
  gemm.accumulates = call.output == StreamOutput::kAdd;
  NEREID_RETURN_IF_ERROR(gemm_.Run(gemm, may_time, stream));
  if (gates) {
    SiluGate(static_cast<const __nv_bfloat16*>(call.scratch), static_cast<__nv_bfloat16*>(call.out),
             num_rows, weights.num_outputs / 2, stream);
  }
  return {};
}

}  // namespace nereid::gpu
