// One response in the making: the author asks for the memory of each output and fills it. Sending
// it is the matter of ResponseSender; a response that is not sent is deleted. Output spans live
// until then. [any thread; one object, one thread]
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nereid/bytes_codec.h"
#include "nereid/data_type.h"
#include "nereid/error.h"
#include "nereid/handles.h"
#include "nereid/shape.h"
#include "triton/core/tritonbackend.h"

namespace nereid {
inline namespace sdk {

// The outputs that a client asked for; null means all.
using WantedOutputs = std::shared_ptr<const std::vector<std::string>>;

class Response {
 public:
  Response(ResponseHandle handle, WantedOutputs wanted)
      : handle_(std::move(handle)), wanted_(std::move(wanted)) {}

  TRITONBACKEND_Response* handle() const { return handle_.get(); }

  // Whether the client wants this output. Asking is never needed, it may save work: an output that
  // nobody wants gets memory all the same and is not sent.
  bool Wants(std::string_view name) const {
    return wanted_ == nullptr ||
           std::find(wanted_->begin(), wanted_->end(), name) != wanted_->end();
  }

  // Memory for an output of this type and shape, not initialised. `shape` has the batch dimension
  // where the model has one. Once for each name. INVALID_ARG when the model has no such output.
  template <TensorElement T>
  Result<std::span<T>> Output(const char* name, ShapeView shape) {
    NEREID_ASSIGN_OR_RETURN(const size_t count, ElementCount(shape, sizeof(T)));
    NEREID_ASSIGN_OR_RETURN(
        const std::span<std::byte> bytes,
        OutputBytes(name, kDataTypeOf<T>, shape, count * sizeof(T), alignof(T)));
    return std::span(reinterpret_cast<T*>(bytes.data()), count);
  }
  // The same, filled. The number of values is that of the shape, else INVALID_ARG.
  template <TensorElement T>
  Status SetOutput(const char* name, ShapeView shape, std::span<const T> values) {
    NEREID_RETURN_IF_ERROR(CheckCount(name, shape, values.size()));
    NEREID_ASSIGN_OR_RETURN(const std::span<T> target, Output<T>(name, shape));
    std::copy(values.begin(), values.end(), target.begin());
    return {};
  }
  // A BYTES output; `elements` is a sized range of what converts to std::string_view.
  template <typename Range>
  Status SetStrings(const char* name, ShapeView shape, const Range& elements) {
    NEREID_RETURN_IF_ERROR(CheckCount(name, shape, std::size(elements)));
    NEREID_ASSIGN_OR_RETURN(const std::string data, EncodeBytes(elements));
    NEREID_ASSIGN_OR_RETURN(const std::span<std::byte> target,
                            OutputBytes(name, DataType::kBytes, shape, data.size()));
    if (!data.empty()) std::memcpy(target.data(), data.data(), data.size());
    return {};
  }
  // An output of any type as its bytes. UNSUPPORTED when the client wants it in memory of a device.
  Result<std::span<std::byte>> OutputBytes(const char* name, DataType datatype, ShapeView shape,
                                           size_t size_bytes, size_t alignment = 1) {
    if (!Wants(name)) return Scratch(size_bytes, nullptr);
    TRITONBACKEND_Output* output = nullptr;
    NEREID_RETURN_IF_ERROR(
        ToStatus(TRITONBACKEND_ResponseOutput(handle(), &output, name, ToC(datatype), shape.data(),
                                              static_cast<uint32_t>(shape.size()))));
    void* base = nullptr;
    TRITONSERVER_MemoryType memory_type = TRITONSERVER_MEMORY_CPU;
    int64_t memory_type_id = 0;
    NEREID_RETURN_IF_ERROR(ToStatus(
        TRITONBACKEND_OutputBuffer(output, &base, size_bytes, &memory_type, &memory_type_id)));
    if (memory_type == TRITONSERVER_MEMORY_GPU) {
      return UnsupportedError("output '", name, "': expected host memory, got memory of GPU ",
                              memory_type_id);
    }
    if (reinterpret_cast<uintptr_t>(base) % alignment != 0) return Scratch(size_bytes, base);
    return std::span(static_cast<std::byte*>(base), size_bytes);
  }

  // Parameters that travel beside the tensors.
  Status SetParameter(const char* name, const char* value) {
    return ToStatus(TRITONBACKEND_ResponseSetStringParameter(handle(), name, value));
  }
  Status SetParameter(const char* name, const std::string& value) {
    return SetParameter(name, value.c_str());
  }
  Status SetParameter(const char* name, int64_t value) {
    return ToStatus(TRITONBACKEND_ResponseSetIntParameter(handle(), name, value));
  }
  Status SetParameter(const char* name, bool value) {
    return ToStatus(TRITONBACKEND_ResponseSetBoolParameter(handle(), name, value));
  }
  Status SetParameter(const char* name, double value) {
    return ToStatus(TRITONBACKEND_ResponseSetDoubleParameter(handle(), name, value));
  }

  // Sends it and gives it up, whatever the outcome. `error` is copied; Ok means success. For
  // ResponseSender, which also keeps the statistics.
  Status SendRaw(uint32_t flags, const Status& error) && {
    for (const Staged& staged : staged_) {
      if (staged.target != nullptr && staged.size_bytes > 0) {
        std::memcpy(staged.target, staged.bytes.get(), staged.size_bytes);
      }
    }
    const ErrorHandle error_handle(ToError(error));
    return ToStatus(TRITONBACKEND_ResponseSend(handle_.release(), flags, error_handle.get()));
  }

 private:
  // Memory of ours: for an output that nobody wants, and for one whose place is not aligned.
  struct Staged {
    std::unique_ptr<std::byte[]> bytes;
    size_t size_bytes;
    void* target;  // null: nowhere
  };

  std::span<std::byte> Scratch(size_t size_bytes, void* target) {
    Staged& staged = staged_.emplace_back(
        Staged{std::make_unique_for_overwrite<std::byte[]>(size_bytes), size_bytes, target});
    return {staged.bytes.get(), size_bytes};
  }

  static Status CheckCount(const char* name, ShapeView shape, size_t count) {
    NEREID_ASSIGN_OR_RETURN(const size_t expected, ElementCount(shape));
    if (count == expected) return {};
    return InvalidArgError("output '", name, "': expected ", expected, " elements for shape ",
                           ToString(shape), ", got ", count);
  }

  ResponseHandle handle_;
  WantedOutputs wanted_;
  std::vector<Staged> staged_;
};

}  // namespace sdk
}  // namespace nereid
