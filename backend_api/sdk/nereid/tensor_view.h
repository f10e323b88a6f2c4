// One input tensor of one request: name, type, shape and its bytes where the host received them.
// Views die with the request. [any thread; one object, one thread]
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "nereid/bytes_codec.h"
#include "nereid/data_type.h"
#include "nereid/error.h"
#include "nereid/shape.h"
#include "triton/core/tritonbackend.h"

namespace nereid {
inline namespace sdk {

// One piece of an input, in the order of the tensor's bytes.
struct InputPiece {
  std::span<const std::byte> bytes;
  TRITONSERVER_MemoryType memory_type;
  int64_t memory_type_id;
};

class TensorView {
 public:
  // Reads the properties and the list of pieces; copies no data. `handle` lives as long as the
  // request. `wish`: the memory that the caller would like; a host may heed it, and Nereid does for
  // instances of the CPU.
  static Result<TensorView> Of(TRITONBACKEND_Input* handle,
                               TRITONSERVER_MemoryType wish = TRITONSERVER_MEMORY_CPU) {
    TensorView view;
    const char* name = nullptr;
    TRITONSERVER_DataType datatype = TRITONSERVER_TYPE_INVALID;
    const int64_t* shape = nullptr;
    uint32_t num_dims = 0, num_pieces = 0;
    uint64_t size_bytes = 0;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_InputProperties(
        handle, &name, &datatype, &shape, &num_dims, &size_bytes, &num_pieces)));
    view.name_ = name;
    view.datatype_ = static_cast<DataType>(datatype);
    view.shape_ = {shape, num_dims};
    view.size_bytes_ = static_cast<size_t>(size_bytes);
    NEREID_RETURN_IF_ERROR(view.ReadPieces(handle, num_pieces, wish));
    return view;
  }
  // A tensor in host memory that is not an input of a request: for tests and for helpers that take
  // a view.
  static TensorView Of(const char* name, DataType datatype, std::span<const int64_t> shape,
                       std::span<const std::byte> bytes) {
    TensorView view;
    view.name_ = name;
    view.datatype_ = datatype;
    view.shape_ = shape;
    view.AddPiece({bytes, TRITONSERVER_MEMORY_CPU, 0});
    return view;
  }
  // The same in several pieces.
  static TensorView Of(const char* name, DataType datatype, std::span<const int64_t> shape,
                       std::span<const InputPiece> pieces) {
    TensorView view;
    view.name_ = name;
    view.datatype_ = datatype;
    view.shape_ = shape;
    for (const InputPiece& piece : pieces) view.AddPiece(piece);
    return view;
  }

  const char* name() const { return name_; }
  DataType datatype() const { return datatype_; }
  // With the batch dimension, where the model has one.
  std::span<const int64_t> shape() const { return shape_; }
  size_t size_bytes() const { return size_bytes_; }
  // Empty for a tensor without bytes.
  std::span<const InputPiece> pieces() const {
    return more_pieces_.empty() ? std::span(&piece_, num_pieces_) : std::span(more_pieces_);
  }

  // All bytes as one block in host memory: where they lie when they came in one piece that is
  // aligned for `alignment`, else copied together once; the copy lives as long as this object.
  // UNSUPPORTED for memory of a device.
  Result<std::span<const std::byte>> Bytes(size_t alignment = 1) {
    if (gathered_ != nullptr) return std::span<const std::byte>(gathered_.get(), size_bytes_);
    NEREID_RETURN_IF_ERROR(CheckHostMemory());
    const std::span<const InputPiece> all = pieces();
    if (all.empty()) return std::span<const std::byte>();
    if (all.size() == 1 && reinterpret_cast<uintptr_t>(all[0].bytes.data()) % alignment == 0) {
      return all[0].bytes;
    }
    gathered_ = std::make_unique_for_overwrite<std::byte[]>(size_bytes_);
    NEREID_RETURN_IF_ERROR(CopyTo({gathered_.get(), size_bytes_}));
    return std::span<const std::byte>(gathered_.get(), size_bytes_);
  }

  // The elements; INVALID_ARG when the tensor is of another type or its size is not its shape's.
  template <TensorElement T>
  Result<std::span<const T>> As() {
    NEREID_RETURN_IF_ERROR(Expect(kDataTypeOf<T>));
    NEREID_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes, Bytes(alignof(T)));
    return std::span(reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T));
  }

  // The elements of a BYTES tensor, as many as its shape says.
  Result<std::vector<std::string_view>> Strings() {
    NEREID_RETURN_IF_ERROR(Expect(DataType::kBytes));
    NEREID_ASSIGN_OR_RETURN(const size_t count, ElementCount(shape_));
    NEREID_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes, Bytes());
    Result<std::vector<std::string_view>> strings = DecodeBytes(bytes, count);
    if (!strings.ok()) return std::move(strings).status().WithContext(Where());
    return strings;
  }

  // The one element of a tensor of one element, whatever its rank.
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

  // Copies all bytes to `target`, which holds size_bytes(). UNSUPPORTED for memory of a device.
  Status CopyTo(std::span<std::byte> target) const {
    NEREID_RETURN_IF_ERROR(CheckHostMemory());
    for (const InputPiece& piece : pieces()) {
      if (piece.bytes.empty()) continue;
      std::memcpy(target.data(), piece.bytes.data(), piece.bytes.size());
      target = target.subspan(piece.bytes.size());
    }
    return {};
  }

  // Ok when the tensor is of this type and, BYTES aside, its size is that of its shape.
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

  Status ReadPieces(TRITONBACKEND_Input* handle, uint32_t num_pieces,
                    TRITONSERVER_MemoryType wish) {
    const size_t expected_bytes = size_bytes_;
    size_bytes_ = 0;
    if (num_pieces > 1) more_pieces_.reserve(num_pieces);
    for (uint32_t i = 0; i < num_pieces; ++i) {
      const void* base = nullptr;
      uint64_t piece_bytes = 0;
      InputPiece piece{{}, wish, 0};
      NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_InputBuffer(
          handle, i, &base, &piece_bytes, &piece.memory_type, &piece.memory_type_id)));
      if (base == nullptr || piece_bytes == 0) continue;
      piece.bytes = {static_cast<const std::byte*>(base), static_cast<size_t>(piece_bytes)};
      AddPiece(piece);
    }
    if (size_bytes_ == expected_bytes) return {};
    return InternalError(Where(), ": expected ", expected_bytes, " bytes, its buffers hold ",
                         size_bytes_);
  }

  void AddPiece(const InputPiece& piece) {
    if (num_pieces_ == 1) more_pieces_.push_back(piece_);
    if (num_pieces_ >= 1) more_pieces_.push_back(piece);
    if (num_pieces_ == 0) piece_ = piece;
    ++num_pieces_;
    size_bytes_ += piece.bytes.size();
  }

  Status CheckHostMemory() const {
    for (const InputPiece& piece : pieces()) {
      if (piece.memory_type == TRITONSERVER_MEMORY_GPU) {
        return UnsupportedError(Where(), ": expected host memory, got memory of GPU ",
                                piece.memory_type_id);
      }
    }
    return {};
  }

  const char* name_ = "";
  DataType datatype_ = DataType::kInvalid;
  std::span<const int64_t> shape_;
  size_t size_bytes_ = 0;
  size_t num_pieces_ = 0;
  InputPiece piece_{{}, TRITONSERVER_MEMORY_CPU, 0};  // the only one, as nearly always
  std::vector<InputPiece> more_pieces_;               // all of them, when there are several
  std::unique_ptr<std::byte[]> gathered_;
};

}  // namespace sdk
}  // namespace nereid
