// StepGraphs: captures, instantiates and launches CUDA graphs. [engine thread]
#include "backends/gpu_llm/step_graphs.h"

#include "backends/gpu_llm/cuda/runtime.h"

namespace nereid::gpu {

Result<bool> StepGraphs::Launch(const StepSize& size, cudaStream_t stream) {
  const Graph* graph = recorded_.Find(size);
  if (graph == nullptr) return false;
  NEREID_RETURN_IF_CUDA_ERROR(cudaGraphLaunch(graph->get(), stream));
  ++num_launches_;
  return true;
}

Result<bool> StepGraphs::Record(const StepSize& size, bool is_settled, int32_t min_steps,
                                const std::function<Status()>& launch, cudaStream_t stream) {
  if (!recorded_.IsUntried(size)) return false;
  if (group_ != nullptr) {
    NEREID_ASSIGN_OR_RETURN(const int64_t minimum, group_->WaitForAll(is_settled ? 1 : 0));
    is_settled = minimum > 0;
  }
  if (!is_settled || !recorded_.IsDue(size, min_steps)) return false;
  if (group_ != nullptr) {
    // Recording allocates memory, which may wait for all GPUs. So no GPU may wait for this one
    // meanwhile.
    NEREID_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream));
    NEREID_RETURN_IF_ERROR(group_->WaitForAll().status());
  }
  Result<Graph> graph = Capture(launch, stream);
  bool is_recorded = graph.ok();
  if (group_ != nullptr) {  // all GPUs use the graph, or none
    NEREID_ASSIGN_OR_RETURN(const int64_t minimum, group_->WaitForAll(is_recorded ? 1 : 0));
    is_recorded = minimum > 0;
  }
  if (is_recorded) {
    recorded_.Keep(size, std::move(*graph));
    return true;
  }
  recorded_.Refuse(size);
  if (!graph.ok() && on_warning_ && !has_warned_) {
    has_warned_ = true;
    on_warning_(StrCat("a decode step of ", size.num_rows,
                       " rows can not be recorded as a CUDA graph; steps of that size are launched "
                       "kernel by kernel: ",
                       graph.status().message()));
  }
  return true;
}

Result<Graph> StepGraphs::Capture(const std::function<Status()>& launch, cudaStream_t stream) {
  Status status =
      CudaStatus(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "a recording");
  if (!status.ok()) {
    (void)cudaGetLastError();
    return status;
  }
  if (fails_) (void)cudaStreamSynchronize(stream);  // not allowed during a capture: makes it fail
  status = launch();
  cudaGraph_t nodes = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream, &nodes);
  if (status.ok()) status = CudaStatus(ended, "cudaStreamEndCapture");
  Graph graph;
  if (status.ok()) {
    cudaGraphExec_t executable = nullptr;
    status = CudaStatus(cudaGraphInstantiate(&executable, nodes, 0), "cudaGraphInstantiate");
    if (status.ok()) graph = Graph(executable);
  }
  if (status.ok()) status = CudaStatus(cudaGraphUpload(graph.get(), stream), "cudaGraphUpload");
  if (nodes != nullptr) (void)cudaGraphDestroy(nodes);
  if (status.ok()) return graph;
  // Clears the error, which the next launch would report otherwise. A sticky error is reported
  // again.
  (void)cudaGetLastError();
  return status;
}

}  // namespace nereid::gpu
