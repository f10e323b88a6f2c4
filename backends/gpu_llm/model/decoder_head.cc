// Decoder: the layer of an EAGLE-3 head. [engine thread]
#include "backends/gpu_llm/cuda/runtime.h"
#include "backends/gpu_llm/kernels/rows/embedding.h"
#include "backends/gpu_llm/kernels/rows/norm.h"
#include "backends/gpu_llm/model/decoder.h"

namespace nereid::gpu {

Status Decoder::ForwardHead(const HeadInputs& inputs, const StepShape& shape, const int32_t* words,
                            cudaStream_t stream) {
  const auto row_bytes = static_cast<size_t>(spec_->hidden_size * 2);
  if (head_in_.data() == nullptr) {
    NEREID_ASSIGN_OR_RETURN(
        head_in_, DeviceMemory::Allocate(2 * row_bytes * max_num_tokens_, "a draft head's input"));
    // Padding rows are computed, too.
    NEREID_RETURN_IF_CUDA_ERROR(
        cudaMemsetAsync(residual_.data(), 0, residual_.size_bytes(), stream));
  }
  if (inputs.num_features > 0) {
    LinearCall call;
    call.weights = &weights_->feature_projection;
    call.in = inputs.features;
    call.out = residual_.data();
    call.row_capacity = max_num_tokens_;
    call.name = "feature projection";
    NEREID_RETURN_IF_ERROR(linear_->Run(call, inputs.num_features, true, stream));
  }
  if (inputs.num_own > 0) {
    NEREID_RETURN_IF_CUDA_ERROR(
        cudaMemcpyAsync(residual_.as<char>() + inputs.num_features * row_bytes, inputs.own,
                        inputs.num_own * row_bytes, cudaMemcpyDeviceToDevice, stream));
  }
  const StepLayout layout(shape);
  EmbeddingParams embedding = {};
  embedding.ids = words + layout.token_ids;
  embedding.last_tokens = last_tokens();
  embedding.table = inputs.token_embedding;
  embedding.positions = words + layout.positions;
  embedding.out = gate_up_.as<__nv_bfloat16>();  // free until the MLP, and wide enough
  embedding.num_rows = shape.num_tokens;
  embedding.hidden_size = spec_->hidden_size;
  embedding.scale = spec_->embedding_scale;
  Embed(embedding, stream);
  // Each input row: the normed embedding, then the normed hidden state.
  const auto norm = [&](const __nv_bfloat16* in, const GpuNorm& weights, int part) -> Status {
    auto* const normed = normed_.as<__nv_bfloat16>();
    RmsNorm({in, nullptr, weights.weight, normed, shape.num_tokens, spec_->hidden_size,
             spec_->norm.epsilon},
            stream);
    NEREID_RETURN_IF_CUDA_ERROR(
        cudaMemcpy2DAsync(head_in_.as<char>() + part * row_bytes, 2 * row_bytes, normed, row_bytes,
                          row_bytes, shape.num_tokens, cudaMemcpyDeviceToDevice, stream));
    return {};
  };
  NEREID_RETURN_IF_ERROR(norm(embedding.out, weights_->layers[0].input_norm, 0));
  NEREID_RETURN_IF_ERROR(norm(residual(), weights_->feature_norm, 1));
  if (inputs.norm_before_residual) {
    NEREID_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(residual_.data(), normed_.data(),
                                                row_bytes * shape.num_tokens,
                                                cudaMemcpyDeviceToDevice, stream));
  }
  adapter_rows_ = {};
  return RunLayer(0, shape, words, true, stream);
}

}  // namespace nereid::gpu
