// Typed tensor contents of a request (bool_contents, fp32_contents ...) as the bytes of a tensor.
// Called by the request builder. [any thread]
#pragma once

#include <list>
#include <string>
#include <string_view>

#include "grpc_service.pb.h"
#include "nereid/data_type.h"
#include "nereid/status.h"

namespace nereid {

// Bytes that had to be made for a request; their addresses stay.
using InputStorage = std::list<std::string>;

// The contents as the bytes of a tensor of `datatype`: a view into `contents` where the type allows
// it, otherwise into a new element of `storage`. INVALID_ARG when another field than that of
// `datatype` holds values, or a value does not fit; messages name `input` and `model`.
Result<std::string_view> ContentsAsBytes(const inference::InferTensorContents& contents,
                                         DataType datatype, std::string_view input,
                                         std::string_view model, InputStorage& storage);

}  // namespace nereid
