// The C edge's own tools: handle casts, Status -> TRITONSERVER_Error*, the exception guard.
// Included by every file of capi/. A class pairs itself with its C type by NEREID_HANDLE next to
// its definition.
#pragma once

#include "host/core/handle/error.h"
#include "host/core/handle/handle_cast.h"
#include "host/core/handle/message.h"
#include "host/core/handle/parameter.h"
#include "nereid/status.h"
#include "triton/core/tritonbackend.h"
#include "triton/core/tritonserver.h"

// Of requests and responses: one that its owner deleted is an error as null is.
#define NEREID_RETURN_IF_GONE(handle)                                                           \
  do {                                                                                          \
    NEREID_RETURN_IF_NULL(handle);                                                              \
    if (!::nereid::FromHandle(handle)->IsLive(::nereid::FromHandle(handle)))                    \
      return ::nereid::ToError(                                                                 \
          ::nereid::InvalidArgError(__func__, ": parameter '" #handle "' was deleted before")); \
  } while (false)
