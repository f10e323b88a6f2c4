/// \file
/// One request: inputs and attributes to read, outputs to fill. Inputs and attributes are valid
/// until the request is finished or released. [any thread; one object, one thread at a time]
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nereid/error.h"
#include "nereid/handles.h"
#include "nereid/response.h"
#include "nereid/response_sender.h"
#include "nereid/tensor_view.h"
#include "triton/core/tritonbackend.h"

namespace nereid {

class Request {
 public:
  /// `batch_size`: the request's first dimension where the model batches, otherwise 1.
  Request(ResponseSender sender, int64_t batch_size)
      : sender_(std::move(sender)), batch_size_(batch_size) {}
  Request(Request&&) noexcept = default;
  Request& operator=(Request&&) noexcept = default;

  TRITONBACKEND_Request* handle() const { return sender_.request_handle(); }
  bool is_open() const { return sender_.is_open(); }
  int64_t batch_size() const { return batch_size_; }

  // ---- attributes

  /// "" if the client gave no id.
  Result<std::string_view> Id() const {
    const char* id = nullptr;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_RequestId(handle(), &id)));
    return std::string_view(id == nullptr ? "" : id);
  }
  /// 0 if the request belongs to no sequence; INVALID_ARG if the id is a string.
  Result<uint64_t> CorrelationId() const {
    uint64_t id = 0;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_RequestCorrelationId(handle(), &id)));
    return id;
  }
  /// INVALID_ARG if the id is a number.
  Result<std::string_view> CorrelationIdString() const {
    const char* id = nullptr;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_RequestCorrelationIdString(handle(), &id)));
    return std::string_view(id == nullptr ? "" : id);
  }
  /// TRITONSERVER_RequestFlag bits.
  Result<uint32_t> Flags() const {
    uint32_t flags = 0;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_RequestFlags(handle(), &flags)));
    return flags;
  }
  /// 0 if the client set no timeout.
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
  /// The names of the requested outputs: all outputs of the model if the client named none.
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

  /// INVALID_ARG if the request has no such input.
  Result<TensorView> Input(const char* name) const {
    TRITONBACKEND_Input* input = nullptr;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_RequestInput(handle(), name, &input)));
    return TensorView::Of(input);
  }
  /// All inputs in no particular order, including the control tensors of a sequence.
  /// `preferred_memory`: see TensorView::Of.
  Result<std::vector<TensorView>> Inputs(
      TRITONSERVER_MemoryType preferred_memory = TRITONSERVER_MEMORY_CPU) const {
    uint32_t count = 0;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_RequestInputCount(handle(), &count)));
    std::vector<TensorView> inputs;
    inputs.reserve(count);
    for (uint32_t i = 0; i < count; ++i) {
      TRITONBACKEND_Input* input = nullptr;
      NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_RequestInputByIndex(handle(), i, &input)));
      NEREID_ASSIGN_OR_RETURN(TensorView view, TensorView::Of(input, preferred_memory));
      inputs.push_back(std::move(view));
    }
    return inputs;
  }
  /// Empty if the client left this optional input out.
  Result<std::optional<TensorView>> OptionalInput(std::string_view name) {
    NEREID_RETURN_IF_ERROR(IndexInputs());
    for (const auto& [input_name, input] : index_) {
      if (input_name != name) continue;
      NEREID_ASSIGN_OR_RETURN(TensorView view, TensorView::Of(input));
      return std::optional<TensorView>(std::move(view));
    }
    return std::optional<TensorView>();
  }
  /// The value of a tensor with one element, or `default_value` if the input is absent.
  template <TensorElement T>
  Result<T> ScalarOr(std::string_view name, T default_value) {
    NEREID_ASSIGN_OR_RETURN(std::optional<TensorView> input, OptionalInput(name));
    if (!input.has_value()) return default_value;
    return input->Scalar<T>();
  }
  Result<std::string> StringOr(std::string_view name, std::string_view default_value) {
    NEREID_ASSIGN_OR_RETURN(std::optional<TensorView> input, OptionalInput(name));
    if (!input.has_value()) return std::string(default_value);
    NEREID_ASSIGN_OR_RETURN(const std::string_view value, input->String());
    return std::string(value);
  }

  // ---- a single response, which is sent when Execute returns or by Finish

  /// The first call creates the response.
  Result<Response*> GetOrCreateResponse() {
    if (!response_.has_value()) {
      NEREID_ASSIGN_OR_RETURN(response_, sender_.NewResponse());
    }
    return &*response_;
  }
  template <TensorElement T>
  Result<std::span<T>> Output(const char* name, ShapeView shape) {
    NEREID_ASSIGN_OR_RETURN(Response * response, GetOrCreateResponse());
    return response->Output<T>(name, shape);
  }
  template <TensorElement T>
  Status SetOutput(const char* name, ShapeView shape, std::span<const T> values) {
    NEREID_ASSIGN_OR_RETURN(Response * response, GetOrCreateResponse());
    return response->SetOutput<T>(name, shape, values);
  }
  template <typename Range>
  Status SetStrings(const char* name, ShapeView shape, const Range& elements) {
    NEREID_ASSIGN_OR_RETURN(Response * response, GetOrCreateResponse());
    return response->SetStrings(name, shape, elements);
  }
  /// Sends the response and finishes the request. Without a response, it ends the stream of a
  /// decoupled model; for other models it answers INTERNAL, because the client expects outputs.
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
  /// Sends an error and finishes the request.
  Status Fail(const Status& error) {
    response_.reset();
    return sender_.Fail(error);
  }

  // ---- several responses, or responses from other threads

  ResponseSender& sender() { return sender_; }
  /// Converts the request to its sender, to keep it and its inputs beyond Execute.
  ResponseSender IntoSender() && {
    response_.reset();
    return std::move(sender_);
  }

 private:
  /// Reads all input names once, so that lookups of many absent optional inputs are cheap.
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
  std::optional<Response> response_;  ///< before the sender in destruction order
  int64_t batch_size_;
  std::vector<std::pair<std::string_view, TRITONBACKEND_Input*>> index_;
};

}  // namespace nereid
