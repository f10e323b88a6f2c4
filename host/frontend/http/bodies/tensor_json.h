// Tensors as JSON arrays: parsed straight into the tensor's memory, written straight from it. Pure.
// [any thread]
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

// Not FP16 and BF16.
constexpr bool HasJsonForm(TRITONSERVER_DataType datatype) {
  return datatype != TRITONSERVER_TYPE_INVALID && datatype != TRITONSERVER_TYPE_FP16 &&
         datatype != TRITONSERVER_TYPE_BF16;
}

// Reads the array that comes next, flat or nested as `shape` says, into `data`. BYTES elements are
// laid out as a 4-byte little-endian length and the bytes. Fails on a wrong number of elements,
// ragged nesting, and values that `datatype` cannot hold; FP16 and BF16 have no JSON form.
Status ReadJsonTensor(JsonReader& reader, TRITONSERVER_DataType datatype,
                      std::span<const int64_t> shape, ByteBuffer& data);

// Appends one scalar as an element of `datatype`: what a tensor of one element is made of.
Status ReadJsonElement(JsonReader& reader, TRITONSERVER_DataType datatype, ByteBuffer& data);

// What BYTES elements that are not UTF-8 become.
enum class TextPolicy { kRefuse, kReplace };

// Appends the elements, separated by commas, without brackets. Fails on what JSON cannot hold: NaN,
// infinities, FP16 and BF16, and bytes that are not UTF-8 under kRefuse. `num_elements` gets how
// many there were.
Status AppendJsonElements(std::string& json, TRITONSERVER_DataType datatype, std::string_view data,
                          TextPolicy text_policy, size_t& num_elements);

}  // namespace nereid::http
