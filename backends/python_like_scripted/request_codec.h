// Encodes a request as a part of the kExecute command. Used by Session. [instance thread]
#pragma once

#include <cstdint>
#include <vector>

#include "backends/python_like_scripted/marshal.h"
#include "backends/python_like_scripted/shared_region.h"
#include "backends/python_like_scripted/worker.h"
#include "nereid/request.h"

namespace nereid::python {

// Appends (key, id, correlation id, flags, timeout, parameters, outputs, inputs) to `writer`.
//   key     the request's key in OpenRequests
//   worker  its regions and posted buffers hold the inputs
//   blocks  in/out; allocated blocks are appended. The caller releases them if the command is not
//       sent.
// An error leaves a part of the request in `writer`. UNSUPPORTED for a parameter of another type
// than string, integer, bool or double.
Status EncodeRequest(Request& request, uint64_t key, Worker& worker,
                     std::vector<SharedBlock>& blocks, MarshalWriter& writer);

}  // namespace nereid::python
