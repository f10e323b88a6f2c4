// One request's tensors as both modes see them: rows of a batch or, where the model does not batch,
// one row without a batch dimension; outputs only where the configuration has them and the client
// wants them. [instance thread]
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

class RequestIo {
 public:
  // Both must outlive the object.
  RequestIo(Request& request, const ModelConfig& config) : request_(request), config_(config) {}

  // Settles the number of rows by the shape of `view`.
  Status SetRows(const TensorView& view);
  int64_t rows() const { return rows_; }

  // The input, or nothing when the client left it out. INVALID_ARG when its first dimension is not
  // the number of rows.
  Result<std::optional<TensorView>> Optional(const char* name) const;
  Result<TensorView> Required(const char* name) const;
  // Elements of one row. INVALID_ARG when rows do not divide them.
  Result<size_t> RowSize(const TensorView& view, size_t num_elements) const;

  bool Emits(const char* name);
  // `dims` without the batch dimension. Nothing is done for an output that is not emitted.
  template <typename T>
  Status Emit(const char* name, std::initializer_list<int64_t> dims, std::span<const T> values) {
    if (!Emits(name)) return {};
    return request_.SetOutput<T>(name, WithRows(dims), values);
  }
  // The input's bytes, type and shape as an output; without the input one zero, all dimensions 1.
  Status PassOn(const char* output, const char* input);

 private:
  const TensorSpec* OutputSpec(std::string_view name) const;
  std::vector<int64_t> WithRows(std::span<const int64_t> dims) const;

  Request& request_;
  const ModelConfig& config_;
  int64_t rows_ = 1;
};

}  // namespace nereid::tokenizer
