/// \file
/// One response under construction: the backend asks for the memory of each output and fills it.
/// ResponseSender sends it; a response that is not sent is deleted. Output spans are valid until
/// then. [any thread; one object, one thread at a time]
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
#include "nereid/tensor_view.h"
#include "triton/core/tritonbackend.h"

namespace nereid {

/// The outputs that the client requested; null means all.
using RequestedOutputNames = std::shared_ptr<const std::vector<std::string>>;

class Response {
 public:
  Response(ResponseHandle handle, RequestedOutputNames wanted)
      : handle_(std::move(handle)), requested_(std::move(wanted)) {}

  TRITONBACKEND_Response* handle() const { return handle_.get(); }

  /// Whether the client requested this output. The check is optional and may save work: an output
  /// that was not requested gets scratch memory and is not sent.
  bool IsRequested(std::string_view name) const {
    return requested_ == nullptr ||
           std::find(requested_->begin(), requested_->end(), name) != requested_->end();
  }

  /// Uninitialised memory for an output of this type and shape. `shape` includes the batch
  /// dimension if the model has one. Call it once for each name. INVALID_ARG if the model has no
  /// such output.
  template <TensorElement T>
  Result<std::span<T>> Output(const char* name, ShapeView shape) {
    NEREID_ASSIGN_OR_RETURN(const size_t count, ElementCount(shape, sizeof(T)));
    NEREID_ASSIGN_OR_RETURN(
        const std::span<std::byte> bytes,
        OutputBytes(name, kDataTypeOf<T>, shape, count * sizeof(T), alignof(T)));
    return std::span(reinterpret_cast<T*>(bytes.data()), count);
  }
  /// The same with values. INVALID_ARG if their number is not that of the shape.
  template <TensorElement T>
  Status SetOutput(const char* name, ShapeView shape, std::span<const T> values) {
    NEREID_RETURN_IF_ERROR(CheckCount(name, shape, values.size()));
    NEREID_ASSIGN_OR_RETURN(const std::span<T> target, Output<T>(name, shape));
    std::copy(values.begin(), values.end(), target.begin());
    return {};
  }
  /// A BYTES output. `elements` is a sized range whose values convert to std::string_view.
  template <typename Range>
  Status SetStrings(const char* name, ShapeView shape, const Range& elements) {
    NEREID_RETURN_IF_ERROR(CheckCount(name, shape, std::size(elements)));
    NEREID_ASSIGN_OR_RETURN(const std::string data, EncodeBytes(elements));
    NEREID_ASSIGN_OR_RETURN(const std::span<std::byte> target,
                            OutputBytes(name, DataType::kBytes, shape, data.size()));
    if (!data.empty()) std::memcpy(target.data(), data.data(), data.size());
    return {};
  }
  /// An output of any type as raw bytes. UNSUPPORTED if the client's buffer is in GPU memory.
  Result<std::span<std::byte>> OutputBytes(const char* name, DataType datatype, ShapeView shape,
                                           size_t size_bytes, size_t alignment = 1) {
    if (!IsRequested(name)) return Scratch(size_bytes, nullptr);
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

  /// Parameters of the response, beside the tensors.
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

  /// Sends the response and gives it up, whatever the outcome. `error` is copied; Ok means success.
  /// Only ResponseSender calls it, because it also reports the statistics.
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
  /// Scratch memory for an output that was not requested or whose client buffer is not aligned.
  struct Staged {
    std::unique_ptr<std::byte[]> bytes;
    size_t size_bytes;
    void* target;  ///< null: the bytes are dropped
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
  RequestedOutputNames requested_;
  std::vector<Staged> staged_;
};

}  // namespace nereid
