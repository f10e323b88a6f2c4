/// \file
/// Response room: back-pressure of streams of responses. The reader of a request's responses (a
/// frontend, or a backend that calls another model) reports whether it can take further responses,
/// and the sender waits until it can, or asks and goes on with other requests meanwhile.
///
/// Without any of these functions a backend has back-pressure, too: TRITONBACKEND_ResponseSend of a
/// response that is not final returns only when the reader can take another one. The wait always
/// ends: when the reader has read enough, when the request is cancelled or has ended, or when the
/// reader was cut off because it read nothing for the frontend's time limit. A thread that sends
/// responses of many requests should not wait for one of them: it calls SetSenderWaits and asks
/// HasRoom before each response.
///
/// The host exports the functions; Triton does not have them. Callers look them up at run time with
/// the Find functions below. A backend that does not find them sends without waiting.
#pragma once

#include <dlfcn.h>

#include "triton/core/tritonbackend.h"
#include "triton/core/tritonserver.h"

extern "C" {

/// Asks whether the reader of the factory's request can take another response. True, too, if the
/// request was cancelled or has ended, because its responses are dropped then. It never waits.
///   has_room  out
/// [any thread]
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* NEREID_ResponseFactoryHasRoom(
    TRITONBACKEND_ResponseFactory* factory, bool* has_room);

/// Says whether sending a response of the factory's request may wait. Initially it does. With false
/// the backend asks NEREID_ResponseFactoryHasRoom and keeps the responses for which there is no
/// room; those that it sends nevertheless use memory without a limit.
/// [any thread] Affects responses that are sent after the call.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* NEREID_ResponseFactorySetSenderWaits(
    TRITONBACKEND_ResponseFactory* factory, const bool sender_waits);

/// Says whether the caller can take further responses of a request that it has sent. Initially it
/// can. A response that is being sent may still arrive after a call with false. A caller that
/// reports false has to report true or cancel the request later, also if it never reads more.
///   request  after TRITONSERVER_ServerInferAsync, until the request is deleted or sent again
///   Errors: INTERNAL, the request was never sent.
/// [any thread, also in the response callback] It never waits.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* NEREID_InferenceRequestSetRoom(
    struct TRITONSERVER_InferenceRequest* request, const bool has_room);

/// Couples a request that a backend makes to the one that it executes: the responses of `request`
/// have room only while those of `source` have room, too. For backends that pass responses on, such
/// as the ensemble. Call it before TRITONSERVER_ServerInferAsync; it holds for one inference.
///   source  a request that the backend has not released; it may be released before `request` ends
/// [backend thread]
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* NEREID_InferenceRequestSetRoomSource(
    struct TRITONSERVER_InferenceRequest* request, TRITONBACKEND_Request* source);

/// From now on responses that the calling thread sends never wait for room. For the threads of a
/// frontend that serve many connections. [any thread]
TRITONSERVER_DECLSPEC void NEREID_ForbidWaitingOnThisThread();

}  // extern "C"

namespace nereid {

/// Return the host's functions, or null if the host does not have them. [any thread]
inline decltype(&NEREID_ResponseFactoryHasRoom) FindResponseFactoryHasRoom() {
  static const auto found = reinterpret_cast<decltype(&NEREID_ResponseFactoryHasRoom)>(
      dlsym(RTLD_DEFAULT, "NEREID_ResponseFactoryHasRoom"));
  return found;
}
inline decltype(&NEREID_ResponseFactorySetSenderWaits) FindResponseFactorySetSenderWaits() {
  static const auto found = reinterpret_cast<decltype(&NEREID_ResponseFactorySetSenderWaits)>(
      dlsym(RTLD_DEFAULT, "NEREID_ResponseFactorySetSenderWaits"));
  return found;
}
inline decltype(&NEREID_InferenceRequestSetRoom) FindInferenceRequestSetRoom() {
  static const auto found = reinterpret_cast<decltype(&NEREID_InferenceRequestSetRoom)>(
      dlsym(RTLD_DEFAULT, "NEREID_InferenceRequestSetRoom"));
  return found;
}
inline decltype(&NEREID_InferenceRequestSetRoomSource) FindInferenceRequestSetRoomSource() {
  static const auto found = reinterpret_cast<decltype(&NEREID_InferenceRequestSetRoomSource)>(
      dlsym(RTLD_DEFAULT, "NEREID_InferenceRequestSetRoomSource"));
  return found;
}
inline decltype(&NEREID_ForbidWaitingOnThisThread) FindForbidWaitingOnThisThread() {
  static const auto found = reinterpret_cast<decltype(&NEREID_ForbidWaitingOnThisThread)>(
      dlsym(RTLD_DEFAULT, "NEREID_ForbidWaitingOnThisThread"));
  return found;
}

}  // namespace nereid
