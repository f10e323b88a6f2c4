#include "backends/python_like_scripted/tensor_codec.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "nereid/bytes_codec.h"
#include "nereid/tensor_view.h"

namespace nereid::python {
namespace {

constexpr uint32_t kMaxDims = 1024;

void WriteTensorHeader(const char* name, uint32_t datatype, std::span<const int64_t> shape,
                       MarshalWriter& writer) {
  writer.Tuple(4);
  writer.Text(name);
  writer.Int(datatype);
  writer.Tuple(static_cast<uint32_t>(shape.size()));
  for (const int64_t dim : shape) writer.Int(dim);
}

void WriteLocation(const SharedBlock& block, MarshalWriter& writer) {
  writer.Tuple(2);
  writer.Uint(block.offset);
  writer.Uint(block.size_bytes);
}

// Checks that element count and byte size agree, whatever the model sent.
Status CheckSize(const PackedTensor& tensor) {
  const std::string_view bytes = tensor.bytes();
  const uint64_t size_bytes = tensor.gpu.has_value() ? tensor.gpu->size_bytes : bytes.size();
  if (tensor.datatype == DataType::kBytes) {
    if (tensor.gpu.has_value()) return InvalidArgError("a BYTES tensor cannot be in GPU memory");
    NEREID_ASSIGN_OR_RETURN(const size_t count, ElementCount(tensor.shape));
    const std::span data(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size());
    return DecodeBytes(data, count).status();
  }
  const size_t element_bytes = ByteSize(tensor.datatype);
  if (element_bytes == 0) return InvalidArgError("type ", static_cast<uint32_t>(tensor.datatype));
  NEREID_ASSIGN_OR_RETURN(const size_t count, ElementCount(tensor.shape, element_bytes));
  if (count * element_bytes == size_bytes) return {};
  return InvalidArgError("expected ", count * element_bytes, " bytes for ", Name(tensor.datatype),
                         " ", ToString(tensor.shape), ", got ", size_bytes);
}

Status NoDriver(const char* name) {
  return UnsupportedError("tensor '", name, "' lies in memory of a GPU: no CUDA driver was found");
}

// Copies all bytes of the tensor to host memory.
Status CopyBuffers(const TensorView& tensor, std::byte* target) {
  for (const InputBufferView& piece : tensor.buffers()) {
    if (piece.bytes.empty()) continue;
    if (piece.memory_type == TRITONSERVER_MEMORY_GPU) {
      const CudaDriver* const driver = CudaDriver::Get();
      if (driver == nullptr) return NoDriver(tensor.name());
      NEREID_RETURN_IF_ERROR(
          driver->Copy(piece.memory_type_id, target, piece.bytes.data(), piece.bytes.size()));
    } else {
      std::memcpy(target, piece.bytes.data(), piece.bytes.size());
    }
    target += piece.bytes.size();
  }
  return {};
}

bool IsOnOneGpu(const TensorView& tensor) {
  const auto pieces = tensor.buffers();
  return tensor.size_bytes() != 0 && tensor.datatype() != DataType::kBytes &&
         std::all_of(pieces.begin(), pieces.end(), [&](const InputBufferView& piece) {
           return piece.memory_type == TRITONSERVER_MEMORY_GPU &&
                  piece.memory_type_id == pieces.front().memory_type_id;
         });
}

// (device, handle, offset, size, token)
void WriteGpuLocation(const GpuBlock& block, MarshalWriter& writer) {
  writer.Tuple(5);
  writer.Int(block.range.device);
  writer.Bytes({block.range.handle.data(), block.range.handle.size()});
  writer.Uint(block.range.offset);
  writer.Uint(block.range.size_bytes);
  writer.Uint(block.token.offset);
}

// Copies the input to memory of the region: the input's own memory may belong to another process
// and cannot be shared further.
Status WriteOnGpu(const TensorView& tensor, GpuRegion& region, std::vector<SharedBlock>& blocks,
                  MarshalWriter& writer) {
  const CudaDriver* const driver = CudaDriver::Get();
  if (driver == nullptr) return NoDriver(tensor.name());
  const int64_t device = tensor.buffers().front().memory_type_id;
  NEREID_ASSIGN_OR_RETURN(const GpuBlock block, region.Allocate(device, tensor.size_bytes()));
  blocks.push_back(block.token);
  std::byte* target = block.data;
  for (const InputBufferView& piece : tensor.buffers()) {
    NEREID_RETURN_IF_ERROR(driver->Copy(device, target, piece.bytes.data(), piece.bytes.size()));
    target += piece.bytes.size();
  }
  WriteGpuLocation(block, writer);
  return {};
}

// Encodes a tensor that was received into a posted buffer: (offset, size), or for a part of a block
// (offset, size, block offset, block size). Returns false if it was not.
bool WritePostedInput(const TensorView& tensor, PostedInputBuffers& posted_input_buffers,
                      std::vector<SharedBlock>& blocks, MarshalWriter& writer) {
  if (tensor.buffers().size() != 1) return false;
  const InputBufferView& piece = tensor.buffers().front();
  if (piece.memory_type == TRITONSERVER_MEMORY_GPU) return false;
  const std::optional<SharedBlock> block = posted_input_buffers.Find(piece.bytes);
  if (!block.has_value()) return false;
  const auto begin = static_cast<uint64_t>(piece.bytes.data() - block->data());
  if (begin % kBlockHeaderBytes != 0) return false;  // the worker expects aligned tensors
  blocks.push_back({block->mapping, block->offset, piece.bytes.size()});
  block->Use();
  const bool is_whole = piece.bytes.size() == block->size_bytes;
  writer.Tuple(is_whole ? 2 : 4);
  writer.Uint(block->offset + begin);
  writer.Uint(piece.bytes.size());
  if (is_whole) return true;
  writer.Uint(block->offset);
  writer.Uint(block->size_bytes);
  return true;
}

// (offset, size) in the region that the worker writes; (offset, size, True) in the one that the
// host writes; or (device, handle, offset, size) in GPU memory.
void ReadLocation(MarshalReader& reader, SharedRegion& region, SharedRegion* to_worker,
                  PackedTensor& tensor) {
  const uint32_t count = reader.Tuple();
  if (count != 2 && count != 4 && (to_worker == nullptr || count != 3)) {
    return reader.Fail(StrCat("the location of a tensor has ", count, " elements"));
  }
  if (count == 4) {
    GpuRange& range = tensor.gpu.emplace();
    range.device = reader.Int();
    const std::string_view handle = reader.Bytes();
    range.offset = static_cast<uint64_t>(reader.Int());
    range.size_bytes = static_cast<uint64_t>(reader.Int());
    if (handle.size() != range.handle.size()) {
      return reader.Fail(StrCat("a CUDA IPC handle has ", handle.size(), " bytes, expected ",
                                range.handle.size()));
    }
    std::copy(handle.begin(), handle.end(), range.handle.begin());
    return;
  }
  tensor.is_host_block = count == 3;
  const auto offset = static_cast<uint64_t>(reader.Int());
  const auto size_bytes = static_cast<uint64_t>(reader.Int());
  if (tensor.is_host_block) (void)reader.Bool();
  if (!reader.status().ok()) return;
  Result<SharedBlock> block = (tensor.is_host_block ? *to_worker : region).Find(offset, size_bytes);
  if (!block.ok()) return reader.Fail(block.status().message());
  tensor.block = std::move(*block);
}

struct OutputDestination {
  void* base = nullptr;
  TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
  int64_t type_id = 0;
};

Result<TRITONBACKEND_Output*> AddOutput(const PackedTensor& output, Response& response) {
  TRITONBACKEND_Output* handle = nullptr;
  const std::string name(output.name);
  NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ResponseOutput(
      response.handle(), &handle, name.c_str(), ToC(output.datatype), output.shape.data(),
      static_cast<uint32_t>(output.shape.size()))));
  return handle;
}

