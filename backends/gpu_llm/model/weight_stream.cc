#include "backends/gpu_llm/model/weight_stream.h"

#include <algorithm>

#include "backends/gpu_llm/cuda/runtime.h"

namespace nereid::gpu {

Result<std::unique_ptr<WeightStream>> WeightStream::Create(
    PinnedMemory host, std::vector<Layer> layers, const std::array<char*, kNumBuffers>& buffers) {
  std::unique_ptr<WeightStream> weights(new WeightStream);
  weights->host_ = std::move(host);
  weights->layers_ = std::move(layers);
  weights->buffers_ = buffers;
  NEREID_ASSIGN_OR_RETURN(weights->copy_stream_, MakeStream());
  for (int i = 0; i < kNumBuffers; ++i) {
    NEREID_ASSIGN_OR_RETURN(weights->computed_[i], MakeEvent());
    NEREID_ASSIGN_OR_RETURN(weights->copied_[i], MakeEvent());
  }
  const int num_first = std::min<int>(kNumBuffers, static_cast<int>(weights->layers_.size()));
  for (int i = 0; i < num_first; ++i)
    NEREID_RETURN_IF_ERROR(weights->Copy(i, weights->copy_stream_.get()));
  NEREID_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(weights->copy_stream_.get()));
  return weights;
}

int WeightStream::IndexOf(int32_t layer) const {
  const auto found =
      std::lower_bound(layers_.begin(), layers_.end(), layer,
                       [](const Layer& streamed, int32_t key) { return streamed.layer < key; });
  return found == layers_.end() || found->layer != layer
             ? -1
             : static_cast<int>(found - layers_.begin());
}

int64_t WeightStream::step_bytes() const {
  int64_t sum = 0;
  if (copies()) {
    for (const Layer& layer : layers_) sum += layer.size_bytes;
  }
  return sum;
}

Status WeightStream::Copy(int index, cudaStream_t stream) {
  const Layer& from = layers_[index];
  return CudaStatus(
      cudaMemcpyAsync(buffers_[index % kNumBuffers], host_.as<char>() + from.host_offset,
                      static_cast<size_t>(from.size_bytes), cudaMemcpyHostToDevice, stream),
      "the weights of a layer");
}

// The first layers were copied in the previous step, whose end the stream has waited for.
Status WeightStream::Begin(int32_t layer, cudaStream_t stream) {
  const int index = IndexOf(layer);
  if (index < kNumBuffers || !copies()) return {};
  return CudaStatus(cudaStreamWaitEvent(stream, copied_[index % kNumBuffers].get()),
                    "the weights of a layer");
}

// The buffer's next layer, or, behind its last one, that of the next step.
Status WeightStream::End(int32_t layer, cudaStream_t stream) {
  const int index = IndexOf(layer);
  if (index < 0 || !copies()) return {};
  const int buffer = index % kNumBuffers;
  const bool is_last = index + kNumBuffers >= static_cast<int>(layers_.size());
  cudaStream_t copies = copy_stream_.get();
  NEREID_RETURN_IF_CUDA_ERROR(cudaEventRecord(computed_[buffer].get(), stream));
  NEREID_RETURN_IF_CUDA_ERROR(cudaStreamWaitEvent(copies, computed_[buffer].get()));
  NEREID_RETURN_IF_ERROR(Copy(is_last ? buffer : index + kNumBuffers, copies));
  return CudaStatus(cudaEventRecord(copied_[buffer].get(), copies), "the weights of a layer");
}

Status WeightStream::Finish(cudaStream_t stream) {
  if (!copies()) return {};
  for (const Event& copied : copied_)
    NEREID_RETURN_IF_CUDA_ERROR(cudaStreamWaitEvent(stream, copied.get()));
  return {};
}

}  // namespace nereid::gpu
