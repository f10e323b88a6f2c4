// The entry points of `backend: "python"` and of backends that are themselves written in Python.
#include "nereid/backend.h"

#include "backends/python_like_scripted/instance.h"
#include "backends/python_like_scripted/model.h"
#include "nereid/ext/posted_input_buffer.h"
#include "nereid/ext/serial_execution.h"

using nereid::python::PythonInstance;
using nereid::python::PythonModel;

NEREID_BACKEND(PythonModel, PythonInstance);

extern "C" {

TRITONBACKEND_ISPEC uint32_t NEREID_ModelInstanceMostInTurn(TRITONBACKEND_ModelInstance* instance) {
  const auto state = nereid::EntryPoints<PythonModel, PythonInstance>::InstanceOf(instance);
  return state.ok() ? (*state)->MaxSerialRequests() : 1;
}

TRITONBACKEND_ISPEC TRITONSERVER_Error* NEREID_ModelInstanceOfferInput(
    TRITONBACKEND_ModelInstance* instance, const uint64_t byte_size, void** base,
    NEREID_ReleaseFn_t* release_fn, void** release_userp) {
  return nereid::GuardCBoundary("offer", [&]() -> nereid::Status {
    NEREID_ASSIGN_OR_RETURN(
        PythonInstance * state,
        (nereid::EntryPoints<PythonModel, PythonInstance>::InstanceOf(instance)));
    const nereid::python::PostedInputBuffers::Buffer posted_buffer =
        state->PostInputBuffer(byte_size);
    *base = posted_buffer.base;
    *release_fn = posted_buffer.release_fn;
    *release_userp = posted_buffer.release_userp;
    return {};
  });
}

TRITONBACKEND_ISPEC TRITONSERVER_Error* NEREID_ModelInstanceExecuteInTurn(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests,
    const uint32_t request_count) {
  return nereid::GuardCBoundary("execute", [&]() -> nereid::Status {
    NEREID_ASSIGN_OR_RETURN(
        PythonInstance * state,
        (nereid::EntryPoints<PythonModel, PythonInstance>::InstanceOf(instance)));
    state->ExecuteSerially(std::span(requests, request_count));
    return {};
  });
}

}  // extern "C"
