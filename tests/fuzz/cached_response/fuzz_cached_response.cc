// Fuzzes the decoding of a response that a cache plug-in returns. Arbitrary bytes are accepted or
// rejected, but never crash. In an accepted response each output belongs to the model and its
// memory has the stated size.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "host/core/cache/response_codec.h"
#include "host/core/request/infer_request.h"

namespace nereid::core {
namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

class StubTarget final : public RequestTarget {
 public:
  StubTarget() : schema_(MakeSchema()) {}
  const RequestSchema& schema() const override { return schema_; }
  ModelStatistics& statistics() override { return statistics_; }
  Status Enqueue(InferRequest*) override { return Status::Ok(); }
  Status CheckContinuesSequence(const InferRequest&) const override { return Status::Ok(); }
  void OnCancelled(InferRequest*) override {}
  void OnAccepted() override {}
  void OnReleased() override {}

 private:
  static TensorConfig Tensor(const char* name, DataType type) {
    TensorConfig tensor;
    tensor.name = name;
    tensor.data_type = type;
    tensor.dims = {-1};
    return tensor;
  }
  static RequestSchema MakeSchema() {
    ModelConfig config;
    config.name = "m";
    config.inputs = {Tensor("IN", DataType::kFp32)};
    config.outputs = {Tensor("OUT", DataType::kFp32), Tensor("TEXT", DataType::kBytes)};
    auto schema = RequestSchema::Make(config, 1, "");
    Require(schema.ok());
    return std::move(schema).value();
  }
  const RequestSchema schema_;
  ModelStatistics statistics_;
};

TRITONSERVER_Error* Allocate(TRITONSERVER_ResponseAllocator*, const char*, size_t byte_size,
                             TRITONSERVER_MemoryType, int64_t, void*, void** buffer, void**,
                             TRITONSERVER_MemoryType* type, int64_t* id) {
  *buffer = std::malloc(byte_size);
  *type = TRITONSERVER_MEMORY_CPU;
  *id = 0;
  return nullptr;
}
TRITONSERVER_Error* Free(TRITONSERVER_ResponseAllocator*, void* buffer, void*, size_t,
                         TRITONSERVER_MemoryType, int64_t) {
  std::free(buffer);
  return nullptr;
}

// A request that is never answered.
struct PendingRequest {
  PendingRequest() {
    allocator.alloc_fn = &Allocate;
    allocator.release_fn = &Free;
    ResponseCallbacks callbacks;
    callbacks.allocator = &allocator;
    callbacks.response_fn = [](TRITONSERVER_InferenceResponse*, uint32_t, void*) {};
    request->set_response_callbacks(callbacks);
    request->set_release_callback([](TRITONSERVER_InferenceRequest*, uint32_t, void*) {}, nullptr);
    Require(request->AddInput("IN", DataType::kFp32, std::vector<int64_t>{1}).ok());
    BufferAttributes attributes;
    attributes.byte_size = sizeof(value);
    Require(request->AppendInputData("IN", &value, attributes).ok());
    Require(request->Prepare().ok());
  }

  float value = 1;
  ResponseAllocator allocator;
  std::unique_ptr<InferRequest> request =
      std::make_unique<InferRequest>(std::make_shared<StubTarget>(), -1);
};

void Check(InferResponse& response, const std::vector<std::byte>& source) {
  for (size_t i = 0; i < response.num_outputs(); ++i) {
    OutputTensor& output = *response.output(i);
    Require(output.name() == "OUT" || output.name() == "TEXT");
    for (const int64_t dim : output.shape()) Require(dim >= 0);
    const auto* const base = static_cast<const volatile char*>(output.base());
    for (size_t at = 0; at < output.attributes().byte_size; ++at) (void)base[at];
  }
  // An accepted response is encoded to the same bytes.
  std::vector<std::byte> encoded(EncodedSize(response));
  Require(EncodeResponse(response, encoded).ok());
  Require(encoded == source);
}

}  // namespace
}  // namespace nereid::core

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nereid::core;
  static auto* const pending = new PendingRequest;
  auto response = InferResponse::New(pending->request->sink());
  Require(response.ok());
  // A copy of the exact size, so that sanitizers detect a read beyond the end.
  const std::vector<std::byte> copy(reinterpret_cast<const std::byte*>(data),
                                    reinterpret_cast<const std::byte*>(data) + size);
  if (DecodeResponse(copy, response->get()).ok()) Check(**response, copy);
  return 0;
}
