// Parses JSON arrays: one element reader per data type, and one reader for the nesting.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <limits>
#include <optional>
#include <type_traits>
#include <vector>

#include "host/frontend/http/bodies/data_type.h"
#include "host/frontend/http/bodies/tensor_json.h"

namespace nereid::http {
namespace {

// Triton's message, which clients search for. The numbers follow it.
constexpr char kShapeMismatch[] =
    "Unable to parse 'data': Shape does not match true shape of 'data' field: ";

constexpr size_t kUsualStringBytes = 16;  // with its length

template <typename T>
void AppendRaw(ByteBuffer& data, T value) {
  data.Append({reinterpret_cast<const char*>(&value), sizeof(value)});
}

// Parses a number that from_chars rejects: too large, or so small that it rounds to zero.
template <typename T>
T ParseOutOfRange(std::string_view text) {
  const std::string copy(text);
  if constexpr (std::is_same_v<T, float>) return std::strtof(copy.c_str(), nullptr);
  return std::strtod(copy.c_str(), nullptr);
}

// The value of a number without an exponent, if the type holds its digits, read as an integer, and
// their power of ten exactly: then one division rounds as the text does. Empty for other numbers.
// The grammar of `text` has been checked.
template <typename T>
std::optional<T> ShortDecimal(std::string_view text) {
  static constexpr T kPowers[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10};
  constexpr uint64_t kMaxDigits = uint64_t{1} << std::numeric_limits<T>::digits;
  uint64_t digits = 0;
  size_t point = text.size();
  for (size_t i = text[0] == '-' ? 1 : 0; i < text.size(); ++i) {
    if (text[i] == '.') {
      point = i + 1;
    } else if (text[i] <= '9' && digits <= kMaxDigits) {
      digits = digits * 10 + static_cast<uint64_t>(text[i] - '0');
    } else {
      return std::nullopt;  // an exponent, or too many digits
    }
  }
  const size_t power = text.size() - point;
  if (digits > kMaxDigits || power >= std::size(kPowers)) return std::nullopt;
  const T value = static_cast<T>(digits) / kPowers[power];
  return text[0] == '-' ? -value : value;
}

template <typename T>
Status ReadElement(JsonReader& reader, TRITONSERVER_DataType datatype, ByteBuffer& data) {
  if (reader.Peek() != JsonKind::kNumber) return reader.Unexpected("a number");
  NEREID_ASSIGN_OR_RETURN(const JsonNumber number, reader.ReadNumber());
  const char* const end = number.text.data() + number.text.size();
  if constexpr (std::is_floating_point_v<T>) {
    if (const std::optional<T> value = ShortDecimal<T>(number.text)) {
      AppendRaw(data, *value);
      return Status::Ok();
    }
  }
  T value{};
  const auto result = std::from_chars(number.text.data(), end, value);
  if constexpr (std::is_floating_point_v<T>) {
    if (result.ec != std::errc()) value = ParseOutOfRange<T>(number.text);
    if (!std::isfinite(value)) {
      return reader.ErrorHere(number.text, " does not fit ", DataTypeName(datatype));
    }
  } else if (!number.is_integer || result.ec != std::errc() || result.ptr != end) {
    return reader.ErrorHere(number.text, " does not fit ", DataTypeName(datatype));
  }
  AppendRaw(data, value);
  return Status::Ok();
}

Status ReadBoolElement(JsonReader& reader, TRITONSERVER_DataType, ByteBuffer& data) {
  NEREID_ASSIGN_OR_RETURN(const bool value, reader.ReadBool());
  AppendRaw<uint8_t>(data, value ? 1 : 0);
  return Status::Ok();
}

Status ReadBytesElement(JsonReader& reader, TRITONSERVER_DataType, ByteBuffer& data) {
  NEREID_ASSIGN_OR_RETURN(const std::string_view text, reader.ReadTransientString());
  if (text.size() > std::numeric_limits<uint32_t>::max()) {
    return reader.ErrorHere("a string is longer than 4 GiB");
  }
  AppendRaw(data, static_cast<uint32_t>(text.size()));
  data.Append(text);
  return Status::Ok();
}

using ElementReader = Status (*)(JsonReader&, TRITONSERVER_DataType, ByteBuffer&);

// Returns null if the type has no JSON form.
ElementReader ElementReaderFor(TRITONSERVER_DataType datatype) {
  switch (datatype) {
    case TRITONSERVER_TYPE_BOOL:
      return &ReadBoolElement;
    case TRITONSERVER_TYPE_UINT8:
      return &ReadElement<uint8_t>;
    case TRITONSERVER_TYPE_UINT16:
      return &ReadElement<uint16_t>;
    case TRITONSERVER_TYPE_UINT32:
      return &ReadElement<uint32_t>;
    case TRITONSERVER_TYPE_UINT64:
      return &ReadElement<uint64_t>;
    case TRITONSERVER_TYPE_INT8:
      return &ReadElement<int8_t>;
    case TRITONSERVER_TYPE_INT16:
      return &ReadElement<int16_t>;
    case TRITONSERVER_TYPE_INT32:
      return &ReadElement<int32_t>;
    case TRITONSERVER_TYPE_INT64:
      return &ReadElement<int64_t>;
    case TRITONSERVER_TYPE_FP32:
      return &ReadElement<float>;
    case TRITONSERVER_TYPE_FP64:
      return &ReadElement<double>;
    case TRITONSERVER_TYPE_BYTES:
      return &ReadBytesElement;
    default:
      return nullptr;
  }
}

Status NoJsonForm(TRITONSERVER_DataType datatype) {
  return InvalidArgError("receiving ", DataTypeName(datatype),
                         " data via JSON is not supported. Please use the binary data format");
}

std::string ShapeText(std::span<const int64_t> shape) {
  std::string text = "[";
  for (const int64_t dim : shape) text += StrCat(text.size() == 1 ? "" : ",", dim);
  return text + "]";
}

std::vector<int64_t> DropUnitDims(std::span<const int64_t> shape) {
  std::vector<int64_t> dims;
  for (const int64_t dim : shape) {
    if (dim != 1) dims.push_back(dim);
  }
  return dims;
}

// Reads nested arrays. Invariant: dims_[i] is the length of every complete array at depth i.
class NestedArrayReader {
 public:
  NestedArrayReader(JsonReader& reader, TRITONSERVER_DataType datatype, int64_t num_expected,
                    ByteBuffer& data)
      : reader_(reader),
        datatype_(datatype),
        read_element_(ElementReaderFor(datatype)),
        num_expected_(num_expected),
        data_(data) {}

