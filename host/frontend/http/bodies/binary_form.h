// Bodies that are JSON and, behind it, binary tensors: how the length of the JSON part is told.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "host/frontend/http/transport/connection.h"
#include "host/frontend/http/transport/request.h"
#include "nereid/status.h"

namespace nereid::http {

// How long the JSON part of a request's body is: all of it where nothing is said, nothing of a raw
// request. `content_type` is that of KServeOptions.
Result<size_t> JsonLength(const RequestHead& head, std::string_view content_type,
                          size_t body_bytes);

// The head of such an answer.
class BinaryHead {
 public:
  BinaryHead(std::string_view content_type, size_t json_bytes, std::string_view extra_headers);
  // Points into this object.
  ReplyHead Get() const {
    const std::string_view usual = "application/octet-stream";
    return {.content_type = content_type_.empty() ? usual : content_type_,
            .extra_headers = extra_headers_};
  }

 private:
  std::string content_type_;  // empty: the usual one
  std::string extra_headers_;
};

}  // namespace nereid::http
