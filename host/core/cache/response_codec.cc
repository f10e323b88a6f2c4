#include "host/core/cache/response_codec.h"

#include <cstring>
#include <string_view>
#include <vector>

#include "host/core/request/request_schema.h"

namespace nereid::core {
namespace {

constexpr uint64_t kMagic = 0x3143444952454e;  // "NERIDC1"

class Writer {
 public:
  explicit Writer(std::span<std::byte> target) : rest_(target) {}
  void Put(const void* data, size_t size) {
    if (size > 0) std::memcpy(rest_.data(), data, size);
    rest_ = rest_.subspan(size);
  }
  Status PutFrom(const void* data, MemoryLocation location, size_t size) {
    NEREID_RETURN_IF_ERROR(CopyMemory(rest_.data(), {}, data, location, size));
    rest_ = rest_.subspan(size);
    return Status::Ok();
  }
  void PutNumber(uint64_t value) { Put(&value, sizeof(value)); }

 private:
  std::span<std::byte> rest_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> source) : rest_(source) {}
  // Null when the source is too short.
  const std::byte* Take(uint64_t size) {
    if (size > rest_.size()) return nullptr;
    const std::byte* taken = rest_.data();
    rest_ = rest_.subspan(size);
    return taken;
  }
  bool TakeNumber(uint64_t* value) {
    const std::byte* bytes = Take(sizeof(*value));
    if (bytes != nullptr) std::memcpy(value, bytes, sizeof(*value));
    return bytes != nullptr;
  }
  bool at_end() const { return rest_.empty(); }

 private:
  std::span<const std::byte> rest_;
};

Status CorruptError(const char* what) {
  return InvalidArgError("cached response: ", what, " is corrupt");
}

Status CopyContent(OutputTensor* output, const std::byte* content, uint64_t size) {
  TRITONSERVER_MemoryType memory_type = TRITONSERVER_MEMORY_CPU;
  int64_t memory_type_id = 0;
  NEREID_ASSIGN_OR_RETURN(void* const base,
                          output->AllocateBuffer(size, &memory_type, &memory_type_id));
  if (base == nullptr && size > 0) {
    return UnavailableError("cached response: no memory for output '", output->name(), "'");
  }
  return CopyMemory(base, {memory_type, memory_type_id}, content, {}, size);
}

Status DecodeOutput(Reader* reader, InferResponse* response) {
  uint64_t name_size = 0, data_type = 0, num_dims = 0, byte_size = 0;
  if (!reader->TakeNumber(&name_size)) return CorruptError("the length of a name");
  const std::byte* name = reader->Take(name_size);
  if (name == nullptr || !reader->TakeNumber(&data_type) || !reader->TakeNumber(&num_dims)) {
    return CorruptError("an output");
  }
  if (data_type == 0 || data_type > static_cast<uint64_t>(DataType::kBf16)) {
    return CorruptError("a data type");
  }
  constexpr uint64_t kMaxDims = 1024;
  const std::byte* dims = num_dims > kMaxDims ? nullptr : reader->Take(num_dims * sizeof(int64_t));
  if (dims == nullptr && num_dims > 0) return CorruptError("a shape");
  std::vector<int64_t> shape(num_dims);
  if (num_dims > 0) std::memcpy(shape.data(), dims, num_dims * sizeof(int64_t));
  for (const int64_t dim : shape) {
    if (dim < 0) return CorruptError("a shape");
  }
  if (!reader->TakeNumber(&byte_size)) return CorruptError("the size of an output");
  const std::byte* content = reader->Take(byte_size);
  if (content == nullptr) return CorruptError("the content of an output");
  NEREID_ASSIGN_OR_RETURN(
      OutputTensor * output,
      response->AddClientOutput({reinterpret_cast<const char*>(name), name_size},
                                static_cast<DataType>(data_type),
                                Shape(std::span<const int64_t>(shape))));
  return CopyContent(output, content, byte_size);
}

}  // namespace

bool IsCacheable(const InferResponse& response) {
  return response.error().ok();
}

size_t EncodedSize(const InferResponse& response) {
  size_t size = 2 * sizeof(uint64_t);
  for (size_t i = 0; i < response.num_outputs(); ++i) {
    OutputTensor& output = *response.output(i);
    size += 4 * sizeof(uint64_t) + output.name().size() + output.shape().size() * sizeof(int64_t) +
            output.attributes().byte_size;
  }
  return size;
}

Status EncodeResponse(const InferResponse& response, std::span<std::byte> target) {
  Writer writer(target);
  writer.PutNumber(kMagic);
  writer.PutNumber(response.num_outputs());
  for (size_t i = 0; i < response.num_outputs(); ++i) {
    OutputTensor& output = *response.output(i);
    writer.PutNumber(output.name().size());
    writer.Put(output.name().data(), output.name().size());
    writer.PutNumber(static_cast<uint64_t>(output.data_type()));
    writer.PutNumber(output.shape().size());
    writer.Put(output.shape().data(), output.shape().size() * sizeof(int64_t));
    writer.PutNumber(output.attributes().byte_size);
    const BufferAttributes& attributes = output.attributes();
    NEREID_RETURN_IF_ERROR(writer.PutFrom(
        output.base(), {attributes.memory_type, attributes.memory_type_id}, attributes.byte_size));
  }
  return Status::Ok();
}

Status DecodeResponse(std::span<const std::byte> encoded, InferResponse* response) {
  Reader reader(encoded);
  uint64_t magic = 0, count = 0;
  if (!reader.TakeNumber(&magic) || magic != kMagic || !reader.TakeNumber(&count)) {
    return CorruptError("the head");
  }
  if (count > response->schema().outputs.size()) return CorruptError("the number of outputs");
  for (uint64_t i = 0; i < count; ++i) NEREID_RETURN_IF_ERROR(DecodeOutput(&reader, response));
  return reader.at_end() ? Status::Ok() : CorruptError("the end");
}

}  // namespace nereid::core
