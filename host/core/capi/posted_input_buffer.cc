// Memory that backends post for inputs (NEREID_PostedInputBuffer). [any thread]
#include <memory>

#include "host/core/capi/handles.h"
#include "host/core/model/model.h"
#include "host/core/server.h"
#include "nereid/ext/posted_input_buffer.h"

namespace nereid::core {
namespace {

// A weak reference: a slow client must not delay the end of the model.
struct PostedInput {
  std::weak_ptr<Model> model;
  PostedInputMemory memory;
};

}  // namespace
}  // namespace nereid::core

NEREID_HANDLE(NEREID_PostedInputBuffer, nereid::core::PostedInput);

using nereid::Status;
using nereid::core::AtCBoundary;
using nereid::core::FromHandle;
using nereid::core::PostedInput;
using nereid::core::ToHandle;

extern "C" {

TRITONSERVER_Error* NEREID_ServerOfferInput(TRITONSERVER_Server* server, const char* model_name,
                                            const int64_t model_version, const uint64_t byte_size,
                                            NEREID_PostedInputBuffer** memory, void** base) {
  NEREID_RETURN_IF_NULL(server);
  NEREID_RETURN_IF_NULL(model_name);
  NEREID_RETURN_IF_NULL(memory);
  NEREID_RETURN_IF_NULL(base);
  *memory = nullptr;
  return AtCBoundary([&]() -> Status {
    NEREID_ASSIGN_OR_RETURN(const auto model,
                            FromHandle(server)->models().Find(model_name, model_version));
    nereid::core::PostedInputMemory posted = model->GetPostedInput(byte_size);
    if (posted.base() == nullptr) return Status::Ok();
    *base = posted.base();
    *memory = ToHandle(new PostedInput{model, std::move(posted)});
    return Status::Ok();
  });
}

TRITONSERVER_Error* NEREID_InputMemoryIsFor(NEREID_PostedInputBuffer* memory,
                                            TRITONSERVER_InferenceRequest* request, bool* is_for) {
  NEREID_RETURN_IF_NULL(memory);
  NEREID_RETURN_IF_DELETED(request);
  NEREID_RETURN_IF_NULL(is_for);
  const std::shared_ptr<nereid::core::RequestTarget> model = FromHandle(memory)->model.lock();
  *is_for = model != nullptr && model == FromHandle(request)->target();
  return nullptr;
}

TRITONSERVER_Error* NEREID_InputMemoryDelete(NEREID_PostedInputBuffer* memory) {
  delete FromHandle(memory);
  return nullptr;
}

}  // extern "C"
