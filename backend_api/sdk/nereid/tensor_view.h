/// \file
/// One input tensor of one request: name, type, shape, and its bytes where the host received them.
/// Also shapes and their arithmetic. A view is valid as long as its request. [any thread; one
/// object, one thread at a time]
#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nereid/bytes_codec.h"
#include "nereid/data_type.h"
#include "nereid/error.h"
#include "nereid/status.h"
#include "triton/core/tritonbackend.h"

namespace nereid {

// ---- shapes: parameter type, text form and element count

/// A borrowed shape: `{1, 16}`, a vector or a span. Only for function parameters, because an
/// initializer list lives no longer than the call.
class ShapeView : public std::span<const int64_t> {
 public:
  ShapeView(std::initializer_list<int64_t> dims)  // NOLINT: implicit by intent
      : span(dims.begin(), dims.size()) {}
  ShapeView(std::span<const int64_t> dims) : span(dims) {}     // NOLINT
  ShapeView(const std::vector<int64_t>& dims) : span(dims) {}  // NOLINT
};

/// "[1, 16]".
inline std::string ToString(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

/// The product of the dims; 1 for an empty shape. INVALID_ARG if a dim is negative or if the
/// product times `element_bytes` does not fit into 63 bits.
inline Result<size_t> ElementCount(std::span<const int64_t> shape, size_t element_bytes = 1) {
  constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
  const uint64_t limit = kMax / (element_bytes == 0 ? 1 : element_bytes);
  uint64_t count = 1;
  bool is_empty = false, is_too_large = false;
  for (const int64_t dim : shape) {
    if (dim < 0) return InvalidArgError("shape ", ToString(shape), ": negative dimension ", dim);
    is_empty = is_empty || dim == 0;
    if (is_empty || is_too_large) continue;
    is_too_large = count > limit / static_cast<uint64_t>(dim);
    if (!is_too_large) count *= static_cast<uint64_t>(dim);
  }
  if (is_empty) return size_t{0};
  if (is_too_large) {
    return InvalidArgError("shape ", ToString(shape), ": more than ", kMax, " bytes");
  }
  return static_cast<size_t>(count);
}

/// One contiguous buffer of an input. The buffers of an input hold its bytes in order.
struct InputBufferView {
  std::span<const std::byte> bytes;
  TRITONSERVER_MemoryType memory_type;
  int64_t memory_type_id;
};

class TensorView {
 public:
  /// Reads the properties and the list of buffers; copies no data. `handle` is valid as long as the
  /// request. `preferred_memory`: the memory in which the caller would like the data. A host may
  /// honour it; Nereid does for CPU instances.
  static Result<TensorView> Of(TRITONBACKEND_Input* handle,
                               TRITONSERVER_MemoryType preferred_memory = TRITONSERVER_MEMORY_CPU) {
    TensorView view;
    const char* name = nullptr;
    TRITONSERVER_DataType datatype = TRITONSERVER_TYPE_INVALID;
    const int64_t* shape = nullptr;
    uint32_t num_dims = 0, num_buffers = 0;
    uint64_t size_bytes = 0;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_InputProperties(
        handle, &name, &datatype, &shape, &num_dims, &size_bytes, &num_buffers)));
    view.name_ = name;
    view.datatype_ = static_cast<DataType>(datatype);
    view.shape_ = {shape, num_dims};
    view.size_bytes_ = static_cast<size_t>(size_bytes);
    NEREID_RETURN_IF_ERROR(view.ReadBuffers(handle, num_buffers, preferred_memory));
    return view;
  }
  /// A tensor in host memory that is no input of a request, for tests and for helpers that take a
  /// view.
  static TensorView Of(const char* name, DataType datatype, std::span<const int64_t> shape,
                       std::span<const std::byte> bytes) {
    TensorView view;
    view.name_ = name;
    view.datatype_ = datatype;
    view.shape_ = shape;
    view.AddBuffer({bytes, TRITONSERVER_MEMORY_CPU, 0});
    return view;
  }
  /// The same with several buffers.
  static TensorView Of(const char* name, DataType datatype, std::span<const int64_t> shape,
                       std::span<const InputBufferView> buffers) {
    TensorView view;
    view.name_ = name;
    view.datatype_ = datatype;
    view.shape_ = shape;
    for (const InputBufferView& buffer : buffers) view.AddBuffer(buffer);
    return view;
  }

  const char* name() const { return name_; }
  DataType datatype() const { return datatype_; }
  /// Includes the batch dimension, if the model has one.
  std::span<const int64_t> shape() const { return shape_; }
  size_t size_bytes() const { return size_bytes_; }
  /// Empty for a tensor without bytes.
  std::span<const InputBufferView> buffers() const {
    return buffers_.empty() ? std::span(&single_buffer_, num_buffers_) : std::span(buffers_);
  }

  /// All bytes as one block in host memory: without a copy if the tensor has one buffer that is
  /// aligned to `alignment`. Otherwise the bytes are copied once, and the copy lives as long as
  /// this object. UNSUPPORTED for GPU memory.
  Result<std::span<const std::byte>> Bytes(size_t alignment = 1) {
    if (gathered_ != nullptr) return std::span<const std::byte>(gathered_.get(), size_bytes_);
    NEREID_RETURN_IF_ERROR(CheckHostMemory());
    const std::span<const InputBufferView> all = buffers();
    if (all.empty()) return std::span<const std::byte>();
    if (all.size() == 1 && reinterpret_cast<uintptr_t>(all[0].bytes.data()) % alignment == 0) {
      return all[0].bytes;
    }
    gathered_ = std::make_unique_for_overwrite<std::byte[]>(size_bytes_);
    NEREID_RETURN_IF_ERROR(CopyTo({gathered_.get(), size_bytes_}));
    return std::span<const std::byte>(gathered_.get(), size_bytes_);
  }

