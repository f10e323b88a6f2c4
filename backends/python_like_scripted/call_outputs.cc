#include "backends/python_like_scripted/call_outputs.h"

#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "backends/python_like_scripted/tensor_codec.h"

namespace nereid::scripted {
namespace {

// Where one output lies.
struct OutputPlace {
  std::optional<Block> block;
  std::optional<GpuBlock> gpu;
  bool is_workers = false;  // the message that names the memory is on its way
  std::unique_ptr<char[]> bytes;
};

struct CallerMemory {
  static Result<OutputBuffer> Allocate(const OutputRequest& output, void* request_userp) {
    const auto& target = *static_cast<const CallTarget*>(request_userp);
    auto place = std::make_unique<OutputPlace>();
    OutputBuffer buffer{nullptr};
    if (target.gpu_id >= 0 && output.size_bytes != 0) {
      Result<GpuBlock> block = target.worker.gpu().Allocate(target.gpu_id, output.size_bytes);
      if (block.ok()) place->gpu = std::move(*block);  // else it is a wish that is not granted
    }
    if (place->gpu.has_value()) {
      buffer.base = place->gpu->data;
      buffer.memory_type = TRITONSERVER_MEMORY_GPU;
      buffer.memory_type_id = target.gpu_id;
    } else if (output.size_bytes > kInlineBytes) {
      NEREID_ASSIGN_OR_RETURN(place->block, target.worker.to_worker().Allocate(output.size_bytes));
      buffer.base = place->block->data();
    } else {
      place->bytes = std::make_unique<char[]>(output.size_bytes + 1);
      buffer.base = place->bytes.get();
    }
    buffer.userp = place.release();
    return buffer;
  }
  static void Release(const OutputBuffer& buffer, size_t) {
    const std::unique_ptr<OutputPlace> place(static_cast<OutputPlace*>(buffer.userp));
    if (place->is_workers) return;
    if (place->block.has_value()) place->block->Release();
    if (place->gpu.has_value()) place->gpu->token.Release();
  }
};

// Texts are for the processor to read: they are copied to memory of the host.
Status MoveToHost(const OutputView& output, Worker& worker, OutputPlace& place) {
  const CudaDriver* const driver = CudaDriver::Get();
  Block block;
  char* target = nullptr;
  if (output.size_bytes > kInlineBytes) {
    NEREID_ASSIGN_OR_RETURN(block, worker.to_worker().Allocate(output.size_bytes));
    target = reinterpret_cast<char*>(block.data());
  } else {
    place.bytes = std::make_unique<char[]>(output.size_bytes + 1);
    target = place.bytes.get();
  }
  if (block.mapping != nullptr) place.block = block;
  NEREID_RETURN_IF_ERROR(
      driver->Copy(output.memory_type_id, target, output.base, output.size_bytes));
  place.gpu->token.Release();
  place.gpu.reset();
  return {};
}

Status WriteOutput(const OutputView& output, Worker& worker, MarshalWriter& writer) {
  auto* const place = static_cast<OutputPlace*>(output.userp);
  if (place != nullptr && place->gpu.has_value()) {
    if (output.datatype != TRITONSERVER_TYPE_BYTES) {
      WriteGpuTensor(output.name, output.datatype, output.shape, *place->gpu, writer);
      return {};
    }
    NEREID_RETURN_IF_ERROR(MoveToHost(output, worker, *place));
  }
  const Block* const block =
      place != nullptr && place->block.has_value() ? &*place->block : nullptr;
  std::string_view bytes;
  if (block == nullptr) {
    const void* const base = place != nullptr ? place->bytes.get() : output.base;
    bytes = {static_cast<const char*>(base), output.size_bytes};
  }
  WriteTensor(output.name, output.datatype, output.shape, bytes, block, writer);
  return {};
}

}  // namespace

Result<const ResponseAllocator*> CallOutputAllocator() {
  static const auto* const allocator =
      new Result<ResponseAllocator>(ResponseAllocator::Create<CallerMemory>());
  if (!allocator->ok()) return allocator->status();
  return &allocator->value();
}

Status WriteOutputs(const InferResponse& response, Worker& worker, MarshalWriter& writer) {
  NEREID_ASSIGN_OR_RETURN(const uint32_t count, response.OutputCount());
  writer.Tuple(count);
  for (uint32_t i = 0; i < count; ++i) {
    NEREID_ASSIGN_OR_RETURN(const OutputView output, response.Output(i));
    NEREID_RETURN_IF_ERROR(WriteOutput(output, worker, writer));
  }
  return {};
}

void SetWorkers(const InferResponse& response, bool is_workers) {
  const Result<uint32_t> count = response.OutputCount();
  for (uint32_t i = 0; count.ok() && i < *count; ++i) {
    const Result<OutputView> output = response.Output(i);
    if (!output.ok() || output->userp == nullptr) continue;
    auto* const place = static_cast<OutputPlace*>(output->userp);
    place->is_workers = is_workers;
    // The worker frees the block: whoever takes it then must see what was written here before, and
    // no sanitizer sees an order that goes through another process.
    if (is_workers && place->block.has_value()) place->block->Use();
  }
}

}  // namespace nereid::scripted
