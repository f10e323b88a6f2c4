// Tools of the C boundary: handle casts, conversion of Status to TRITONSERVER_Error*, the exception
// guard. Included by every file of capi/. NEREID_HANDLE pairs a class with its C type next to the
// definition of the class.
#pragma once

#include "host/core/handle/error.h"
#include "host/core/handle/handle_cast.h"
#include "host/core/handle/json_message.h"
#include "host/core/handle/parameter.h"
#include "nereid/status.h"
#include "triton/core/tritonbackend.h"
#include "triton/core/tritonserver.h"

// For requests and responses: returns INVALID_ARG if the handle is null or the object was deleted.
#define NEREID_RETURN_IF_DELETED(handle)                                                        \
  do {                                                                                          \
    NEREID_RETURN_IF_NULL(handle);                                                              \
    if (!::nereid::core::FromHandle(handle)->IsLive(::nereid::core::FromHandle(handle)))        \
      return ::nereid::core::ToError(                                                           \
          ::nereid::InvalidArgError(__func__, ": parameter '" #handle "' was deleted before")); \
  } while (false)
