// Tensors as JSON arrays: parsed directly into the tensor's memory and written directly from it.
// Pure. [any thread]
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "host/frontend/http/json/json_reader.h"
#include "host/frontend/http/transport/byte_buffer.h"
#include "nereid/status.h"
#include "triton/core/tritonserver.h"

namespace nereid::http {

// False for FP16 and BF16.
constexpr bool SupportsJson(TRITONSERVER_DataType datatype) {
  return datatype != TRITONSERVER_TYPE_INVALID && datatype != TRITONSERVER_TYPE_FP16 &&
         datatype != TRITONSERVER_TYPE_BF16;
}

// Reads the next array, flat or nested as `shape` says, into `data`. A BYTES element is stored as a
// 4-byte little-endian length followed by the bytes. Fails on a wrong number of elements, on ragged
// nesting, on values out of the range of `datatype`, and for FP16 and BF16.
Status ReadJsonTensor(JsonReader& reader, TRITONSERVER_DataType datatype,
                      std::span<const int64_t> shape, ByteBuffer& data);

// Reads one scalar and appends it as an element of `datatype`.
Status ReadJsonElement(JsonReader& reader, TRITONSERVER_DataType datatype, ByteBuffer& data);

// Treatment of BYTES elements that are not UTF-8.
enum class TextPolicy { kRefuse, kReplace };

// Appends the elements, separated by commas, without brackets, and sets `num_elements`. Fails on
// values that JSON cannot express: NaN, infinities, FP16 and BF16, and under kRefuse bytes that are
// not UTF-8.
Status AppendJsonElements(std::string& json, TRITONSERVER_DataType datatype, std::string_view data,
                          TextPolicy text_policy, size_t& num_elements);

}  // namespace nereid::http
