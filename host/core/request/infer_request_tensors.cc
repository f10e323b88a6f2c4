// The inputs and the requested outputs of a request. [client thread]
#include <algorithm>

#include "host/core/request/infer_request.h"

namespace nereid::core {

Status InferRequest::AddInput(std::string_view name, DataType data_type,
                              std::span<const int64_t> shape) {
  if (FindClientInput(name) != nullptr) {
    return InvalidArgError(LogPrefix(), "input '", name, "' already exists in request");
  }
  InputTensor& input = inputs_.emplace_back();
  input.name = name;
  input.data_type = data_type;
  input.client_shape.assign(shape);
  return Status::Ok();
}

Status InferRequest::AddRawInput(std::string_view name) {
  if (!inputs_.empty()) {
    return InvalidArgError(LogPrefix(), "raw input '", name,
                           "' can't be added to request with other inputs");
  }
  InputTensor& input = inputs_.emplace_back();
  input.name = name;
  input.raw = true;
  return Status::Ok();
}

InputTensor* InferRequest::FindInput(std::string_view name) {
  for (size_t i = 0; i < num_inputs(); ++i) {
    if (input(i).name == name) return &input(i);
  }
  return nullptr;
}

InputTensor* InferRequest::FindClientInput(std::string_view name) {
  for (InputTensor& input : inputs_) {
    if ((input.raw_name.empty() ? input.name : input.raw_name) == name) return &input;
  }
  return nullptr;
}

const InputTensor* InferRequest::InputForSpec(int spec_index) const {
  for (const InputTensor& input : inputs_) {
    if (input.spec_index == spec_index) return &input;
  }
  return nullptr;
}

Status InferRequest::MissingInput(std::string_view name) const {
  return InvalidArgError(LogPrefix(), "input '", name, "' does not exist in request");
}

Status InferRequest::RemoveInput(std::string_view name) {
  const InputTensor* input = FindClientInput(name);
  if (input == nullptr) return MissingInput(name);
  inputs_.erase(input - inputs_.begin());
  return Status::Ok();
}

Status InferRequest::AppendInputData(std::string_view name, const void* base,
                                     const BufferAttributes& attributes, const char* host_policy) {
  InputTensor* input = FindClientInput(name);
  if (input == nullptr) return MissingInput(name);
  if (attributes.byte_size == 0) return Status::Ok();
  if (base == nullptr) {
    return InvalidArgError(LogPrefix(), "data of input '", name, "' is null, but its size is ",
                           attributes.byte_size);
  }
  InputBuffers* buffers = &input->buffers;
  if (host_policy != nullptr) {
    auto& all = input->policy_buffers;
    auto it = std::find_if(all.begin(), all.end(),
                           [&](const auto& entry) { return entry.first == host_policy; });
    if (it == all.end()) it = all.insert(all.end(), {host_policy, InputBuffers()});
    buffers = &it->second;
  }
  buffers->push_back({base, attributes});
  return Status::Ok();
}

Status InferRequest::RemoveAllInputData(std::string_view name) {
  InputTensor* input = FindClientInput(name);
  if (input == nullptr) return MissingInput(name);
  input->buffers.clear();
  input->policy_buffers.clear();
  return Status::Ok();
}

Status InferRequest::AddRequestedOutput(std::string_view name) {
  const int index = schema().FindOutput(name);
  if (index < 0) {
    unknown_outputs_.emplace_back(name);
    return Status::Ok();
  }
  const auto* end = requested_outputs_.end();
  if (std::find(requested_outputs_.begin(), requested_outputs_.end(), index) != end) {
    return InvalidArgError(LogPrefix(), "output '", name, "' already exists in request");
  }
  requested_outputs_.push_back(index);
  return Status::Ok();
}

void InferRequest::RemoveRequestedOutput(std::string_view name) {
  std::erase(unknown_outputs_, name);
  const int index = schema().FindOutput(name);
  for (size_t i = 0; i < requested_outputs_.size(); ++i) {
    if (requested_outputs_[i] == index) return requested_outputs_.erase(i);
  }
}

size_t InferRequest::num_outputs() const {
  return requested_outputs_.empty() ? schema().outputs.size() : requested_outputs_.size();
}

const std::string& InferRequest::output_name(size_t index) const {
  return schema().outputs[requested_outputs_.empty() ? index : requested_outputs_[index]].name;
}

}  // namespace nereid::core
