#include "backends/python_like_scripted/tensor_codec.h"

#include <cstring>
#include <string>

#include "nereid/bytes_codec.h"
#include "nereid/shape.h"

namespace nereid::scripted {
namespace {

constexpr uint32_t kMaxDims = 1024;

void WriteHead(const char* name, uint32_t datatype, std::span<const int64_t> shape,
               MarshalWriter& writer) {
  writer.Tuple(4);
  writer.Text(name);
  writer.Int(datatype);
  writer.Tuple(static_cast<uint32_t>(shape.size()));
  for (const int64_t dim : shape) writer.Int(dim);
}

void WritePlace(const Block& block, MarshalWriter& writer) {
  writer.Tuple(2);
  writer.Uint(block.offset);
  writer.Uint(block.size_bytes);
}

// The element count and the bytes agree, whatever the model did.
Status CheckSize(const PackedTensor& tensor) {
  const std::string_view bytes = tensor.bytes();
  if (tensor.datatype == DataType::kBytes) {
    NEREID_ASSIGN_OR_RETURN(const size_t count, ElementCount(tensor.shape));
    const std::span data(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size());
    return DecodeBytes(data, count).status();
  }
  const size_t element_bytes = ByteSize(tensor.datatype);
  if (element_bytes == 0) return InvalidArgError("type ", static_cast<uint32_t>(tensor.datatype));
  NEREID_ASSIGN_OR_RETURN(const size_t count, ElementCount(tensor.shape, element_bytes));
  if (count * element_bytes == bytes.size()) return {};
  return InvalidArgError("expected ", count * element_bytes, " bytes for ", Name(tensor.datatype),
                         " ", ToString(tensor.shape), ", got ", bytes.size());
}

Status SetParameter(const PackedParameter& parameter, Response& response) {
  const std::string name(parameter.name);
  switch (parameter.kind) {
    case PackedParameter::Kind::kText:
      return response.SetParameter(name.c_str(), std::string(parameter.text));
    case PackedParameter::Kind::kInt:
      return response.SetParameter(name.c_str(), parameter.number);
    case PackedParameter::Kind::kBool:
      return response.SetParameter(name.c_str(), parameter.number != 0);
    case PackedParameter::Kind::kDouble:
      return response.SetParameter(name.c_str(), parameter.real);
  }
  return {};
}

}  // namespace

void PackedResponse::Release() const {
  for (const PackedTensor& output : outputs) {
    if (output.block.has_value() && !output.is_handed_back) output.block->Release();
  }
}

Status WriteTensor(const TensorView& tensor, SharedRegion& region, std::vector<Block>& blocks,
                   MarshalWriter& writer) {
  WriteHead(tensor.name(), static_cast<uint32_t>(tensor.datatype()), tensor.shape(), writer);
  const size_t size_bytes = tensor.size_bytes();
  if (size_bytes <= kInlineBytes) {
    char* place = writer.BytesPlace(static_cast<uint32_t>(size_bytes));
    return tensor.CopyTo({reinterpret_cast<std::byte*>(place), size_bytes});
  }
  NEREID_ASSIGN_OR_RETURN(const Block block, region.Allocate(size_bytes));
  blocks.push_back(block);
  NEREID_RETURN_IF_ERROR(tensor.CopyTo({block.data(), size_bytes}));
  WritePlace(block, writer);
  return {};
}

void WriteTensor(const char* name, TRITONSERVER_DataType datatype, std::span<const int64_t> shape,
                 std::string_view bytes, const Block* block, MarshalWriter& writer) {
  WriteHead(name, datatype, shape, writer);
  if (block != nullptr) {
    WritePlace(*block, writer);
  } else {
    writer.Bytes(bytes);
  }
}

PackedTensor ReadTensor(MarshalReader& reader, SharedRegion& region, SharedRegion* to_worker) {
  PackedTensor tensor;
  reader.TupleOf(4);
  tensor.name = reader.Text();
  const int64_t datatype = reader.Int();
  if (datatype < 1 || datatype > TRITONSERVER_TYPE_BF16) {
    reader.Fail(StrCat("tensor '", tensor.name, "' has type ", datatype));
  }
  tensor.datatype = static_cast<DataType>(datatype);
  const uint32_t num_dims = reader.Tuple();
  if (num_dims > kMaxDims) reader.Fail(StrCat("a shape has ", num_dims, " dimensions"));
  for (uint32_t i = 0; i < num_dims && reader.status().ok(); ++i) {
    tensor.shape.push_back(reader.Int());
  }
  if (reader.Next() == '(') {
    tensor.is_handed_back = to_worker != nullptr && reader.Tuple() == 3;
    if (to_worker == nullptr) reader.TupleOf(2);
    const auto offset = static_cast<uint64_t>(reader.Int());
    const auto size_bytes = static_cast<uint64_t>(reader.Int());
    if (tensor.is_handed_back) (void)reader.Bool();
    if (!reader.status().ok()) return tensor;
    Result<Block> block = (tensor.is_handed_back ? *to_worker : region).Find(offset, size_bytes);
    if (block.ok()) {
      tensor.block = std::move(*block);
    } else {
      reader.Fail(block.status().message());
    }
  } else {
    tensor.inline_bytes = reader.Bytes();
  }
  if (!reader.status().ok()) return tensor;
  if (Status size = CheckSize(tensor); !size.ok()) {
    reader.Fail(StrCat("tensor '", tensor.name, "': ", size.message()));
  }
  return tensor;
}

std::vector<PackedParameter> ReadParameters(MarshalReader& reader) {
  std::vector<PackedParameter> parameters;
  const uint32_t count = reader.Tuple();
  for (uint32_t i = 0; i < count && reader.status().ok(); ++i) {
    PackedParameter& parameter = parameters.emplace_back();
    reader.TupleOf(2);
    parameter.name = reader.Text();
    switch (reader.Next()) {
      case 'u':
        parameter.text = reader.Text();
        break;
      case 'T':
      case 'F':
        parameter.kind = PackedParameter::Kind::kBool;
        parameter.number = reader.Bool() ? 1 : 0;
        break;
      case 'g':
        parameter.kind = PackedParameter::Kind::kDouble;
        parameter.real = reader.Float();
        break;
      default:
        parameter.kind = PackedParameter::Kind::kInt;
        parameter.number = reader.Int();
    }
  }
  return parameters;
}

PackedResponse ReadResponse(MarshalReader& reader, SharedRegion& region, SharedRegion* to_worker) {
  PackedResponse response;
  reader.TupleOf(3);
  const uint32_t count = reader.Tuple();
  for (uint32_t i = 0; i < count && reader.status().ok(); ++i) {
    response.outputs.push_back(ReadTensor(reader, region, to_worker));
  }
  if (!reader.TakeNone()) {
    reader.TupleOf(2);
    const int64_t code = reader.Int();
    const std::string_view text = reader.Text();
    if (code < 0 || code > TRITONSERVER_ERROR_CANCELLED) {
      reader.Fail(StrCat("an error has code ", code));
    }
    response.error = Status(static_cast<StatusCode>(code), std::string(text));
  }
  response.parameters = ReadParameters(reader);
  return response;
}

Status FillResponse(const PackedResponse& packed, Response& response) {
  for (const PackedTensor& output : packed.outputs) {
    const std::string name(output.name);
    if (!response.Wants(name)) continue;
    const std::string_view bytes = output.bytes();
    NEREID_ASSIGN_OR_RETURN(
        const std::span<std::byte> target,
        response.OutputBytes(name.c_str(), output.datatype, output.shape, bytes.size()));
    if (!bytes.empty()) std::memcpy(target.data(), bytes.data(), bytes.size());
  }
  for (const PackedParameter& parameter : packed.parameters) {
    NEREID_RETURN_IF_ERROR(SetParameter(parameter, response));
  }
  return {};
}

}  // namespace nereid::scripted