  /// The elements. INVALID_ARG if the tensor is of another type or its size does not match its
  /// shape.
  template <TensorElement T>
  Result<std::span<const T>> As() {
    NEREID_RETURN_IF_ERROR(Expect(kDataTypeOf<T>));
    NEREID_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes, Bytes(alignof(T)));
    return std::span(reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T));
  }

  /// The elements of a BYTES tensor, as many as its shape says.
  Result<std::vector<std::string_view>> Strings() {
    NEREID_RETURN_IF_ERROR(Expect(DataType::kBytes));
    NEREID_ASSIGN_OR_RETURN(const size_t count, ElementCount(shape_));
    NEREID_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes, Bytes());
    Result<std::vector<std::string_view>> strings = DecodeBytes(bytes, count);
    if (!strings.ok()) return std::move(strings).status().WithContext(Where());
    return strings;
  }

  /// The element of a tensor with one element, whatever its rank.
  template <TensorElement T>
  Result<T> Scalar() {
    NEREID_ASSIGN_OR_RETURN(const std::span<const T> elements, As<T>());
    if (elements.size() != 1) {
      return InvalidArgError(Where(), ": expected 1 element, got shape ", ToString(shape_));
    }
    return elements[0];
  }
  Result<std::string_view> String() {
    NEREID_ASSIGN_OR_RETURN(const std::vector<std::string_view> strings, Strings());
    if (strings.size() != 1) {
      return InvalidArgError(Where(), ": expected 1 element, got shape ", ToString(shape_));
    }
    return strings[0];
  }

  /// Copies all bytes to `target`, which has size_bytes(). UNSUPPORTED for GPU memory.
  Status CopyTo(std::span<std::byte> target) const {
    NEREID_RETURN_IF_ERROR(CheckHostMemory());
    for (const InputBufferView& buffer : buffers()) {
      if (buffer.bytes.empty()) continue;
      std::memcpy(target.data(), buffer.bytes.data(), buffer.bytes.size());
      target = target.subspan(buffer.bytes.size());
    }
    return {};
  }

  /// Ok if the tensor is of this type and, except for BYTES, its size matches its shape.
  Status Expect(DataType datatype) const {
    if (datatype_ != datatype) {
      return InvalidArgError(Where(), ": expected ", Name(datatype), ", got ", Name(datatype_));
    }
    if (datatype == DataType::kBytes) return {};
    NEREID_ASSIGN_OR_RETURN(const size_t count, ElementCount(shape_, ByteSize(datatype)));
    if (count * ByteSize(datatype) == size_bytes_) return {};
    return InvalidArgError(Where(), ": expected ", count * ByteSize(datatype), " bytes for ",
                           Name(datatype), " ", ToString(shape_), ", got ", size_bytes_);
  }

 private:
  std::string Where() const { return StrCat("input '", name_, "'"); }

  Status ReadBuffers(TRITONBACKEND_Input* handle, uint32_t num_buffers,
                     TRITONSERVER_MemoryType preferred_memory) {
    const size_t expected_bytes = size_bytes_;
    size_bytes_ = 0;
    if (num_buffers > 1) buffers_.reserve(num_buffers);
    for (uint32_t i = 0; i < num_buffers; ++i) {
      const void* base = nullptr;
      uint64_t buffer_bytes = 0;
      InputBufferView buffer{{}, preferred_memory, 0};
      NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_InputBuffer(
          handle, i, &base, &buffer_bytes, &buffer.memory_type, &buffer.memory_type_id)));
      if (base == nullptr || buffer_bytes == 0) continue;
      buffer.bytes = {static_cast<const std::byte*>(base), static_cast<size_t>(buffer_bytes)};
      AddBuffer(buffer);
    }
    if (size_bytes_ == expected_bytes) return {};
    return InternalError(Where(), ": expected ", expected_bytes, " bytes, its buffers hold ",
                         size_bytes_);
  }

  void AddBuffer(const InputBufferView& buffer) {
    if (num_buffers_ == 1) buffers_.push_back(single_buffer_);
    if (num_buffers_ >= 1) buffers_.push_back(buffer);
    if (num_buffers_ == 0) single_buffer_ = buffer;
    ++num_buffers_;
    size_bytes_ += buffer.bytes.size();
  }

  Status CheckHostMemory() const {
    for (const InputBufferView& buffer : buffers()) {
      if (buffer.memory_type == TRITONSERVER_MEMORY_GPU) {
        return UnsupportedError(Where(), ": expected host memory, got memory of GPU ",
                                buffer.memory_type_id);
      }
    }
    return {};
  }

  const char* name_ = "";
  DataType datatype_ = DataType::kInvalid;
  std::span<const int64_t> shape_;
  size_t size_bytes_ = 0;
  size_t num_buffers_ = 0;
  InputBufferView single_buffer_{{}, TRITONSERVER_MEMORY_CPU, 0};  ///< if there is only one
  std::vector<InputBufferView> buffers_;  ///< all of them, if there are several
  std::unique_ptr<std::byte[]> gathered_;
};

}  // namespace nereid
