// Decoder: the products with LoRA adapters beside the model's own. [engine thread]
#include "backends/gpu_llm/model/decoder.h"

namespace nereid::gpu {

Status Decoder::ShrinkAdapters(const DeviceAdapters::Target& target, const DeviceMemory& in,
                               cudaStream_t stream) {
  if (!Adapts(target.group)) return {};
  Mark("LoRA, shrink", {}, stream);
  const auto* const rows = in.as<__nv_bfloat16>();
  if (!ForksAdapters()) return adapters_->Shrink(target, adapter_rows_, rows, stream);
  cudaStream_t own = adapter_stream_.get();
  NEREID_RETURN_IF_CUDA_ERROR(cudaEventRecord(adapter_forked_.get(), stream));
  NEREID_RETURN_IF_CUDA_ERROR(cudaStreamWaitEvent(own, adapter_forked_.get()));
  NEREID_RETURN_IF_ERROR(adapters_->Shrink(target, adapter_rows_, rows, own));
  return CudaStatus(cudaEventRecord(adapter_joined_.get(), own), "LoRA adapters");
}

Status Decoder::JoinAdapters(cudaStream_t stream) {
  if (!ForksAdapters()) return {};
  return CudaStatus(cudaStreamWaitEvent(stream, adapter_joined_.get()), "LoRA adapters");
}

Status Decoder::SetAdapters(const DeviceAdapters* adapters) {
  adapters_ = adapters;
  NEREID_ASSIGN_OR_RETURN(adapter_stream_, MakeStream());
  NEREID_ASSIGN_OR_RETURN(adapter_forked_, MakeEvent());
  NEREID_ASSIGN_OR_RETURN(adapter_joined_, MakeEvent());
  return {};
}

Status Decoder::ExpandAdapters(const DeviceAdapters::Target& target, const DeviceMemory& out,
                               int64_t out_stride, cudaStream_t stream) {
  if (!Adapts(target.group)) return {};
  NEREID_RETURN_IF_ERROR(JoinAdapters(stream));
  Mark("LoRA, expand", {}, stream);
  return adapters_->Expand(target, adapter_rows_, out.data(), out_stride, stream);
}

}  // namespace nereid::gpu
