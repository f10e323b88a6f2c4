// A tensor between two models: type, shape and references to its bytes. Immutable once created, and
// shared by every step that reads it; the bytes are never copied here. [any thread]
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/inline_vector.h"

namespace nereid::ensemble {

// One contiguous buffer of a tensor's bytes.
struct Segment {
  const void* base = nullptr;
  size_t byte_size = 0;
  uint32_t memory_type = 0;  // a TRITONSERVER_MemoryType
  int64_t memory_type_id = 0;
};

using Shape = InlineVector<int64_t, 6>;

// The bytes belong to the client's request, or for a step's output to the tensor's own allocation.
struct Tensor {
  uint32_t data_type = 0;             // a TRITONSERVER_DataType
  Shape shape;                        // includes the batch dimension, if there is one
  InlineVector<Segment, 1> segments;  // almost always one

  size_t byte_size() const {
    size_t total = 0;
    for (const Segment& segment : segments) total += segment.byte_size;
    return total;
  }
};

using TensorRef = std::shared_ptr<const Tensor>;
using TensorRefs = InlineVector<TensorRef, 3>;

}  // namespace nereid::ensemble
