// One request as the author sees it: inputs and attributes to read, outputs to fill. Reading is
// valid until the request is finished or released. [any thread; one object, one thread at a time]
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nereid/error.h"
#include "nereid/parameter.h"
#include "nereid/response.h"
#include "nereid/response_sender.h"
#include "nereid/tensor_view.h"
#include "triton/core/tritonbackend.h"

namespace nereid {
inline namespace sdk {

class Request {
 public:
  // `num_rows`: how many rows of the batch it is; see Batch.
  Request(ResponseSender sender, int64_t num_rows)
      : sender_(std::move(sender)), num_rows_(num_rows) {}
  Request(Request&&) noexcept = default;
  Request& operator=(Request&&) noexcept = default;

  TRITONBACKEND_Request* handle() const { return sender_.request_handle(); }
  bool is_open() const { return sender_.is_open(); }
  int64_t num_rows() const { return num_rows_; }

  // ---- attributes

  // "" when the client gave none.
  Result<std::string_view> Id() const {
    const char* id = nullptr;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_RequestId(handle(), &id)));
    return std::string_view(id == nullptr ? "" : id);
  }
  // 0 when the request belongs to no sequence; INVALID_ARG when the id is a text.
  Result<uint64_t> CorrelationId() const {
    uint64_t id = 0;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_RequestCorrelationId(handle(), &id)));
    return id;
  }
  // INVALID_ARG when the id is a number.
  Result<std::string_view> CorrelationIdString() const {
    const char* id = nullptr;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_RequestCorrelationIdString(handle(), &id)));
    return std::string_view(id == nullptr ? "" : id);
  }
  // TRITONSERVER_RequestFlag bits.
  Result<uint32_t> Flags() const {
    uint32_t flags = 0;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_RequestFlags(handle(), &flags)));
    return flags;
  }
  // 0 when the client set none.
  Result<uint64_t> TimeoutUs() const {
    uint64_t timeout_us = 0;
    NEREID_RETURN_IF_ERROR(
        ToStatus(TRITONBACKEND_InferenceRequestTimeoutMicroseconds(handle(), &timeout_us)));
    return timeout_us;
  }
  Result<std::vector<ParameterView>> Parameters() const {
    uint32_t count = 0;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_RequestParameterCount(handle(), &count)));
    std::vector<ParameterView> parameters(count);
    for (uint32_t i = 0; i < count; ++i) {
      NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_RequestParameter(
          handle(), i, &parameters[i].name, &parameters[i].type, &parameters[i].value)));
    }
    return parameters;
  }
  Result<std::optional<ParameterView>> FindParameter(std::string_view name) const {
    NEREID_ASSIGN_OR_RETURN(const std::vector<ParameterView> parameters, Parameters());
    for (const ParameterView& parameter : parameters) {
      if (parameter.name == name) return std::optional(parameter);
    }
    return std::optional<ParameterView>();
  }
  // The names of the outputs that the client wants; all of the model's when it named none.
  Result<std::vector<std::string_view>> RequestedOutputs() const {
    uint32_t count = 0;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_RequestOutputCount(handle(), &count)));
    std::vector<std::string_view> names(count);
    for (uint32_t i = 0; i < count; ++i) {
      const char* name = nullptr;
      NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_RequestOutputName(handle(), i, &name)));
      names[i] = name;
    }
    return names;
  }
  bool IsCancelled() const { return sender_.IsCancelled(); }

  // ---- inputs

  // INVALID_ARG when the request has no such input.
  Result<TensorView> Input(const char* name) const {
    TRITONBACKEND_Input* input = nullptr;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_RequestInput(handle(), name, &input)));
    return TensorView::Of(input);
  }
  // All of them, in no certain order; control tensors of a sequence included. `wish`: as
  // TensorView::Of.
  Result<std::vector<TensorView>> Inputs(
      TRITONSERVER_MemoryType wish = TRITONSERVER_MEMORY_CPU) const {
    uint32_t count = 0;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_RequestInputCount(handle(), &count)));
    std::vector<TensorView> inputs;
    inputs.reserve(count);
    for (uint32_t i = 0; i < count; ++i) {
      TRITONBACKEND_Input* input = nullptr;
      NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_RequestInputByIndex(handle(), i, &input)));
      NEREID_ASSIGN_OR_RETURN(TensorView view, TensorView::Of(input, wish));
      inputs.push_back(std::move(view));
    }
    return inputs;
  }
  // Nothing when the client left this optional input out.
  Result<std::optional<TensorView>> OptionalInput(std::string_view name) {
    NEREID_RETURN_IF_ERROR(IndexInputs());
    for (const auto& [input_name, input] : index_) {
      if (input_name != name) continue;
      NEREID_ASSIGN_OR_RETURN(TensorView view, TensorView::Of(input));
      return std::optional<TensorView>(std::move(view));
    }
    return std::optional<TensorView>();
  }
  // The value of a tensor of one element, or `otherwise` when the input is absent.
  template <TensorElement T>
  Result<T> ScalarOr(std::string_view name, T otherwise) {
    NEREID_ASSIGN_OR_RETURN(std::optional<TensorView> input, OptionalInput(name));
    if (!input.has_value()) return otherwise;
    return input->Scalar<T>();
  }
  Result<std::string> StringOr(std::string_view name, std::string_view otherwise) {
    NEREID_ASSIGN_OR_RETURN(std::optional<TensorView> input, OptionalInput(name));
    if (!input.has_value()) return std::string(otherwise);
    NEREID_ASSIGN_OR_RETURN(const std::string_view value, input->String());
    return std::string(value);
  }

  // ---- the answer, when it is one response: sent when Execute returns, or by Finish

  // Made at the first call.
  Result<Response*> TheResponse() {
    if (!response_.has_value()) {
      NEREID_ASSIGN_OR_RETURN(response_, sender_.NewResponse());
    }
    return &*response_;
  }
  template <TensorElement T>
  Result<std::span<T>> Output(const char* name, ShapeView shape) {
    NEREID_ASSIGN_OR_RETURN(Response * response, TheResponse());
    return response->Output<T>(name, shape);
  }
  template <TensorElement T>
  Status SetOutput(const char* name, ShapeView shape, std::span<const T> values) {
    NEREID_ASSIGN_OR_RETURN(Response * response, TheResponse());
    return response->SetOutput<T>(name, shape, values);
  }
  template <typename Range>
  Status SetStrings(const char* name, ShapeView shape, const Range& elements) {
    NEREID_ASSIGN_OR_RETURN(Response * response, TheResponse());
    return response->SetStrings(name, shape, elements);
  }
  // Sends that response and finishes the request. Without one: ends the stream of a decoupled
  // model, else answers INTERNAL, because a client waits for its outputs.
  Status Finish() {
    if (response_.has_value()) {
      Response response = std::move(*response_);
      response_.reset();
      return sender_.Send(std::move(response), /*is_final=*/true);
    }
    if (sender_.is_decoupled() || !is_open()) return sender_.Finish();
    return Fail(InternalError("model '", sender_.instance().model().name(),
                              "': the backend made no response"));
  }
  // Answers with an error and finishes the request.
  Status Fail(const Status& error) {
    response_.reset();
    return sender_.Fail(error);
  }

  // ---- the answer, when it is a stream or comes from elsewhere

  ResponseSender& sender() { return sender_; }
  // The request as a sender: to keep it, and its inputs, beyond Execute.
  ResponseSender IntoSender() && {
    response_.reset();
    return std::move(sender_);
  }

 private:
  // One look at every input, so that dozens of optional ones cost no failed lookup each.
  Status IndexInputs() {
    if (!index_.empty()) return {};
    uint32_t count = 0;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_RequestInputCount(handle(), &count)));
    for (uint32_t i = 0; i < count; ++i) {
      TRITONBACKEND_Input* input = nullptr;
      const char* name = nullptr;
      NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_RequestInputByIndex(handle(), i, &input)));
      NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_InputProperties(input, &name, nullptr, nullptr,
                                                                    nullptr, nullptr, nullptr)));
      index_.emplace_back(name, input);
    }
    return {};
  }

  ResponseSender sender_;
  std::optional<Response> response_;  // dies before the sender it was made by is told to finish
  int64_t num_rows_;
  std::vector<std::pair<std::string_view, TRITONBACKEND_Input*>> index_;
};

}  // namespace sdk
}  // namespace nereid
