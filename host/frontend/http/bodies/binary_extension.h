// The binary tensor data extension: a body consists of JSON followed by binary tensors, and a
// header carries the length of the JSON part.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "host/frontend/http/transport/http_connection.h"
#include "host/frontend/http/transport/http_request.h"
#include "nereid/status.h"

namespace nereid::http {

// Returns the length of the JSON part of a request's body. It is the whole body if no header gives
// a length, and 0 for a raw request. `content_type` is KServeOptions::binary_content_type.
Result<size_t> JsonLength(const RequestHead& head, std::string_view content_type,
                          size_t body_bytes);

// The head of a response with binary tensors.
class BinaryResponseHead {
 public:
  BinaryResponseHead(std::string_view content_type, size_t json_bytes,
                     std::string_view extra_headers);
  // The result points into this object.
  ResponseHead Get() const {
    const std::string_view usual = "application/octet-stream";
    return {.content_type = content_type_.empty() ? usual : content_type_,
            .extra_headers = extra_headers_};
  }

 private:
  std::string content_type_;  // empty for application/octet-stream
  std::string extra_headers_;
};

}  // namespace nereid::http
