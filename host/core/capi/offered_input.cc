// Memory that models offer for inputs: NEREID_InputMemory. [any thread]
#include <memory>

#include "host/core/capi/handles.h"
#include "host/core/model/model.h"
#include "host/core/server.h"
#include "nereid/ext/offered_input.h"

namespace nereid {
namespace {

// The model is not kept: what a slow client sends must not hold up its end.
struct OfferedInput {
  std::weak_ptr<Model> model;
  InputLoan loan;
};

}  // namespace
}  // namespace nereid

NEREID_HANDLE(NEREID_InputMemory, nereid::OfferedInput);

using nereid::AtCEdge;
using nereid::FromHandle;
using nereid::OfferedInput;
using nereid::Status;
using nereid::ToHandle;

extern "C" {

TRITONSERVER_Error* NEREID_ServerOfferInput(TRITONSERVER_Server* server, const char* model_name,
                                            const int64_t model_version, const uint64_t byte_size,
                                            NEREID_InputMemory** memory, void** base) {
  NEREID_RETURN_IF_NULL(server);
  NEREID_RETURN_IF_NULL(model_name);
  NEREID_RETURN_IF_NULL(memory);
  NEREID_RETURN_IF_NULL(base);
  *memory = nullptr;
  return AtCEdge([&]() -> Status {
    NEREID_ASSIGN_OR_RETURN(const auto model,
                            FromHandle(server)->models().Find(model_name, model_version));
    nereid::InputLoan loan = model->OfferInput(byte_size);
    if (loan.base() == nullptr) return Status::Ok();
    *base = loan.base();
    *memory = ToHandle(new OfferedInput{model, std::move(loan)});
    return Status::Ok();
  });
}

TRITONSERVER_Error* NEREID_InputMemoryIsFor(NEREID_InputMemory* memory,
                                            TRITONSERVER_InferenceRequest* request, bool* is_for) {
  NEREID_RETURN_IF_NULL(memory);
  NEREID_RETURN_IF_GONE(request);
  NEREID_RETURN_IF_NULL(is_for);
  const std::shared_ptr<nereid::RequestTarget> model = FromHandle(memory)->model.lock();
  *is_for = model != nullptr && model == FromHandle(request)->target();
  return nullptr;
}

TRITONSERVER_Error* NEREID_InputMemoryDelete(NEREID_InputMemory* memory) {
  delete FromHandle(memory);
  return nullptr;
}

}  // extern "C"
