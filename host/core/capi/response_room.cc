// Back-pressure of responses (nereid/ext/response_room.h). [any thread]
#include "nereid/ext/response_room.h"

#include "host/core/capi/handles.h"
#include "host/core/request/infer_request.h"
#include "host/core/request/response_room.h"
#include "host/core/request/response_sink.h"

using nereid::Status;
using nereid::core::AtCBoundary;
using nereid::core::FromHandle;
using nereid::core::InferRequest;
using nereid::core::ResponseRoom;

extern "C" {

TRITONSERVER_Error* NEREID_ResponseFactoryHasRoom(TRITONBACKEND_ResponseFactory* factory,
                                                  bool* has_room) {
  NEREID_RETURN_IF_NULL(factory);
  NEREID_RETURN_IF_NULL(has_room);
  *has_room = FromHandle(factory)->room().HasRoom();
  return nullptr;
}

TRITONSERVER_Error* NEREID_ResponseFactorySetSenderWaits(TRITONBACKEND_ResponseFactory* factory,
                                                         const bool sender_waits) {
  NEREID_RETURN_IF_NULL(factory);
  FromHandle(factory)->SetSenderWaits(sender_waits);
  return nullptr;
}

TRITONSERVER_Error* NEREID_InferenceRequestSetRoom(TRITONSERVER_InferenceRequest* request,
                                                   const bool has_room) {
  NEREID_RETURN_IF_DELETED(request);
  return AtCBoundary([&]() -> Status {
    const InferRequest& object = *FromHandle(request);
    NEREID_RETURN_IF_ERROR(object.CheckWasPrepared("report room for responses"));
    object.sink()->room().Set(has_room);
    return Status::Ok();
  });
}

TRITONSERVER_Error* NEREID_InferenceRequestSetRoomSource(TRITONSERVER_InferenceRequest* request,
                                                         TRITONBACKEND_Request* source) {
  NEREID_RETURN_IF_DELETED(request);
  NEREID_RETURN_IF_DELETED(source);
  FromHandle(request)->SetRoomSource(FromHandle(source)->sink());
  return nullptr;
}

void NEREID_ForbidWaitingOnThisThread() {
  ResponseRoom::ForbidWaitingOnThisThread();
}

}  // extern "C"