// Gets the client's memory for an output; prefers the GPU for data in GPU memory.
Result<OutputDestination> MemoryOf(const PackedTensor& output, size_t size_bytes,
                                   TRITONBACKEND_Output* handle) {
  OutputDestination memory;
  if (output.gpu.has_value()) {
    memory.type = TRITONSERVER_MEMORY_GPU;
    memory.type_id = output.gpu->device;
  }
  NEREID_RETURN_IF_ERROR(ToStatus(
      TRITONBACKEND_OutputBuffer(handle, &memory.base, size_bytes, &memory.type, &memory.type_id)));
  return memory;
}

Status FillOutput(const PackedResponse& packed, PackedTensor& output, Response& response) {
  NEREID_ASSIGN_OR_RETURN(TRITONBACKEND_Output* const handle, AddOutput(output, response));
  if (packed.MayLease(output)) {
    NEREID_ASSIGN_OR_RETURN(output.is_leased, packed.leased_outputs->TryLease(
                                                  handle, *output.block, output.is_host_block));
    if (output.is_leased) return {};
  }
  GpuRegion* const gpu = packed.gpu;
  const std::string_view bytes = output.bytes();
  const uint64_t size_bytes = output.gpu.has_value() ? output.gpu->size_bytes : bytes.size();
  NEREID_ASSIGN_OR_RETURN(const OutputDestination memory, MemoryOf(output, size_bytes, handle));
  if (size_bytes == 0) return {};
  if (output.gpu.has_value()) {
    if (gpu == nullptr) return InternalError("output '", output.name, "' has no GPU's memory");
    return gpu->CopyFrom(*output.gpu, memory.base);
  }
  if (memory.type == TRITONSERVER_MEMORY_GPU) {
    const CudaDriver* const driver = CudaDriver::Get();
    if (driver == nullptr) return NoDriver(std::string(output.name).c_str());
    return driver->Copy(memory.type_id, memory.base, bytes.data(), bytes.size());
  }
  std::memcpy(memory.base, bytes.data(), bytes.size());
  return {};
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
    if (output.block.has_value() && !output.is_host_block && !output.is_leased) {
      output.block->Release();
    }
  }
}

