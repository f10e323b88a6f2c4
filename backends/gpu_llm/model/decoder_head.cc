// Decoder: the layer of an EAGLE-3 head. [engine thread]
#include "backends/gpu_llm/cuda/runtime.h"
#include "backends/gpu_llm/kernels/rows/head_input.h"
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
    NEREID_RETURN_IF_ERROR(linear_->Run(call, inputs.num_features, inputs.may_time, stream));
  }
  const StepLayout layout(shape);
  HeadInputParams input = {};
  input.ids = words + layout.token_ids;
  input.last_tokens = last_tokens();
  input.target_ids = inputs.target_ids;
  input.table = inputs.token_embedding;
  input.scale = spec_->embedding_scale;
  input.embedding_norm = weights_->layers[0].input_norm.weight;
  input.hidden_norm = weights_->feature_norm.weight;
  if (inputs.own_rows != nullptr) input.hidden = inputs.own;
  input.hidden_rows = inputs.own_rows;
  input.residual = residual_.as<__nv_bfloat16>();
  input.norms_residual = inputs.norm_before_residual;
  input.out = head_in_.as<__nv_bfloat16>();
  input.num_rows = shape.num_tokens;
  input.hidden_size = spec_->hidden_size;
  input.epsilon = spec_->norm.epsilon;
  HeadInput(input, stream);
  if (IsFused(shape)) return RunFused(shape, words, stream);
  adapter_rows_ = {};
  return RunLayer(0, shape, words, inputs.may_time, stream);
}

}  // namespace nereid::gpu
