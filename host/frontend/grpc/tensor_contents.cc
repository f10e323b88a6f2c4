// See tensor_contents.h.
#include "host/frontend/grpc/tensor_contents.h"

#include "nereid/bytes_codec.h"

namespace nereid {
namespace {

using Contents = inference::InferTensorContents;

// Names for error messages.
struct TensorName {
  std::string_view input;
  std::string_view model;
};

enum Field : unsigned {
  kBoolField = 1u << 0,
  kIntField = 1u << 1,
  kInt64Field = 1u << 2,
  kUintField = 1u << 3,
  kUint64Field = 1u << 4,
  kFp32Field = 1u << 5,
  kFp64Field = 1u << 6,
  kBytesField = 1u << 7,
};

// The field that carries values of `datatype`; 0 if none does (FP16, BF16).
unsigned FieldOf(DataType datatype) {
  switch (datatype) {
    case DataType::kBool:
      return kBoolField;
    case DataType::kInt8:
    case DataType::kInt16:
    case DataType::kInt32:
      return kIntField;
    case DataType::kInt64:
      return kInt64Field;
    case DataType::kUint8:
    case DataType::kUint16:
    case DataType::kUint32:
      return kUintField;
    case DataType::kUint64:
      return kUint64Field;
    case DataType::kFp32:
      return kFp32Field;
    case DataType::kFp64:
      return kFp64Field;
    case DataType::kBytes:
      return kBytesField;
    default:
      return 0;
  }
}

unsigned FilledFields(const Contents& contents) {
  return (contents.bool_contents_size() > 0 ? kBoolField : 0u) |
         (contents.int_contents_size() > 0 ? kIntField : 0u) |
         (contents.int64_contents_size() > 0 ? kInt64Field : 0u) |
         (contents.uint_contents_size() > 0 ? kUintField : 0u) |
         (contents.uint64_contents_size() > 0 ? kUint64Field : 0u) |
         (contents.fp32_contents_size() > 0 ? kFp32Field : 0u) |
         (contents.fp64_contents_size() > 0 ? kFp64Field : 0u) |
         (contents.bytes_contents_size() > 0 ? kBytesField : 0u);
}

// The data type that Triton names for the lowest of `fields`.
const char* TypeOfField(unsigned fields) {
  if (fields & kBoolField) return "BOOL";
  if (fields & kIntField) return "INT32";
  if (fields & kInt64Field) return "INT64";
  if (fields & kUintField) return "UINT32";
  if (fields & kUint64Field) return "UINT64";
  if (fields & kFp32Field) return "FP32";
  if (fields & kFp64Field) return "FP64";
  return "BYTES";
}

template <typename T>
std::string_view AsBytes(const google::protobuf::RepeatedField<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

template <typename Narrow, typename Wide>
Result<std::string_view> NarrowIntegers(const google::protobuf::RepeatedField<Wide>& values,
                                        DataType datatype, TensorName name, InputStorage& storage) {
  std::string bytes(values.size() * sizeof(Narrow), '\0');
  auto* out = reinterpret_cast<Narrow*>(bytes.data());
  for (const Wide value : values) {
    *out = static_cast<Narrow>(value);
    if (static_cast<Wide>(*out++) != value) {
      return InvalidArgError("input '", name.input, "' for model '", name.model, "': value ", value,
                             " does not fit ", Name(datatype));
    }
  }
  return std::string_view(storage.emplace_back(std::move(bytes)));
}

Result<std::string_view> StringsAsBytes(const Contents& contents, InputStorage& storage) {
  NEREID_ASSIGN_OR_RETURN(std::string bytes, EncodeBytes(contents.bytes_contents()));
  return std::string_view(storage.emplace_back(std::move(bytes)));
}

}  // namespace

Result<std::string_view> ContentsAsBytes(const Contents& contents, DataType datatype,
                                         std::string_view input, std::string_view model,
                                         InputStorage& storage) {
  const TensorName name{input, model};
  const unsigned filled = FilledFields(contents);
  const unsigned expected = filled & FieldOf(datatype);
  if (const unsigned unexpected = filled & ~expected; unexpected != 0) {
    // As in Triton, the first non-empty field decides, which is the lowest bit.
    const unsigned first_unexpected = unexpected & -unexpected;
    if (expected != 0 && expected < first_unexpected) {
      return InvalidArgError("unexpected explicit tensor data for input tensor '", input,
                             "' for model '", model, "', binary data was already supplied.");
    }
    return InvalidArgError("unexpected explicit tensor data for input tensor '", input,
                           "' for model '", model, "' of type '", TypeOfField(unexpected),
                           "', expected datatype '", Name(datatype), "'");
  }
  switch (datatype) {
    case DataType::kBool:
      return AsBytes(contents.bool_contents());
    case DataType::kInt8:
      return NarrowIntegers<int8_t>(contents.int_contents(), datatype, name, storage);
    case DataType::kInt16:
      return NarrowIntegers<int16_t>(contents.int_contents(), datatype, name, storage);
    case DataType::kInt32:
      return AsBytes(contents.int_contents());
    case DataType::kInt64:
      return AsBytes(contents.int64_contents());
    case DataType::kUint8:
      return NarrowIntegers<uint8_t>(contents.uint_contents(), datatype, name, storage);
    case DataType::kUint16:
      return NarrowIntegers<uint16_t>(contents.uint_contents(), datatype, name, storage);
    case DataType::kUint32:
      return AsBytes(contents.uint_contents());
    case DataType::kUint64:
      return AsBytes(contents.uint64_contents());
    case DataType::kFp32:
      return AsBytes(contents.fp32_contents());
    case DataType::kFp64:
      return AsBytes(contents.fp64_contents());
    case DataType::kBytes:
      return StringsAsBytes(contents, storage);
    default:
      return std::string_view();
  }
}

}  // namespace nereid
