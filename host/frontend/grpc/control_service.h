// inference.GRPCInferenceService. Inference calls go to unary_infer and stream_infer as raw bytes;
// all other calls are answered here.
#pragma once

#include "grpc_service.grpc.pb.h"
#include "infer_context.h"
#include "work_queue.h"

namespace nereid {

namespace internal {
using Rpc = inference::GRPCInferenceService;
// Callback methods all, the two inference calls without protobuf.
using InferRawMethods = Rpc::WithRawCallbackMethod_ModelInfer<
    Rpc::WithRawCallbackMethod_ModelStreamInfer<Rpc::Service>>;
using MetadataMethods = Rpc::WithCallbackMethod_ServerLive<Rpc::WithCallbackMethod_ServerReady<
    Rpc::WithCallbackMethod_ModelReady<Rpc::WithCallbackMethod_ServerMetadata<
        Rpc::WithCallbackMethod_ModelMetadata<Rpc::WithCallbackMethod_ModelConfig<
            Rpc::WithCallbackMethod_ModelStatistics<InferRawMethods>>>>>>>;
using RepositoryMethods =
    Rpc::WithCallbackMethod_RepositoryIndex<Rpc::WithCallbackMethod_RepositoryModelLoad<
        Rpc::WithCallbackMethod_RepositoryModelUnload<MetadataMethods>>>;
using SharedMemoryMethods = Rpc::WithCallbackMethod_SystemSharedMemoryStatus<
    Rpc::WithCallbackMethod_SystemSharedMemoryRegister<
        Rpc::WithCallbackMethod_SystemSharedMemoryUnregister<
            Rpc::WithCallbackMethod_CudaSharedMemoryStatus<
                Rpc::WithCallbackMethod_CudaSharedMemoryRegister<
                    Rpc::WithCallbackMethod_CudaSharedMemoryUnregister<RepositoryMethods>>>>>>;
using Methods =
    Rpc::WithCallbackMethod_TraceSetting<Rpc::WithCallbackMethod_LogSettings<SharedMemoryMethods>>;
}  // namespace internal

// [gRPC threads, and the control queue's for what may block]
class ControlService final : public internal::Methods {
 public:
  // Both outlive the service. `control_queue` runs calls that may take long.
  ControlService(const InferContext& context, WorkQueue& control_queue)
      : context_(context), server_(context.server()), control_queue_(control_queue) {}

  using Reactor = grpc::ServerUnaryReactor;
  using Context = grpc::CallbackServerContext;

  Reactor* ModelInfer(Context* call, const grpc::ByteBuffer* request,
                      grpc::ByteBuffer* response) override;
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ModelStreamInfer(
      Context* call) override;

  Reactor* ServerLive(Context*, const inference::ServerLiveRequest*,
                      inference::ServerLiveResponse*) override;
  Reactor* ServerReady(Context*, const inference::ServerReadyRequest*,
                       inference::ServerReadyResponse*) override;
  Reactor* ModelReady(Context*, const inference::ModelReadyRequest*,
                      inference::ModelReadyResponse*) override;
  Reactor* ServerMetadata(Context*, const inference::ServerMetadataRequest*,
                          inference::ServerMetadataResponse*) override;
  Reactor* ModelMetadata(Context*, const inference::ModelMetadataRequest*,
                         inference::ModelMetadataResponse*) override;
  Reactor* ModelConfig(Context*, const inference::ModelConfigRequest*,
                       inference::ModelConfigResponse*) override;
  Reactor* ModelStatistics(Context*, const inference::ModelStatisticsRequest*,
                           inference::ModelStatisticsResponse*) override;

  Reactor* RepositoryIndex(Context*, const inference::RepositoryIndexRequest*,
                           inference::RepositoryIndexResponse*) override;
  Reactor* RepositoryModelLoad(Context*, const inference::RepositoryModelLoadRequest*,
                               inference::RepositoryModelLoadResponse*) override;
  Reactor* RepositoryModelUnload(Context*, const inference::RepositoryModelUnloadRequest*,
                                 inference::RepositoryModelUnloadResponse*) override;

  Reactor* LogSettings(Context*, const inference::LogSettingsRequest*,
                       inference::LogSettingsResponse*) override;

  Reactor* TraceSetting(Context*, const inference::TraceSettingRequest*,
                        inference::TraceSettingResponse*) override;

  // shared_memory_rpc.cc
  Reactor* SystemSharedMemoryStatus(Context*, const inference::SystemSharedMemoryStatusRequest*,
                                    inference::SystemSharedMemoryStatusResponse*) override;
  Reactor* SystemSharedMemoryRegister(Context*, const inference::SystemSharedMemoryRegisterRequest*,
                                      inference::SystemSharedMemoryRegisterResponse*) override;
  Reactor* SystemSharedMemoryUnregister(Context*,
                                        const inference::SystemSharedMemoryUnregisterRequest*,
                                        inference::SystemSharedMemoryUnregisterResponse*) override;
  Reactor* CudaSharedMemoryStatus(Context*, const inference::CudaSharedMemoryStatusRequest*,
                                  inference::CudaSharedMemoryStatusResponse*) override;
  Reactor* CudaSharedMemoryRegister(Context*, const inference::CudaSharedMemoryRegisterRequest*,
                                    inference::CudaSharedMemoryRegisterResponse*) override;
  Reactor* CudaSharedMemoryUnregister(Context*, const inference::CudaSharedMemoryUnregisterRequest*,
                                      inference::CudaSharedMemoryUnregisterResponse*) override;

 private:
  // Null when the caller may; otherwise the call is ended.
  Reactor* Refuse(Context* call, ApiGroup group) const;

  const InferContext& context_;
  const Server& server_;
  WorkQueue& control_queue_;
};

}  // namespace nereid
