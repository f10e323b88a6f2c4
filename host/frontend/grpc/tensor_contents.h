// Converts typed tensor contents of a request (bool_contents, fp32_contents ...) to tensor bytes.
// Called by the request builder. [any thread]
#pragma once

#include <list>
#include <string>
#include <string_view>

#include "grpc_service.pb.h"
#include "nereid/data_type.h"
#include "nereid/status.h"

namespace nereid {

// Converted tensors of a request. A list, because their addresses must not change.
using InputStorage = std::list<std::string>;

// Returns the contents as bytes of a `datatype` tensor: a view into `contents` if the
// representation is the same, else a view of a new element of `storage`. INVALID_ARG if a field of
// another type has values or a value does not fit; messages name `input` and `model`.
Result<std::string_view> ContentsAsBytes(const inference::InferTensorContents& contents,
                                         DataType datatype, std::string_view input,
                                         std::string_view model, InputStorage& storage);

}  // namespace nereid
