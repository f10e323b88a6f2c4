// The outputs of one response: sets those that the model declares and the client requests, and
// leaves the others out. [response thread]
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "backends/llm_core/adapter/configured_outputs.h"
#include "nereid/backend.h"

namespace nereid::llm {

class ResponseTensors {
 public:
  // Both must outlive the object.
  ResponseTensors(Response& response, const ConfiguredOutputs& outputs)
      : response_(response), outputs_(outputs) {}

  const ConfiguredOutputs& outputs() const { return outputs_; }
  bool IsRequested(const char* name) const {
    return outputs_.Has(name) && response_.IsRequested(name);
  }
  // In all of these, a leading 1 comes before `dims` if the model is configured for batching.
  template <typename T>
  Status Set(const char* name, std::initializer_list<int64_t> dims, std::span<const T> values) {
    if (!IsRequested(name)) return {};
    return response_.SetOutput<T>(name, Shape(dims), values);
  }
  // A tensor of one dim, the number of values.
  template <typename T>
  Status SetAll(const char* name, const std::vector<T>& values) {
    return Set<T>(name, {static_cast<int64_t>(values.size())}, values);
  }
  template <typename T>
  Status SetOne(const char* name, T value) {
    return Set<T>(name, {1}, std::span<const T>(&value, 1));
  }
  Status SetText(const char* name, std::string_view text) {
    if (!IsRequested(name)) return {};
    return response_.SetStrings(name, Shape({1}), std::span(&text, 1));
  }
  // Memory for the values of an output that is requested.
  Result<std::span<std::byte>> Bytes(const char* name, DataType type,
                                     std::initializer_list<int64_t> dims, size_t num_values) {
    return response_.OutputBytes(name, type, Shape(dims), num_values * ByteSize(type));
  }

 private:
  std::vector<int64_t> Shape(std::initializer_list<int64_t> dims) const {
    std::vector<int64_t> shape(dims);
    if (outputs_.is_batching) shape.insert(shape.begin(), 1);
    return shape;
  }

  Response& response_;
  const ConfiguredOutputs& outputs_;
};

}  // namespace nereid::llm
