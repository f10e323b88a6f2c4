#include "host/frontend/tracing/tensor_text.h"

#include <charconv>
#include <cstdint>
#include <cstring>

namespace nereid {
namespace {

void Append(std::string& text, double value) {
  char digits[32];
  text.append(digits, std::to_chars(digits, digits + sizeof(digits), value).ptr);
}
void Append(std::string& text, float value) {
  char digits[32];
  text.append(digits, std::to_chars(digits, digits + sizeof(digits), value).ptr);
}
template <typename Int>
void Append(std::string& text, Int value) {
  text += std::to_string(value);
}

// Consumes one element of `data`; false if no complete element is left.
template <typename T>
bool TakeElement(std::string_view& data, std::string& text) {
  T value;
  if (data.size() < sizeof(value)) return false;
  std::memcpy(&value, data.data(), sizeof(value));
  data.remove_prefix(sizeof(value));
  Append(text, value);
  return true;
}

bool TakeBool(std::string_view& data, std::string& text) {
  text += data.front() != 0 ? '1' : '0';
  data.remove_prefix(1);
  return true;
}

bool TakeBytes(std::string_view& data, std::string& text) {
  uint32_t size = 0;
  if (data.size() < sizeof(size)) return false;
  std::memcpy(&size, data.data(), sizeof(size));
  data.remove_prefix(sizeof(size));
  if (data.size() < size) return false;
  text += data.substr(0, size);
  data.remove_prefix(size);
  return true;
}

// FP16 and BF16 are printed as the integer value of their bits.
bool Take(TRITONSERVER_DataType datatype, std::string_view& data, std::string& text) {
  switch (datatype) {
    case TRITONSERVER_TYPE_BOOL:
      return TakeBool(data, text);
    case TRITONSERVER_TYPE_UINT8:
      return TakeElement<uint8_t>(data, text);
    case TRITONSERVER_TYPE_UINT16:
    case TRITONSERVER_TYPE_FP16:
    case TRITONSERVER_TYPE_BF16:
      return TakeElement<uint16_t>(data, text);
    case TRITONSERVER_TYPE_UINT32:
      return TakeElement<uint32_t>(data, text);
    case TRITONSERVER_TYPE_UINT64:
      return TakeElement<uint64_t>(data, text);
    case TRITONSERVER_TYPE_INT8:
      return TakeElement<int8_t>(data, text);
    case TRITONSERVER_TYPE_INT16:
      return TakeElement<int16_t>(data, text);
    case TRITONSERVER_TYPE_INT32:
      return TakeElement<int32_t>(data, text);
    case TRITONSERVER_TYPE_INT64:
      return TakeElement<int64_t>(data, text);
    case TRITONSERVER_TYPE_FP32:
      return TakeElement<float>(data, text);
    case TRITONSERVER_TYPE_FP64:
      return TakeElement<double>(data, text);
    case TRITONSERVER_TYPE_BYTES:
      return TakeBytes(data, text);
    default:
      return false;
  }
}

}  // namespace

std::string TensorText(TRITONSERVER_DataType datatype, std::string_view data, size_t max_chars) {
  std::string text;
  while (!data.empty()) {
    if (!text.empty()) text += ',';
    if (!Take(datatype, data, text)) break;
    if (text.size() <= max_chars) continue;
    text.resize(max_chars);
    return text + "...";
  }
  return text;
}

}  // namespace nereid
