// Writes tensors as JSON.
#include <cmath>
#include <cstring>

#include "host/frontend/http/bodies/data_type.h"
#include "host/frontend/http/bodies/tensor_json.h"
#include "host/frontend/http/json/json_writer.h"
#include "host/frontend/http/json/utf8.h"

namespace nereid::http {
namespace {

template <typename T>
T LoadRaw(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

template <typename T>
Status AppendNumbers(std::string& json, std::string_view data, size_t& num_elements) {
  num_elements = data.size() / sizeof(T);
  for (size_t i = 0; i < num_elements; ++i) {
    if (i != 0) json += ',';
    const T value = LoadRaw<T>(data.data() + i * sizeof(T));
    if constexpr (std::is_floating_point_v<T>) {
      if (!std::isfinite(value)) {
        return InvalidArgError("element ", i, " is ", value,
                               ", which JSON cannot hold. Please use the binary data format");
      }
      AppendJsonDouble(json, value);
    } else if constexpr (std::is_signed_v<T>) {
      AppendJsonInt(json, value);
    } else {
      AppendJsonUint(json, value);
    }
  }
  return Status::Ok();
}

void AppendBools(std::string& json, std::string_view data, size_t& num_elements) {
  num_elements = data.size();
  for (size_t i = 0; i < data.size(); ++i) {
    if (i != 0) json += ',';
    json += data[i] != 0 ? "true" : "false";
  }
}

Status AppendTexts(std::string& json, std::string_view data, TextPolicy policy,
                   size_t& num_elements) {
  num_elements = 0;
  while (!data.empty()) {
    if (data.size() < sizeof(uint32_t)) {
      return InternalError("BYTES data ends inside the length of element ", num_elements);
    }
    const uint32_t length = LoadRaw<uint32_t>(data.data());
    data.remove_prefix(sizeof(length));
    if (length > data.size()) {
      return InternalError("BYTES element ", num_elements, " should have ", length,
                           " bytes, but only ", data.size(), " are left");
    }
    const std::string_view text = data.substr(0, length);
    data.remove_prefix(length);
    if (num_elements++ != 0) json += ',';
    if (policy == TextPolicy::kReplace) {
      AppendLossyJsonString(json, text);
    } else if (IsUtf8(text)) {
      AppendJsonString(json, text);
    } else {
      return InvalidArgError("element ", num_elements - 1,
                             " is not UTF-8, which JSON cannot hold. ",
                             "Please use the binary data format");
    }
  }
  return Status::Ok();
}

}  // namespace

Status AppendJsonElements(std::string& json, TRITONSERVER_DataType datatype, std::string_view data,
                          TextPolicy text_policy, size_t& num_elements) {
  switch (datatype) {
    case TRITONSERVER_TYPE_BOOL:
      AppendBools(json, data, num_elements);
      return Status::Ok();
    case TRITONSERVER_TYPE_UINT8:
      return AppendNumbers<uint8_t>(json, data, num_elements);
    case TRITONSERVER_TYPE_UINT16:
      return AppendNumbers<uint16_t>(json, data, num_elements);
    case TRITONSERVER_TYPE_UINT32:
      return AppendNumbers<uint32_t>(json, data, num_elements);
    case TRITONSERVER_TYPE_UINT64:
      return AppendNumbers<uint64_t>(json, data, num_elements);
    case TRITONSERVER_TYPE_INT8:
      return AppendNumbers<int8_t>(json, data, num_elements);
    case TRITONSERVER_TYPE_INT16:
      return AppendNumbers<int16_t>(json, data, num_elements);
    case TRITONSERVER_TYPE_INT32:
      return AppendNumbers<int32_t>(json, data, num_elements);
    case TRITONSERVER_TYPE_INT64:
      return AppendNumbers<int64_t>(json, data, num_elements);
    case TRITONSERVER_TYPE_FP32:
      return AppendNumbers<float>(json, data, num_elements);
    case TRITONSERVER_TYPE_FP64:
      return AppendNumbers<double>(json, data, num_elements);
    case TRITONSERVER_TYPE_BYTES:
      return AppendTexts(json, data, text_policy, num_elements);
    default:
      return InvalidArgError(
          "sending ", DataTypeName(datatype),
          " data via JSON is not supported. Please use the binary data format for "
          "output");
  }
}

}  // namespace nereid::http
