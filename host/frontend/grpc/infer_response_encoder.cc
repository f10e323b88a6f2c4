// See infer_response_encoder.h.
#include "host/frontend/grpc/infer_response_encoder.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/stubs/common.h>

#include <cstring>
#include <limits>
#include <list>
#include <vector>

#include "grpc_service.pb.h"
#include "host/frontend/classification.h"
#include "host/frontend/grpc/output_memory.h"
#include "nereid/data_type.h"

namespace nereid {
namespace {

using google::protobuf::io::CodedOutputStream;
using inference::ModelInferResponse;
using inference::ModelStreamInferResponse;

constexpr char kFinalKey[] = "triton_final_response";
constexpr uint8_t kRawTag = ModelInferResponse::kRawOutputContentsFieldNumber << 3 | 2;
constexpr uint8_t kInferResponseTag = ModelStreamInferResponse::kInferResponseFieldNumber << 3 | 2;
// Outputs up to this size are copied next to the header, which is cheaper than a slice of their
// own.
constexpr size_t kMaxInlineBytes = 8 << 10;
constexpr size_t kMaxMessageBytes = std::numeric_limits<int32_t>::max();

// One raw_output_contents entry.
struct RawOutput {
  const void* base;
  size_t size_bytes;
  void* userp;  // from OutputMemory; null if the bytes must be copied

  bool is_inline() const { return userp == nullptr || size_bytes <= kMaxInlineBytes; }
};

size_t VarintBytes(size_t value) {
  return CodedOutputStream::VarintSize64(value);
}
size_t RawFieldBytes(const RawOutput& raw) {
  return 1 + VarintBytes(raw.size_bytes) + raw.size_bytes;
}

// Replaces invalid UTF-8: protobuf writes any bytes into a string field, but clients reject them.
std::string ValidUtf8(std::string_view text) {
  std::string buffer(text.size(), '\0');
  const char* const valid = google::protobuf::internal::UTF8CoerceToStructurallyValid(
      {text.data(), text.size()}, buffer.data(), '?');
  return std::string(valid, text.size());
}

// Collects the header and output references of one response. The output bytes are not copied here.
class ResponseBuilder {
 public:
  ResponseBuilder()
      : arena_(arena_block_, sizeof(arena_block_)),
        header_(google::protobuf::Arena::CreateMessage<ModelInferResponse>(&arena_)) {}

  ModelInferResponse& header() { return *header_; }
  Status Fill(const InferResponse& response, const RequestResources& resources);
  Result<WireMessage> Encode(bool is_stream);

 private:
  Status AddParameters(const InferResponse& response);
  Status AddOutput(const InferResponse& response, uint32_t index,
                   const RequestResources& resources);
  size_t InlineRunBytes(size_t first) const;

