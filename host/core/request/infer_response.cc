#include "host/core/request/infer_response.h"

#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "host/core/handle/error.h"
#include "host/core/observe/log.h"
#include "host/core/request/request_schema.h"

namespace nereid::core {
namespace {

// Converts a shape that the backend sees to the shape that the client sees: the inverse of the
// configured reshape.
Shape UndoReshape(const OutputSpec& spec, bool has_batch_dim, std::span<const int64_t> shape) {
  const size_t batch_dims = has_batch_dim ? 1 : 0;
  if (!spec.has_reshape || shape.size() != batch_dims + spec.reshape.size()) return Shape(shape);
  Shape result(shape.first(batch_dims));
  size_t from = 0;
  for (const int64_t dim : spec.dims) {
    if (dim >= 0) {
      result.push_back(dim);
      continue;
    }
    while (from < spec.reshape.size() && spec.reshape[from] >= 0) ++from;
    result.push_back(from < spec.reshape.size() ? shape[batch_dims + from] : 1);
    ++from;
  }
  return result;
}

// The outputs that ReportType has logged: "model/version/output".
class ReportedOutputs {
 public:
  // False if `output` was added before, or if there are too many.
  bool Add(std::string output) {
    constexpr size_t kMaxOutputs = 1024;
    const std::lock_guard lock(mutex_);
    return outputs_.size() < kMaxOutputs && outputs_.insert(std::move(output)).second;
  }

 private:
  std::mutex mutex_;  // guards outputs_
  std::set<std::string> outputs_;
};

// Logs an output of another type than the configuration's, once for each output. As in Triton, the
// client gets it with the backend's type.
void ReportType(const RequestSchema& schema, const OutputSpec& spec, DataType given) {
  static ReportedOutputs* const reported = new ReportedOutputs;  // responses may come at the exit
  if (!reported->Add(StrCat(schema.model_name, "/", schema.model_version, "/", spec.name))) return;
  NEREID_LOG_WARN("output '", spec.name, "' of model '", schema.model_name, "' version ",
                  schema.model_version, ": expected ", Name(spec.data_type),
                  " as in its configuration, its backend gave ", Name(given),
                  "; clients get it as it is");
}

}  // namespace

InferResponse::InferResponse(ResponseSink* sink) : sink_(sink) {
  sink->AddRef();
  sink->AddSender();
}

Result<std::unique_ptr<InferResponse>> InferResponse::New(ResponseSink* sink) {
  const ResponseCallbacks& callbacks = sink->callbacks();
  // After the final response, the client may have deleted its allocator, and this response cannot
  // be sent any more.
  if (!sink->has_ended() && callbacks.allocator->start_fn != nullptr) {
    NEREID_RETURN_IF_ERROR(TakeError(callbacks.allocator->start_fn(
        ToHandle(const_cast<ResponseAllocator*>(callbacks.allocator)), callbacks.allocator_userp)));
  }
  return std::unique_ptr<InferResponse>(new InferResponse(sink));
}

std::unique_ptr<InferResponse> InferResponse::NewError(ResponseSink* sink, Status error) {
  std::unique_ptr<InferResponse> response(new InferResponse(sink));
  response->set_error(std::move(error));
  return response;
}

InferResponse::~InferResponse() {
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (i < kInlineOutputs) {
      outputs_[i]->~OutputTensor();
    } else {
      delete outputs_[i];
    }
  }
  if (unsent_) sink_->DropSender();
  sink_->Release();
}

Result<const OutputSpec*> InferResponse::SpecOf(std::string_view name) const {
  const int index = schema().FindOutput(name);
  if (index >= 0) return &schema().outputs[index];
  return InvalidArgError("unexpected inference output '", name, "' for model '",
                         schema().model_name, "'");
}

OutputTensor* InferResponse::Add(const OutputSpec* spec, DataType data_type, Shape client_shape) {
  const size_t position = outputs_.size();
  void* place = position < kInlineOutputs ? inline_outputs_ + position * sizeof(OutputTensor)
                                          : ::operator new(sizeof(OutputTensor));
  outputs_.push_back(new (place) OutputTensor(sink_, spec, data_type, std::move(client_shape)));
  return outputs_[position];
}

Result<OutputTensor*> InferResponse::AddOutput(std::string_view name, DataType data_type,
                                               std::span<const int64_t> shape) {
  NEREID_ASSIGN_OR_RETURN(const OutputSpec* spec, SpecOf(name));
  if (data_type != spec->data_type) [[unlikely]]
    ReportType(schema(), *spec, data_type);
  return Add(spec, data_type, UndoReshape(*spec, schema().max_batch_size > 0, shape));
}

Result<OutputTensor*> InferResponse::AddClientOutput(std::string_view name, DataType data_type,
                                                     Shape shape) {
  NEREID_ASSIGN_OR_RETURN(const OutputSpec* spec, SpecOf(name));
  return Add(spec, data_type, std::move(shape));
}

OutputTensor* InferResponse::FindOutput(std::string_view name) const {
  for (OutputTensor* output : outputs_) {
    if (output->name() == name) return output;
  }
  return nullptr;
}

void InferResponse::CopyOutputsToClient() {
  for (OutputTensor* output : outputs_) {
    Status status = output->CopyToClient();
    if (!status.ok() && error_.ok()) error_ = std::move(status);
  }
}

Status InferResponse::Send(std::unique_ptr<InferResponse> response, uint32_t flags) {
  ResponseSink* sink = response->sink_;
  return sink->Send(response.release(), flags);
}

}  // namespace nereid::core
