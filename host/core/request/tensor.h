// Tensors of a request and a response: properties and references to buffers that others own. No
// tensor bytes are ever copied here. [the thread that holds the request or response]
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/inline_vector.h"
#include "host/core/handle/data_type.h"
#include "host/core/handle/handle_cast.h"
#include "host/core/memory/buffer_attributes.h"
#include "host/core/memory/owned_memory.h"
#include "nereid/ext/lent_output.h"
#include "nereid/status.h"
#include "triton/core/tritonbackend.h"

namespace nereid {

struct OutputSpec;
class ResponseSink;

using Shape = InlineVector<int64_t, 6>;

// "[-1,16]", as error messages show shapes.
std::string ShapeText(std::span<const int64_t> shape);
// Number of elements; INVALID_ARG when it does not fit 63 bits. Every dim must be >= 0.
Result<int64_t> ElementCount(std::span<const int64_t> shape);

// A piece of input data. The client keeps the bytes alive until the request is released.
struct InputBuffer {
  const void* base = nullptr;
  BufferAttributes attributes;
};
using InputBuffers = InlineVector<InputBuffer, 1>;

// An input's data, piece by piece in host memory, for a backend on the CPU.
struct HostCopy {
  InputBuffers buffers;
  std::shared_ptr<OwnedMemory> memory;
};

struct InputTensor {
  std::string name;
  DataType data_type = DataType::kInvalid;
  Shape client_shape;                          // as the client gave it, batch dimension included
  bool raw = false;                            // shape and type are deduced from the model
  std::string raw_name;                        // what the client calls it, once it is deduced
  std::shared_ptr<const uint32_t> raw_length;  // the first buffer of raw BYTES: the element's size
  InputBuffers buffers;
  // Buffers for one host policy, which replace `buffers` there. Almost always empty.
  std::vector<std::pair<std::string, InputBuffers>> policy_buffers;

  // Set by InferRequest::Prepare.
  int spec_index = -1;  // into RequestPlan::inputs
  Shape shape;          // as the backend sees it: batch dimension and reshape applied
  uint64_t byte_size = 0;

  // Between execution and release, where `buffers` lie on a GPU and the instance on the CPU.
  MemoryManager* host_memory =
      nullptr;  // where copies are made; null: the buffers serve as they are
  std::shared_ptr<const HostCopy> host_copy;  // null: nobody has asked for it yet

  const InputBuffers& BuffersFor(const char* host_policy) const;
  // As BuffersFor, for a backend that wishes for memory of this type: where the host keeps tensors
  // for it and it wishes for anything but a GPU's, a copy in host memory, pinned where there is
  // some. INTERNAL names the input.
  Result<const InputBuffers*> BuffersAt(TRITONSERVER_MemoryType wish, const char* host_policy);
  bool HasGpuBuffer() const;
  Status CopyToHost();
};

// One output of a response. Its buffer comes from the client's allocator and goes back to it when
// the response is deleted.
class OutputTensor {
 public:
  // `shape` is what the client sees: `spec`'s reshape is already undone.
  OutputTensor(ResponseSink* sink, const OutputSpec* spec, DataType data_type, Shape shape)
      : sink_(sink), spec_(spec), data_type_(data_type), shape_(std::move(shape)) {}
  ~OutputTensor();
  OutputTensor(const OutputTensor&) = delete;
  OutputTensor& operator=(const OutputTensor&) = delete;

  const OutputSpec& spec() const { return *spec_; }
  const std::string& name() const;
  DataType data_type() const { return data_type_; }
  const Shape& shape() const { return shape_; }
  const void* base() const { return base_; }
  void* buffer_userp() const { return buffer_userp_; }
  BufferAttributes& attributes() { return attributes_; }
  // As the backend sees them.
  BufferAttributes& backend_attributes() {
    return host_memory_ == nullptr ? attributes_ : host_attributes_;
  }

  // Asks the client's allocator for `byte_size` bytes, if possible at *memory_type,
  // *memory_type_id, which then say where they are. ALREADY_EXISTS the second time. Where outputs
  // are kept on the host, a buffer on a GPU that the backend did not wish for has a stand-in until
  // CopyToClient.
  Result<void*> AllocateBuffer(uint64_t byte_size, TRITONSERVER_MemoryType* memory_type,
                               int64_t* memory_type_id);
  // The output is `byte_size` bytes of the backend's at `base`, if the client's allocator takes
  // them; false: it has no buffer yet. Errors as AllocateBuffer's.
  Result<bool> Lend(const void* base, uint64_t byte_size, NEREID_GiveBackFn_t give_back,
                    void* lender_userp);
  // Moves what the backend wrote to where the client wants it. Before the client sees the output.
  Status CopyToClient();

 private:
  Status CheckNoBuffer() const;
  ResponseSink* const sink_;      // outlives this: the response holds it
  const OutputSpec* const spec_;  // lives in the model's plan
  const DataType data_type_;
  const Shape shape_;
  bool allocated_ = false;
  void* base_ = nullptr;
  void* buffer_userp_ = nullptr;
  BufferAttributes attributes_;
  std::shared_ptr<OwnedMemory> host_memory_;  // null: the backend writes to base_
  BufferAttributes host_attributes_;          // of host_memory_
};

}  // namespace nereid

NEREID_HANDLE(TRITONBACKEND_Input, nereid::InputTensor);
NEREID_HANDLE(TRITONBACKEND_Output, nereid::OutputTensor);
