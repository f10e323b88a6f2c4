/// \file
/// One response of a model: outputs and parameters, or an error. The receiver owns it; its output
/// buffers live as long as it. [any thread; one object, one thread at a time]
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "nereid/error.h"
#include "nereid/handles.h"
#include "triton/core/tritonserver.h"

namespace nereid {

/// Valid as long as its response.
struct OutputView {
  const char* name;
  TRITONSERVER_DataType datatype;
  std::span<const int64_t> shape;
  const void* base;  ///< null only if size_bytes is 0
  size_t size_bytes;
  TRITONSERVER_MemoryType memory_type;
  int64_t memory_type_id;
  void* userp;  ///< OutputBuffer::userp that the allocator's policy set
};

class InferResponse {
 public:
  /// An empty response: it ends a decoupled stream whose last response came earlier.
  InferResponse() = default;
  /// Takes ownership; nullptr makes an empty response.
  explicit InferResponse(TRITONSERVER_InferenceResponse* response) : response_(response) {}

  bool empty() const { return response_ == nullptr; }
  TRITONSERVER_InferenceResponse* get() const { return response_.get(); }
  TRITONSERVER_InferenceResponse* release() { return response_.release(); }

  // All functions below require !empty().

  /// Ok if the model succeeded. With an error the response has no outputs.
  Status Error() const { return ToStatus(TRITONSERVER_InferenceResponseError(response_.get())); }

  struct ModelId {
    const char* name;
    int64_t version;
  };
  Result<ModelId> Model() const {
    ModelId model{};
    NEREID_RETURN_IF_ERROR(ToStatus(
        TRITONSERVER_InferenceResponseModel(response_.get(), &model.name, &model.version)));
    return model;
  }

  /// "" if the request has no id.
  Result<const char*> RequestId() const {
    const char* id = "";
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONSERVER_InferenceResponseId(response_.get(), &id)));
    return id == nullptr ? "" : id;
  }

  Result<uint32_t> OutputCount() const {
    uint32_t count = 0;
    NEREID_RETURN_IF_ERROR(
        ToStatus(TRITONSERVER_InferenceResponseOutputCount(response_.get(), &count)));
    return count;
  }
  Result<OutputView> Output(uint32_t index) const {
    OutputView view{};
    const int64_t* shape = nullptr;
    uint64_t dim_count = 0;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONSERVER_InferenceResponseOutput(
        response_.get(), index, &view.name, &view.datatype, &shape, &dim_count, &view.base,
        &view.size_bytes, &view.memory_type, &view.memory_type_id, &view.userp)));
    view.shape = {shape, static_cast<size_t>(dim_count)};
    return view;
  }

  /// Bytes of all outputs together; outputs that cannot be read count as empty.
  size_t OutputBytes() const {
    const Result<uint32_t> count = OutputCount();
    size_t bytes = 0;
    for (uint32_t i = 0; count.ok() && i < *count; ++i) {
      const Result<OutputView> output = Output(i);
      if (output.ok()) bytes += output->size_bytes;
    }
    return bytes;
  }

  Result<uint32_t> ParameterCount() const {
    uint32_t count = 0;
    NEREID_RETURN_IF_ERROR(
        ToStatus(TRITONSERVER_InferenceResponseParameterCount(response_.get(), &count)));
    return count;
  }
  Result<ParameterView> Parameter(uint32_t index) const {
    ParameterView view{};
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONSERVER_InferenceResponseParameter(
        response_.get(), index, &view.name, &view.type, &view.value)));
    return view;
  }

  /// The label of one class of an output; null if the model has no labels for the output.
  Result<const char*> ClassificationLabel(uint32_t output_index, size_t class_index) const {
    const char* label = nullptr;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONSERVER_InferenceResponseOutputClassificationLabel(
        response_.get(), output_index, class_index, &label)));
    return label;
  }

 private:
  struct Deleter {
    void operator()(TRITONSERVER_InferenceResponse* response) const {
      (void)ToStatus(TRITONSERVER_InferenceResponseDelete(response));
    }
  };
  std::unique_ptr<TRITONSERVER_InferenceResponse, Deleter> response_;
};

}  // namespace nereid
