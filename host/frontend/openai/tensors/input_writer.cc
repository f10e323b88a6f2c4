#include "host/frontend/openai/tensors/input_writer.h"

#include <limits>
#include <utility>
#include <vector>

#include "host/frontend/http/bodies/data_type.h"

namespace nereid::openai {
namespace {

// Returns false if the value is out of the range of an integer type. UINT64 takes negative values
// as their two's complement, because a seed is any 64-bit number.
template <typename To, typename From>
bool AppendAs(From value, http::ByteBuffer& data) {
  if constexpr (std::is_integral_v<To> && sizeof(To) < sizeof(int64_t)) {
    if (value < static_cast<From>(std::numeric_limits<To>::min()) ||
        value > static_cast<From>(std::numeric_limits<To>::max())) {
      return false;
    }
  }
  const To converted = static_cast<To>(value);
  data.Append({reinterpret_cast<const char*>(&converted), sizeof(converted)});
  return true;
}

template <typename From>
bool AppendValue(From value, TRITONSERVER_DataType datatype, http::ByteBuffer& data) {
  switch (datatype) {
    case TRITONSERVER_TYPE_BOOL:
      return AppendAs<uint8_t>(value != 0 ? 1 : 0, data);
    case TRITONSERVER_TYPE_INT32:
      return AppendAs<int32_t>(value, data);
    case TRITONSERVER_TYPE_UINT32:
      return AppendAs<uint32_t>(value, data);
    case TRITONSERVER_TYPE_INT64:
      return AppendAs<int64_t>(value, data);
    case TRITONSERVER_TYPE_UINT64:
      return AppendAs<uint64_t>(value, data);
    case TRITONSERVER_TYPE_FP32:
      return AppendAs<float>(value, data);
    case TRITONSERVER_TYPE_FP64:
      return AppendAs<double>(value, data);
    default:
      return false;
  }
}

Result<http::InputTensor> NewTensor(const LlmInput& input, size_t num_elements, size_t num_bytes) {
  http::InputTensor tensor;
  tensor.name = input.name;
  tensor.datatype = input.datatype;
  NEREID_ASSIGN_OR_RETURN(const std::vector<int64_t> shape,
                          http::FillShape(input, static_cast<int64_t>(num_elements)));
  tensor.shape.assign(shape);
  tensor.parsed = http::ByteBuffer(num_bytes);
  return tensor;
}

}  // namespace

Status InputWriter::AddTexts(std::string_view name, std::span<const std::string_view> texts) {
  const LlmInput& input = *model_.FindInput(name);
  if (texts.empty()) return Status::Ok();
  if (input.datatype != TRITONSERVER_TYPE_BYTES) {
    return InvalidArgError("input '", name, "' of model '", model_.name, "': expected BYTES, got ",
                           http::DataTypeName(input.datatype));
  }
  size_t num_bytes = 0;
  for (const std::string_view text : texts) num_bytes += sizeof(uint32_t) + text.size();
  NEREID_ASSIGN_OR_RETURN(http::InputTensor tensor, NewTensor(input, texts.size(), num_bytes));
  for (const std::string_view text : texts) {
    if (text.size() > std::numeric_limits<uint32_t>::max()) {
      return InvalidArgError("input '", name, "': a text of ", text.size(), " bytes is too long");
    }
    AppendAs<uint32_t>(static_cast<int64_t>(text.size()), tensor.parsed);
    tensor.parsed.Append(text);
  }
  inputs_.push_back(std::move(tensor));
  return Status::Ok();
}

template <typename T>
Status InputWriter::AddValues(std::string_view name, std::span<const T> values) {
  const LlmInput& input = *model_.FindInput(name);
  if (values.empty()) return Status::Ok();
  NEREID_ASSIGN_OR_RETURN(http::InputTensor tensor,
                          NewTensor(input, values.size(), values.size() * sizeof(int64_t)));
  for (const T value : values) {
    if (AppendValue(value, input.datatype, tensor.parsed)) continue;
    return InvalidArgError("input '", name, "' of model '", model_.name, "': ", value,
                           " is no value of type ", http::DataTypeName(input.datatype));
  }
  inputs_.push_back(std::move(tensor));
  return Status::Ok();
}

Status InputWriter::AddMatrix(std::string_view name, std::span<const float> values,
                              int64_t num_columns) {
  const LlmInput& input = *model_.FindInput(name);
  const size_t num_dims = input.shape.size();
  if (input.datatype != TRITONSERVER_TYPE_FP32 || num_dims < 2) {
    return InvalidArgError("input '", name, "' of model '", model_.name,
                           "': expected FP32 with two dims, got ",
                           http::DataTypeName(input.datatype), " with ", num_dims);
  }
  std::vector<int64_t> shape(num_dims, 1);
  shape[num_dims - 2] = static_cast<int64_t>(values.size()) / num_columns;
  shape[num_dims - 1] = num_columns;
  http::InputTensor tensor;
  tensor.name = name;
  tensor.datatype = input.datatype;
  tensor.shape.assign(shape);
  tensor.parsed = http::ByteBuffer(values.size_bytes());
  tensor.parsed.Append({reinterpret_cast<const char*>(values.data()), values.size_bytes()});
  inputs_.push_back(std::move(tensor));
  return Status::Ok();
}

Status InputWriter::AddEmpty(std::string_view name) {
  const LlmInput& input = *model_.FindInput(name);
  std::vector<int64_t> shape(input.shape.size(), 1);
  if (!shape.empty()) shape.back() = 0;
  http::InputTensor tensor;
  tensor.name = name;
  tensor.datatype = input.datatype;
  tensor.shape.assign(shape);
  inputs_.push_back(std::move(tensor));
  return Status::Ok();
}

Status InputWriter::AddIntegers(std::string_view name, std::span<const int64_t> values) {
  return AddValues<int64_t>(name, values);
}

Status InputWriter::AddNumbers(std::string_view name, std::span<const double> values) {
  return AddValues<double>(name, values);
}

}  // namespace nereid::openai
