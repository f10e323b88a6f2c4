// Access to the tensors of one Triton request for both modes. If the model does not batch, the
// tensors have no batch dimension and count as a batch of one. An output is written only if the
// configuration declares it and the client requested it. [instance thread]
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nereid/model_config.h"
#include "nereid/request.h"
#include "nereid/status.h"

namespace nereid::tokenizer {

class RequestTensors {
 public:
  // Both arguments must outlive the object.
  RequestTensors(Request& request, const ModelConfig& config)
      : request_(request), config_(config) {}

  // Takes the batch size from the first dimension of `view`. INVALID_ARG if `view` has none.
  Status SetBatchSize(const TensorView& view);
  int64_t batch_size() const { return batch_size_; }

  // Returns the input, or nothing if the client did not send it. INVALID_ARG if its first dimension
  // is not the batch size.
  Result<std::optional<TensorView>> OptionalInput(const char* name) const;
  // Returns the number of elements per batch row. INVALID_ARG if `num_elements` is not a multiple
  // of the batch size.
  Result<size_t> ElementsPerRow(const TensorView& view, size_t num_elements) const;

  // INVALID_ARG if an input does not have one element for each batch row. `noun`: of an element.
  Status CheckOnePerRow(const TensorView& view, size_t num_elements, const char* noun) const;

  bool IsRequestedOutput(const char* name);
  // Writes an output. `dims` excludes the batch dimension. Does nothing if the output is not
  // requested.
  template <typename T>
  Status SetOutput(const char* name, std::initializer_list<int64_t> dims,
                   std::span<const T> values) {
    if (!IsRequestedOutput(name)) return {};
    return request_.SetOutput<T>(name, WithBatchDimension(dims), values);
  }
  Status SetStrings(const char* name, std::initializer_list<int64_t> dims,
                    std::span<const std::string> values) {
    if (!IsRequestedOutput(name)) return {};
    return request_.SetStrings(name, WithBatchDimension(dims), values);
  }
  // Copies the input's bytes, data type and shape to the output. If the input is absent, writes
  // zero for each batch row, with all other dimensions 1. INVALID_ARG if the data types differ.
  Status CopyInputToOutput(const char* output, const char* input);

 private:
  const TensorSpec* OutputSpec(std::string_view name) const;
  std::vector<int64_t> WithBatchDimension(std::span<const int64_t> dims) const;

  Request& request_;
  const ModelConfig& config_;
  int64_t batch_size_ = 1;
};

}  // namespace nereid::tokenizer