  Status ReadLevel(size_t level) {
    int64_t length = 0;
    NEREID_RETURN_IF_ERROR(reader_.ReadArray([&]() -> Status {
      ++length;
      if (reader_.Peek() == JsonKind::kArray) {
        if (level + 1 > leaf_level_) return reader_.ErrorHere("ragged nesting of 'data'");
        return ReadLevel(level + 1);
      }
      if (leaf_level_ == kUnknown && level >= dims_.size()) leaf_level_ = level;
      if (level != leaf_level_) return reader_.ErrorHere("ragged nesting of 'data'");
      if (++num_elements_ > num_expected_) return TooMany();
      return read_element_(reader_, datatype_, data_);
    }));
    if (level >= dims_.size()) dims_.resize(level + 1, kUnknownDim);
    if (dims_[level] == kUnknownDim) dims_[level] = length;
    if (dims_[level] != length) return reader_.ErrorHere("ragged nesting of 'data'");
    return Status::Ok();
  }

  Status CheckShape(std::span<const int64_t> shape) const {
    if (num_elements_ != num_expected_) {
      return InvalidArgError(kShapeMismatch, num_elements_, " elements, shape ", ShapeText(shape),
                             " needs ", num_expected_);
    }
    if (dims_.size() > 1 && DropUnitDims(dims_) != DropUnitDims(shape)) {
      return InvalidArgError("'data' is nested as ", ShapeText(dims_), ", shape is ",
                             ShapeText(shape));
    }
    return Status::Ok();
  }

 private:
  static constexpr size_t kUnknown = std::numeric_limits<size_t>::max();
  static constexpr int64_t kUnknownDim = -1;

  Status TooMany() const {
    return InvalidArgError(kShapeMismatch, "more than the ", num_expected_,
                           " elements of the tensor's shape");
  }

  JsonReader& reader_;
  const TRITONSERVER_DataType datatype_;
  const ElementReader read_element_;
  const int64_t num_expected_;
  ByteBuffer& data_;
  int64_t num_elements_ = 0;
  size_t leaf_level_ = kUnknown;  // the depth of the elements
  std::vector<int64_t> dims_;
};

}  // namespace

Status ReadJsonTensor(JsonReader& reader, TRITONSERVER_DataType datatype,
                      std::span<const int64_t> shape, ByteBuffer& data) {
  if (ElementReaderFor(datatype) == nullptr) return NoJsonForm(datatype);
  const std::optional<int64_t> count = ElementCount(shape);
  // Each element takes at least a digit and a comma. Memory is not allocated for a shape that the
  // text cannot fill.
  if (!count || static_cast<uint64_t>(*count) > reader.bytes_left()) {
    return InvalidArgError(kShapeMismatch, "fewer elements than shape ", ShapeText(shape),
                           " needs");
  }
  // Exact, except for BYTES, whose memory grows with the strings that are read.
  const size_t size_bytes = datatype == TRITONSERVER_TYPE_BYTES
                                ? std::min(*count * kUsualStringBytes, reader.bytes_left())
                                : *count * ElementBytes(datatype);
  data = ByteBuffer();
  if (!data.TryReserve(size_bytes)) {
    return UnavailableError("cannot allocate ", size_bytes, " bytes for a tensor");
  }
  NestedArrayReader nested(reader, datatype, *count, data);
  NEREID_RETURN_IF_ERROR(nested.ReadLevel(0));
  return nested.CheckShape(shape);
}

Status ReadJsonElement(JsonReader& reader, TRITONSERVER_DataType datatype, ByteBuffer& data) {
  const ElementReader read_element = ElementReaderFor(datatype);
  return read_element == nullptr ? NoJsonForm(datatype) : read_element(reader, datatype, data);
}

}  // namespace nereid::http
