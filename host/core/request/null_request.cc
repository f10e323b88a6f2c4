#include "host/core/request/null_request.h"

#include <algorithm>

#include "host/core/handle/error.h"
#include "host/core/request/infer_response.h"
#include "host/core/request/response_allocator.h"

namespace nereid::core {
namespace {

struct NullRequest : InferRequest {
  explicit NullRequest(const InferRequest& like)
      : InferRequest(like.target(), like.requested_version()) {}
  std::vector<char> zeros;  // the data of all inputs; it is only read
};

uint64_t LargestInput(const InferRequest& like) {
  uint64_t largest = 0;
  for (size_t i = 0; i < like.num_inputs(); ++i) {
    largest = std::max(largest, like.input(i).byte_size);
  }
  return largest;
}

// BYTES inputs have empty strings, which take four bytes each, even if the other request's do not.
uint64_t ZeroByteSize(const InputTensor& input) {
  if (input.data_type != DataType::kBytes) return input.byte_size;
  return 4 * static_cast<uint64_t>(ElementCount(input.client_shape.span()).value());
}

void AddZeroInput(const InputTensor& input, NullRequest* null) {
  const auto added = [&]() -> Status {
    NEREID_RETURN_IF_ERROR(null->AddInput(input.name, input.data_type, input.client_shape.span()));
    BufferAttributes attributes;
    attributes.byte_size = std::min<uint64_t>(ZeroByteSize(input), null->zeros.size());
    return null->AppendInputData(input.name, null->zeros.data(), attributes);
  };
  (void)added();  // cannot fail: the names are unique in `like`
}

}  // namespace

InferRequest* NewNullRequest(const InferRequest& like) {
  auto* null = new NullRequest(like);
  null->zeros.resize(std::max<uint64_t>(LargestInput(like), 1));
  for (size_t i = 0; i < like.num_inputs(); ++i) {
    if (like.input(i).spec_index >= 0) AddZeroInput(like.input(i), null);
  }
  ResponseCallbacks callbacks;
  callbacks.allocator = &kHeapAllocator;
  callbacks.response_fn = [](TRITONSERVER_InferenceResponse* response, uint32_t, void*) {
    if (response != nullptr) delete FromHandle(response);
  };
  null->set_response_callbacks(callbacks);
  null->set_release_callback([](TRITONSERVER_InferenceRequest*, uint32_t,
                                void* self) { delete static_cast<NullRequest*>(self); },
                             null);
  null->ExcludeFromStatistics();
  (void)null->Prepare();  // cannot fail: `like` is valid
  null->target()->OnAccepted();
  null->queue_start_ns = like.queue_start_ns;
  return null;
}

}  // namespace nereid::core
