// The entry points: `backend: "python"`, and backends that are themselves written in Python.
#include "nereid/backend.h"

#include "backends/python_like_scripted/instance.h"
#include "backends/python_like_scripted/model.h"
#include "nereid/ext/execution_in_turn.h"
#include "nereid/ext/offered_input.h"

using nereid::scripted::PythonInstance;
using nereid::scripted::PythonModel;

NEREID_BACKEND(PythonModel, PythonInstance);

extern "C" {

TRITONBACKEND_ISPEC uint32_t NEREID_ModelInstanceMostInTurn(TRITONBACKEND_ModelInstance* instance) {
  const auto state = nereid::EntryPoints<PythonModel, PythonInstance>::InstanceOf(instance);
  return state.ok() ? (*state)->MostInTurn() : 1;
}

TRITONBACKEND_ISPEC TRITONSERVER_Error* NEREID_ModelInstanceOfferInput(
    TRITONBACKEND_ModelInstance* instance, const uint64_t byte_size, void** base,
    NEREID_GiveBackFn_t* give_back, void** lender_userp) {
  return nereid::GuardCEdge("offer", [&]() -> nereid::Status {
    NEREID_ASSIGN_OR_RETURN(
        PythonInstance * state,
        (nereid::EntryPoints<PythonModel, PythonInstance>::InstanceOf(instance)));
    const nereid::scripted::Offers::Offer offer = state->OfferInput(byte_size);
    *base = offer.base;
    *give_back = offer.give_back;
    *lender_userp = offer.lender_userp;
    return {};
  });
}

TRITONBACKEND_ISPEC TRITONSERVER_Error* NEREID_ModelInstanceExecuteInTurn(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests,
    const uint32_t request_count) {
  return nereid::GuardCEdge("execute", [&]() -> nereid::Status {
    NEREID_ASSIGN_OR_RETURN(
        PythonInstance * state,
        (nereid::EntryPoints<PythonModel, PythonInstance>::InstanceOf(instance)));
    state->ExecuteInTurn(std::span(requests, request_count));
    return {};
  });
}

}  // extern "C"
