// See request_tensors.h.
#include "backends/tokenizer/request_tensors.h"

#include <algorithm>
#include <cstring>

#include "nereid/tensor_view.h"

namespace nereid::tokenizer {

Status RequestTensors::SetBatchSize(const TensorView& view) {
  if (config_.max_batch_size() == 0) return {};
  if (view.shape().empty()) {
    return InvalidArgError("input '", view.name(), "': expected a batch dimension, got shape []");
  }
  batch_size_ = view.shape()[0];
  return {};
}

Result<std::optional<TensorView>> RequestTensors::OptionalInput(const char* name) const {
  NEREID_ASSIGN_OR_RETURN(std::optional<TensorView> view, request_.OptionalInput(name));
  if (!view || config_.max_batch_size() == 0) return view;
  if (view->shape().empty() || view->shape()[0] != batch_size_) {
    return InvalidArgError("input '", name, "': expected ", batch_size_,
                           " as the first dimension, got shape ", ToString(view->shape()));
  }
  return view;
}

Result<size_t> RequestTensors::ElementsPerRow(const TensorView& view, size_t num_elements) const {
  const auto rows = static_cast<size_t>(batch_size_);
  if (rows == 0 || num_elements % rows != 0) {
    return InvalidArgError("input '", view.name(), "': expected a multiple of ", rows,
                           " elements, got shape ", ToString(view.shape()));
  }
  return num_elements / rows;
}

Status RequestTensors::CheckOnePerRow(const TensorView& view, size_t num_elements,
                                      const char* noun) const {
  if (static_cast<int64_t>(num_elements) == batch_size_) return {};
  return InvalidArgError("input '", view.name(), "': expected 1 ", noun, " per row, got shape ",
                         ToString(view.shape()));
}

bool RequestTensors::IsRequestedOutput(const char* name) {
  if (OutputSpec(name) == nullptr) return false;
  Result<Response*> response = request_.GetOrCreateResponse();
  return response.ok() && (*response)->IsRequested(name);
}

const TensorSpec* RequestTensors::OutputSpec(std::string_view name) const {
  for (const TensorSpec& spec : config_.outputs()) {
    if (spec.name == name) return &spec;
  }
  return nullptr;
}

std::vector<int64_t> RequestTensors::WithBatchDimension(std::span<const int64_t> dims) const {
  std::vector<int64_t> shape;
  if (config_.max_batch_size() > 0) shape.push_back(batch_size_);
  shape.insert(shape.end(), dims.begin(), dims.end());
  return shape;
}

Status RequestTensors::CopyInputToOutput(const char* output, const char* input) {
  if (!IsRequestedOutput(output)) return {};
  const TensorSpec& spec = *OutputSpec(output);
  NEREID_ASSIGN_OR_RETURN(Response * response, request_.GetOrCreateResponse());
  NEREID_ASSIGN_OR_RETURN(const std::optional<TensorView> view, OptionalInput(input));
  if (view) {
    if (view->datatype() != spec.datatype) {
      return InvalidArgError("input '", input, "': expected ", Name(spec.datatype), ", got ",
                             Name(view->datatype()));
    }
    NEREID_ASSIGN_OR_RETURN(
        const std::span<std::byte> target,
        response->OutputBytes(output, spec.datatype, view->shape(), view->size_bytes()));
    return view->CopyTo(target);
  }
  const std::vector<int64_t> shape = WithBatchDimension(std::vector<int64_t>(spec.dims.size(), 1));
  const size_t size_bytes =
      (config_.max_batch_size() > 0 ? batch_size_ : 1) * ByteSize(spec.datatype);
  NEREID_ASSIGN_OR_RETURN(const std::span<std::byte> target,
                          response->OutputBytes(output, spec.datatype, shape, size_bytes));
  std::memset(target.data(), 0, target.size());
  return {};
}

}  // namespace nereid::tokenizer
