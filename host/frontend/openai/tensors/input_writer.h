// Writes values as input tensors of a language model, in the types and shapes that it declares.
// [one thread]
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "host/frontend/http/bodies/infer_body.h"
#include "host/frontend/openai/tensors/llm_signature.h"
#include "nereid/status.h"

namespace nereid::openai {

class InputWriter {
 public:
  // `inputs` gets the tensors. Both outlive the writer.
  InputWriter(const LlmSignature& model, http::InputTensors& inputs)
      : model_(model), inputs_(inputs) {}

  bool Has(std::string_view tensor) const { return model_.FindInput(tensor) != nullptr; }

  // The model has the tensor. INVALID_ARG if a value does not fit its type or shape. No tensor is
  // written for an empty list.
  Status AddTexts(std::string_view tensor, std::span<const std::string_view> texts);
  Status AddText(std::string_view tensor, std::string_view text) {
    return AddTexts(tensor, {&text, 1});
  }
  Status AddIntegers(std::string_view tensor, std::span<const int64_t> values);
  Status AddInteger(std::string_view tensor, int64_t value) {
    return AddIntegers(tensor, {&value, 1});
  }
  Status AddNumbers(std::string_view tensor, std::span<const double> values);
  Status AddNumber(std::string_view tensor, double value) {
    return AddNumbers(tensor, {&value, 1});
  }
  // The model has the tensor, whose last two dims are those of the matrix; its data type is FP32.
  Status AddMatrix(std::string_view tensor, std::span<const float> values, int64_t num_columns);
  // Writes the tensor with no values. Its last dim may have any size.
  Status AddEmpty(std::string_view tensor);
  Status AddBool(std::string_view tensor, bool value) { return AddInteger(tensor, value ? 1 : 0); }

 private:
  template <typename T>
  Status AddValues(std::string_view tensor, std::span<const T> values);

  const LlmSignature& model_;
  http::InputTensors& inputs_;
};

}  // namespace nereid::openai
