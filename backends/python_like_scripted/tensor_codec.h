// Converts tensors and responses between the C API and messages. Short tensors travel inside the
// message, others through shared memory: an input is copied into it once, and an output out of it
// once unless it is leased. [any thread]
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "backends/python_like_scripted/gpu_region.h"
#include "backends/python_like_scripted/leased_outputs.h"
#include "backends/python_like_scripted/marshal.h"
#include "backends/python_like_scripted/posted_input_buffers.h"
#include "backends/python_like_scripted/shared_region.h"
#include "nereid/request.h"
#include "nereid/response.h"

namespace nereid::python {

// Tensors up to this size travel inside their message.
inline constexpr size_t kMaxInlineBytes = 8192;

// A decoded tensor. Its bytes are in the message (`inline_bytes`), in `block`, or in GPU memory.
struct PackedTensor {
  std::string_view name;
  DataType datatype = DataType::kInvalid;
  std::vector<int64_t> shape;
  std::string_view inline_bytes;
  std::optional<SharedBlock> block;
  bool is_host_block = false;  // the host wrote the block; the worker releases it
  bool is_leased = false;      // the lease releases the block
  std::optional<GpuRange> gpu;

  // The bytes of a tensor in host memory.
  std::string_view bytes() const {
    if (!block.has_value()) return inline_bytes;
    return {reinterpret_cast<const char*>(block->data()), block->size_bytes};
  }
};

// Views into the decoded message.
struct PackedParameter {
  std::string_view name;
  enum class Kind { kText, kInt, kBool, kDouble } kind = Kind::kText;
  std::string_view text;
  int64_t number = 0;
  double real = 0;
};
struct PackedResponse {
  std::vector<PackedTensor> outputs;
  std::optional<Status> error;
  std::vector<PackedParameter> parameters;
  GpuRegion* gpu = nullptr;                 // opens outputs in GPU memory
  LeasedOutputs* leased_outputs = nullptr;  // null: all outputs are copied

  bool MayLease(const PackedTensor& output) const;

  // Releases the worker's blocks that are not leased.
  void Release() const;
};

// Encodes (name, type, shape, data). An allocated block is appended to `blocks`; an error leaves a
// part of the tensor in the message. Data in one of `posted_input_buffers` is not copied. Data in
// GPU memory is copied to `gpu` if that is not null, else to host memory.
Status WriteTensor(const TensorView& tensor, SharedRegion& region,
                   PostedInputBuffers& posted_input_buffers, GpuRegion* gpu,
                   std::vector<SharedBlock>& blocks, MarshalWriter& writer);
// Encodes a tensor whose data is in `block`, which the worker releases.
void WriteGpuTensor(const char* name, TRITONSERVER_DataType datatype,
                    std::span<const int64_t> shape, const GpuBlock& block, MarshalWriter& writer);
// Encodes a tensor whose data is in `block`, or in `bytes` if `block` is null.
void WriteTensor(const char* name, TRITONSERVER_DataType datatype, std::span<const int64_t> shape,
                 std::string_view bytes, const SharedBlock* block, MarshalWriter& writer);

// Decodes a tensor and checks that type, shape and size agree; errors are set on the reader. If the
// worker sends back an input without a copy, the data is in `to_worker`; that is an error if
// `to_worker` is null. Such data and GPU memory stay unchanged until the worker learns that the
// message was handled.
PackedTensor ReadTensor(MarshalReader& reader, SharedRegion& region,
                        SharedRegion* to_worker = nullptr);
std::vector<PackedParameter> ReadParameters(MarshalReader& reader);
PackedResponse ReadResponse(MarshalReader& reader, SharedRegion& region,
                            SharedRegion* to_worker = nullptr);

// Copies parameters and outputs to `response`, in the memory that the client prefers, or leases the
// outputs. PackedResponse::Release releases the other blocks.
Status FillResponse(PackedResponse& packed, Response& response);

}  // namespace nereid::python
