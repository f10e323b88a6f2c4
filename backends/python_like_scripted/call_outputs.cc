#include "backends/python_like_scripted/call_outputs.h"

#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "backends/python_like_scripted/tensor_codec.h"

namespace nereid::python {
namespace {

// Memory of one output: exactly one of `block`, `gpu` and `bytes`.
struct CallOutputMemory {
  std::optional<SharedBlock> block;
  std::optional<GpuBlock> gpu;
  bool is_owned_by_worker = false;  // the worker releases it
  std::unique_ptr<char[]> bytes;
};

struct CallerMemoryAllocator {
  static Result<OutputBuffer> Allocate(const OutputRequest& output, void* request_userp) {
    const auto& target = *static_cast<const CallOutputTarget*>(request_userp);
    auto memory = std::make_unique<CallOutputMemory>();
    OutputBuffer buffer{nullptr};
    if (target.gpu_id >= 0 && output.size_bytes != 0) {
      Result<GpuBlock> block = target.worker.gpu().Allocate(target.gpu_id, output.size_bytes);
      if (block.ok()) memory->gpu = std::move(*block);  // the preference is only a hint
    }
    if (memory->gpu.has_value()) {
      buffer.base = memory->gpu->data;
      buffer.memory_type = TRITONSERVER_MEMORY_GPU;
      buffer.memory_type_id = target.gpu_id;
    } else if (output.size_bytes > kMaxInlineBytes) {
      NEREID_ASSIGN_OR_RETURN(memory->block, target.worker.to_worker().Allocate(output.size_bytes));
      buffer.base = memory->block->data();
    } else {
      memory->bytes = std::make_unique<char[]>(output.size_bytes + 1);
      buffer.base = memory->bytes.get();
    }
    buffer.userp = memory.release();
    return buffer;
  }
  static void Release(const OutputBuffer& buffer, size_t) {
    const std::unique_ptr<CallOutputMemory> memory(static_cast<CallOutputMemory*>(buffer.userp));
    if (memory->is_owned_by_worker) return;
    if (memory->block.has_value()) memory->block->Release();
    if (memory->gpu.has_value()) memory->gpu->token.Release();
  }
};

// BYTES tensors are read by the CPU: copies one from the GPU to host memory.
Status CopyToHost(const OutputView& output, Worker& worker, CallOutputMemory& memory) {
  const CudaDriver* const driver = CudaDriver::Get();
  SharedBlock block;
  char* target = nullptr;
  if (output.size_bytes > kMaxInlineBytes) {
    NEREID_ASSIGN_OR_RETURN(block, worker.to_worker().Allocate(output.size_bytes));
    target = reinterpret_cast<char*>(block.data());
  } else {
    memory.bytes = std::make_unique<char[]>(output.size_bytes + 1);
    target = memory.bytes.get();
  }
  if (block.mapping != nullptr) memory.block = block;
  NEREID_RETURN_IF_ERROR(
      driver->Copy(output.memory_type_id, target, output.base, output.size_bytes));
  memory.gpu->token.Release();
  memory.gpu.reset();
  return {};
}

Status WriteOutput(const OutputView& output, Worker& worker, MarshalWriter& writer) {
  auto* const memory = static_cast<CallOutputMemory*>(output.userp);
  if (memory != nullptr && memory->gpu.has_value()) {
    if (output.datatype != TRITONSERVER_TYPE_BYTES) {
      WriteGpuTensor(output.name, output.datatype, output.shape, *memory->gpu, writer);
      return {};
    }
    NEREID_RETURN_IF_ERROR(CopyToHost(output, worker, *memory));
  }
  const SharedBlock* const block =
      memory != nullptr && memory->block.has_value() ? &*memory->block : nullptr;
  std::string_view bytes;
  if (block == nullptr) {
    const void* const base = memory != nullptr ? memory->bytes.get() : output.base;
    bytes = {static_cast<const char*>(base), output.size_bytes};
  }
  WriteTensor(output.name, output.datatype, output.shape, bytes, block, writer);
  return {};
}

}  // namespace

Result<const ResponseAllocator*> CallOutputAllocator() {
  static const auto* const allocator =
      new Result<ResponseAllocator>(ResponseAllocator::Create<CallerMemoryAllocator>());
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

void SetOwnedByWorker(const InferResponse& response, bool is_owned_by_worker) {
  const Result<uint32_t> count = response.OutputCount();
  for (uint32_t i = 0; count.ok() && i < *count; ++i) {
    const Result<OutputView> output = response.Output(i);
    if (!output.ok() || output->userp == nullptr) continue;
    auto* const memory = static_cast<CallOutputMemory*>(output->userp);
    memory->is_owned_by_worker = is_owned_by_worker;
    // The worker releases the block, and the next user must see what was written here before.
    // Sanitizers do not see an ordering that goes through another process.
    if (is_owned_by_worker && memory->block.has_value()) memory->block->Use();
  }
}

}  // namespace nereid::python