  alignas(8) char arena_block_[1536];
  google::protobuf::Arena arena_;
  ModelInferResponse* header_;
  std::vector<RawOutput> raw_;
  std::list<std::string> owned_outputs_;  // output bytes created by the frontend (classification)
};

Status ResponseBuilder::Fill(const InferResponse& response, const RequestResources& resources) {
  NEREID_RETURN_IF_ERROR(response.Error());
  NEREID_ASSIGN_OR_RETURN(const InferResponse::ModelId model, response.Model());
  header_->set_model_name(model.name);
  header_->set_model_version(std::to_string(model.version));
  NEREID_ASSIGN_OR_RETURN(const char* id, response.RequestId());
  header_->set_id(id);
  NEREID_RETURN_IF_ERROR(AddParameters(response));
  NEREID_ASSIGN_OR_RETURN(const uint32_t num_outputs, response.OutputCount());
  for (uint32_t i = 0; i < num_outputs; ++i) {
    NEREID_RETURN_IF_ERROR(AddOutput(response, i, resources));
  }
  return {};
}

Status ResponseBuilder::AddParameters(const InferResponse& response) {
  NEREID_ASSIGN_OR_RETURN(const uint32_t count, response.ParameterCount());
  for (uint32_t i = 0; i < count; ++i) {
    NEREID_ASSIGN_OR_RETURN(const ParameterView parameter, response.Parameter(i));
    inference::InferParameter& value = (*header_->mutable_parameters())[parameter.name];
    switch (parameter.type) {
      case TRITONSERVER_PARAMETER_BOOL:
        value.set_bool_param(parameter.AsBool());
        break;
      case TRITONSERVER_PARAMETER_INT:
        value.set_int64_param(parameter.AsInt());
        break;
      case TRITONSERVER_PARAMETER_DOUBLE:
        value.set_double_param(parameter.AsDouble());
        break;
      case TRITONSERVER_PARAMETER_STRING:
        value.set_string_param(ValidUtf8(parameter.AsString()));
        break;
      default:
        return InternalError("response parameter '", parameter.name, "': type ", parameter.type,
                             " cannot be sent over gRPC");
    }
  }
  return {};
}

Status ResponseBuilder::AddOutput(const InferResponse& response, uint32_t index,
                                  const RequestResources& resources) {
  NEREID_ASSIGN_OR_RETURN(const OutputView output, response.Output(index));
  auto* tensor = header_->add_outputs();
  tensor->set_name(output.name);
  for (const auto& classification : resources.response_options.classifications) {
    if (classification.output != output.name) continue;
    NEREID_ASSIGN_OR_RETURN(
        ClassificationOutput classes,
        Classify(response, index, output, resources.is_batched, classification.max_classes));
    tensor->set_datatype(Name(DataType::kBytes));
    tensor->mutable_shape()->Add(classes.shape.begin(), classes.shape.end());
    const std::string& data = owned_outputs_.emplace_back(std::move(classes.data));
    raw_.push_back({data.data(), data.size(), nullptr});
    return {};
  }
  if (FindShared(resources.outputs.shared, output.name) != nullptr) {
    tensor->set_datatype(Name(static_cast<DataType>(output.datatype)));
    tensor->mutable_shape()->Add(output.shape.begin(), output.shape.end());
    raw_.push_back({nullptr, 0, nullptr});
    return {};
  }
  if (output.memory_type == TRITONSERVER_MEMORY_GPU) {
    return InternalError("output '", output.name, "': expected host memory, got GPU memory");
  }
  tensor->set_datatype(Name(static_cast<DataType>(output.datatype)));
  tensor->mutable_shape()->Add(output.shape.begin(), output.shape.end());
  raw_.push_back({output.base, output.size_bytes, output.userp});
  return {};
}

// Size in bytes of the consecutive inline outputs from `first` on, plus the field header of the
// first output that is not inline.
size_t ResponseBuilder::InlineRunBytes(size_t first) const {
  size_t size_bytes = 0;
  for (size_t i = first; i < raw_.size(); ++i) {
    size_bytes += RawFieldBytes(raw_[i]);
    if (!raw_[i].is_inline()) return size_bytes - raw_[i].size_bytes;
  }
  return size_bytes;
}

Result<WireMessage> ResponseBuilder::Encode(bool is_stream) {
  const size_t header_bytes = header_->ByteSizeLong();
  size_t body_bytes = header_bytes;
  for (const RawOutput& raw : raw_) body_bytes += RawFieldBytes(raw);
  if (body_bytes > kMaxMessageBytes) {
    return InvalidArgError("response of model '", header_->model_name(), "': expected at most ",
                           kMaxMessageBytes, " bytes, got ", body_bytes);
  }
  WireMessage message;
  size_t slice_bytes = (is_stream ? 1 + VarintBytes(body_bytes) : 0) + header_bytes;
  bool is_first = true;
  for (size_t next = 0; is_first || next < raw_.size(); is_first = false) {
    slice_bytes += InlineRunBytes(next);
    auto text = std::make_shared_for_overwrite<char[]>(slice_bytes);
    auto* out = reinterpret_cast<uint8_t*>(text.get());
    if (is_first) {
      if (is_stream) {
        *out++ = kInferResponseTag;
        out = CodedOutputStream::WriteVarint64ToArray(body_bytes, out);
      }
      out = header_->SerializeWithCachedSizesToArray(out);
    }
    const RawOutput* shared = nullptr;
    for (; next < raw_.size() && shared == nullptr; ++next) {
      const RawOutput& raw = raw_[next];
      *out++ = kRawTag;
      out = CodedOutputStream::WriteVarint64ToArray(raw.size_bytes, out);
      if (!raw.is_inline()) {
        shared = &raw;
      } else if (raw.size_bytes > 0) {
        std::memcpy(out, raw.base, raw.size_bytes);
        out += raw.size_bytes;
      }
    }
    const std::string_view bytes(text.get(), slice_bytes);
    message.Append({bytes, std::move(text)});
    if (shared != nullptr) {
      message.Append(OutputMemory::Share(shared->base, shared->size_bytes, shared->userp));
    }
    slice_bytes = 0;
  }
  return message;
}

WireMessage SerializeStreamResponse(const ModelStreamInferResponse& message) {
  return WireMessage(Slice::Of(message.SerializeAsString()));
}

}  // namespace

Result<WireMessage> EncodeUnaryResponse(const InferResponse& response,
                                        const RequestResources& resources) {
  ResponseBuilder builder;
  NEREID_RETURN_IF_ERROR(builder.Fill(response, resources));
  return builder.Encode(/*is_stream=*/false);
}

Result<WireMessage> EncodeStreamResponse(const InferResponse& response,
                                         const RequestResources& resources, bool is_final) {
  ResponseBuilder builder;
  NEREID_RETURN_IF_ERROR(builder.Fill(response, resources));
  (*builder.header().mutable_parameters())[kFinalKey].set_bool_param(is_final);
  return builder.Encode(/*is_stream=*/true);
}

WireMessage EncodeEmptyFinal(std::string_view model, std::string_view id) {
  ModelStreamInferResponse message;
  ModelInferResponse& response = *message.mutable_infer_response();
  response.set_model_name(std::string(model));
  response.set_id(std::string(id));
  (*response.mutable_parameters())[kFinalKey].set_bool_param(true);
  return SerializeStreamResponse(message);
}

WireMessage EncodeStreamError(const Status& error, std::string_view model, std::string_view id,
                              bool is_final) {
  ModelStreamInferResponse message;
  message.set_error_message(ValidUtf8(error.message()));
  ModelInferResponse& response = *message.mutable_infer_response();
  response.set_id(std::string(id));
  if (!model.empty()) {
    response.set_model_name(std::string(model));
    (*response.mutable_parameters())[kFinalKey].set_bool_param(is_final);
  }
  return SerializeStreamResponse(message);
}

}  // namespace nereid