// BYTES outputs are not leased: they are checked once and read again later, and the worker could
// change their lengths in between.
bool PackedResponse::MayLease(const PackedTensor& output) const {
  return leased_outputs != nullptr && output.block.has_value() &&
         output.datatype != DataType::kBytes;
}

Status WriteTensor(const TensorView& tensor, SharedRegion& region,
                   PostedInputBuffers& posted_input_buffers, GpuRegion* gpu,
                   std::vector<SharedBlock>& blocks, MarshalWriter& writer) {
  WriteTensorHeader(tensor.name(), static_cast<uint32_t>(tensor.datatype()), tensor.shape(),
                    writer);
  const size_t size_bytes = tensor.size_bytes();
  if (gpu != nullptr && IsOnOneGpu(tensor)) return WriteOnGpu(tensor, *gpu, blocks, writer);
  if (size_bytes <= kMaxInlineBytes) {
    char* target = writer.AppendBytes(static_cast<uint32_t>(size_bytes));
    return CopyBuffers(tensor, reinterpret_cast<std::byte*>(target));
  }
  if (WritePostedInput(tensor, posted_input_buffers, blocks, writer)) return {};
  NEREID_ASSIGN_OR_RETURN(const SharedBlock block, region.Allocate(size_bytes));
  blocks.push_back(block);
  NEREID_RETURN_IF_ERROR(CopyBuffers(tensor, block.data()));
  WriteLocation(block, writer);
  return {};
}

void WriteTensor(const char* name, TRITONSERVER_DataType datatype, std::span<const int64_t> shape,
                 std::string_view bytes, const SharedBlock* block, MarshalWriter& writer) {
  WriteTensorHeader(name, datatype, shape, writer);
  if (block != nullptr) {
    WriteLocation(*block, writer);
  } else {
    writer.Bytes(bytes);
  }
}

void WriteGpuTensor(const char* name, TRITONSERVER_DataType datatype,
                    std::span<const int64_t> shape, const GpuBlock& block, MarshalWriter& writer) {
  WriteTensorHeader(name, datatype, shape, writer);
  WriteGpuLocation(block, writer);
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
    ReadLocation(reader, region, to_worker, tensor);
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

Status FillResponse(PackedResponse& packed, Response& response) {
  for (PackedTensor& output : packed.outputs) {
    if (!response.IsRequested(output.name)) continue;
    NEREID_RETURN_IF_ERROR(FillOutput(packed, output, response));
  }
  for (const PackedParameter& parameter : packed.parameters) {
    NEREID_RETURN_IF_ERROR(SetParameter(parameter, response));
  }
  return {};
}

}  // namespace nereid::python
