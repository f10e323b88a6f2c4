// Tensors that this backend makes itself, and the elements of those that it receives. [any thread]
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "backends/ensemble/tensor.h"
#include "triton/core/tritonserver.h"

namespace nereid::bls {

// A tensor that owns its bytes.
struct OwnedTensor : ensemble::Tensor {
  std::vector<char> bytes;
};

inline ensemble::Shape ShapeOf(std::initializer_list<int64_t> dims) {
  ensemble::Shape shape;
  shape.assign({dims.begin(), dims.size()});
  return shape;
}

inline ensemble::TensorRef MakeTensor(uint32_t data_type, const ensemble::Shape& shape,
                                      std::vector<char> bytes) {
  auto tensor = std::make_shared<OwnedTensor>();
  tensor->bytes = std::move(bytes);
  tensor->data_type = data_type;
  tensor->shape = shape;
  if (!tensor->bytes.empty()) {
    tensor->segments.push_back({.base = tensor->bytes.data(),
                                .byte_size = tensor->bytes.size(),
                                .memory_type = TRITONSERVER_MEMORY_CPU});
  }
  return tensor;
}

inline ensemble::TensorRef MakeIntTensor(std::span<const int32_t> elements,
                                         const ensemble::Shape& shape) {
  const char* bytes = reinterpret_cast<const char*>(elements.data());
  return MakeTensor(TRITONSERVER_TYPE_INT32, shape, {bytes, bytes + elements.size_bytes()});
}

inline std::vector<char> BytesOf(const ensemble::Tensor& tensor) {
  std::vector<char> bytes;
  for (const ensemble::Segment& segment : tensor.segments) {
    const char* base = static_cast<const char*>(segment.base);
    bytes.insert(bytes.end(), base, base + segment.byte_size);
  }
  return bytes;
}

// Whether any byte of the tensor is not zero; false for null.
inline bool HasNonZero(const ensemble::TensorRef& tensor) {
  if (tensor == nullptr) return false;
  const std::vector<char> bytes = BytesOf(*tensor);
  return std::any_of(bytes.begin(), bytes.end(), [](char byte) { return byte != 0; });
}

template <typename T>
std::vector<T> ElementsOf(const ensemble::Tensor& tensor) {
  const std::vector<char> bytes = BytesOf(tensor);
  std::vector<T> elements(bytes.size() / sizeof(T));
  if (!elements.empty()) std::memcpy(elements.data(), bytes.data(), elements.size() * sizeof(T));
  return elements;
}

}  // namespace nereid::bls
