#include "host/core/request/request_check.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

namespace nereid::core {
namespace {

// The subject of error messages. The prefix is formatted only for an error.
struct RequestContext {
  const RequestSchema& schema;
  const std::string& request_id;

  template <typename... Args>
  Status Invalid(const Args&... args) const {
    return InvalidArgError(RequestLogPrefix(request_id), args...);
  }
};

std::string Quoted(const std::vector<std::string>& names) {
  std::string text = "[";
  for (const std::string& name : names) {
    if (text.size() > 1) text += ',';
    text += StrCat("'", name, "'");
  }
  return text + ']';
}

Status MissingInputs(const RequestContext& context, std::span<const InputTensor> inputs) {
  std::vector<std::string> got;
  for (const InputTensor& input : inputs) got.push_back(input.name);
  std::vector<std::string> missing;
  for (const InputSpec& spec : context.schema.inputs) {
    if (!spec.optional && std::find(got.begin(), got.end(), spec.name) == got.end()) {
      missing.push_back(spec.name);
    }
  }
  const std::string expected =
      context.schema.has_optional_inputs
          ? StrCat("number of inputs between ", context.schema.num_required_inputs, " and ",
                   context.schema.inputs.size())
          : StrCat(context.schema.inputs.size(), " inputs");
  return context.Invalid("expected ", expected, " but got ", inputs.size(), " inputs for model '",
                         context.schema.model_name, "'. Got input(s) ", Quoted(got),
                         ", but missing required input(s) ", Quoted(missing),
                         ". Please provide all required input(s).");
}

// Finds the spec of each input and checks that all required inputs are present. Names are unique in
// a request. The number of inputs is checked first, so that the error lists all missing inputs.
Status MatchInputs(const RequestContext& context, std::span<InputTensor> inputs) {
  if (inputs.size() > context.schema.inputs.size() ||
      inputs.size() < context.schema.num_required_inputs) {
    return MissingInputs(context, inputs);
  }
  size_t num_required = 0;
  const InputTensor* unexpected = nullptr;
  for (InputTensor& input : inputs) {
    input.spec_index = context.schema.FindInput(input.name);
    if (input.spec_index < 0) {
      unexpected = &input;
    } else if (!context.schema.inputs[input.spec_index].optional) {
      ++num_required;
    }
  }
  if (unexpected != nullptr) {
    return InvalidArgError("unexpected inference input '", unexpected->name, "' for model '",
                           context.schema.model_name, "'");
  }
  if (num_required != context.schema.num_required_inputs) return MissingInputs(context, inputs);
  return Status::Ok();
}

// The size of the data for host policies that have no data of their own.
uint64_t TotalBytes(const InputTensor& input) {
  uint64_t total = 0;
  for (const InputBuffer& buffer : input.buffers) total += buffer.attributes.byte_size;
  return total;
}

// A raw input of BYTES is one element. Its length is inserted before the data, only once even if
// the request is prepared several times.
Status PrependLength(const RequestContext& context, const InputSpec& spec, InputTensor* input) {
  if (!input->policy_buffers.empty()) {
    return context.Invalid("raw input '", spec.name, "' can not have data of a host policy");
  }
  if (input->raw_length != nullptr && !input->buffers.empty() &&
      input->buffers[0].base == input->raw_length.get()) {
    return Status::Ok();
  }
  const uint64_t size = TotalBytes(*input);
  if (size > std::numeric_limits<uint32_t>::max()) {
    return context.Invalid("raw input '", spec.name, "' has ", size,
                           " bytes, an element of BYTES has at most 4294967295");
  }
  input->raw_length = std::make_shared<const uint32_t>(static_cast<uint32_t>(size));
  InputBuffers buffers;
  InputBuffer& length = buffers.emplace_back(InputBuffer{input->raw_length.get(), {}});
  length.attributes.byte_size = sizeof(uint32_t);
  for (const InputBuffer& buffer : input->buffers) buffers.push_back(buffer);
  input->buffers = std::move(buffers);
  return Status::Ok();
}

// Deduces type and shape of a raw input, which must be the only input. The one variable dimension
// gets its size from the number of bytes.
Status DeduceRawInput(const RequestContext& context, size_t num_inputs, InputTensor* input) {
  if (num_inputs != 1 || context.schema.inputs.size() != 1) {
    return context.Invalid("Raw request must only have 1 input (found ", num_inputs,
                           ") to be deduced but got ", context.schema.inputs.size(), " inputs in '",
                           context.schema.model_name, "' model configuration");
  }
  const InputSpec& spec = context.schema.inputs.front();
  input->data_type = spec.data_type;
  input->client_shape.clear();
  if (context.schema.max_batch_size > 0) input->client_shape.push_back(1);
  int64_t fixed = 1;
  int num_variable = 0;
  for (const int64_t dim : spec.dims) {
    if (dim < 0) ++num_variable;
    fixed *= std::max<int64_t>(dim, 1);
  }
  if (num_variable > 1) {
    return context.Invalid("The shape of the raw input '", spec.name,
                           "' can not be deduced because there are more than one variable-sized "
                           "dimension");
  }
  if (spec.data_type == DataType::kBytes) {
    if (num_variable != 0 || fixed != 1) {
      return context.Invalid("For BYTE datatype raw input '", spec.name,
                             "', the model must have input shape [1]");
    }
    NEREID_RETURN_IF_ERROR(PrependLength(context, spec, input));
  }
  int64_t variable = 1;
  if (num_variable == 1) {
    variable = static_cast<int64_t>(TotalBytes(*input) / ByteSize(spec.data_type)) / fixed;
  }
  for (const int64_t dim : spec.dims) input->client_shape.push_back(dim < 0 ? variable : dim);
  return Status::Ok();
}

Status CheckShape(const RequestContext& context, const InputSpec& spec, const InputTensor& input) {
  const Shape& shape = input.client_shape;
  bool same = shape.size() == spec.expected.size();
  for (size_t i = 0; same && i < shape.size(); ++i) {
    if (shape[i] < 0) {
      return context.Invalid("All input dimensions should be specified for input '", input.name,
                             "' for model '", context.schema.model_name, "', got ",
                             ShapeText(shape.span()));
    }
    same = spec.expected[i] < 0 || spec.expected[i] == shape[i];
  }
  if (same) return Status::Ok();
  return context.Invalid(
      "unexpected shape for input '", input.name, "' for model '", context.schema.model_name,
      "'. Expected ", ShapeText(spec.expected.span()), ", got ", ShapeText(shape.span()), ". ",
      context.schema.max_batch_size == 0
          ? ""
          : "NOTE: Setting a non-zero max_batch_size in the model config requires a batch "
            "dimension "
            "to be prepended to each input shape. If you want to specify the full shape including "
            "the batch dim in your input dims config, try setting max_batch_size to zero. See the "
            "model configuration docs for more info on max_batch_size.");
}

// Determines the batch size, which must be the same in all inputs; -1 if no input has one.
Status CheckBatchSize(const RequestContext& context, std::span<const InputTensor> inputs,
                      int64_t* batch_size) {
  *batch_size = -1;
  for (const InputTensor& input : inputs) {
    if (context.schema.inputs[input.spec_index].shape_tensor) continue;
    if (input.client_shape.empty()) {
      return context.Invalid("input '", input.name,
                             "' has no shape but model requires batch dimension for '",
                             context.schema.model_name, "'");
    }
    const int64_t size = input.client_shape[0];
    if (*batch_size < 0) *batch_size = size;
    if (size == *batch_size) continue;
    return context.Invalid("input '", input.name, "' batch size does not match other inputs for '",
                           context.schema.model_name, "'");
  }
  if (*batch_size <= context.schema.max_batch_size) return Status::Ok();
  return context.Invalid("inference request batch-size must be <= ", context.schema.max_batch_size,
                         " for '", context.schema.model_name, "'");
}

// Computes the shape that the backend sees: the batch dimension, followed by dims or by the
// configured reshape, in which variable dimensions keep their order.
void ApplyReshape(const InputSpec& spec, InputTensor* input) {
  if (!spec.has_reshape) {
    input->shape = input->client_shape;
    return;
  }
  const size_t batch_dims = spec.expected.size() - spec.dims.size();
  input->shape.assign(input->client_shape.span().first(batch_dims));
  size_t from = 0;
  for (const int64_t dim : spec.reshape) {
    if (dim >= 0) {
      input->shape.push_back(dim);
      continue;
    }
    while (from < spec.dims.size() && spec.dims[from] >= 0) ++from;
    input->shape.push_back(from < spec.dims.size() ? input->client_shape[batch_dims + from] : 1);
    ++from;
  }
}

// Reads the data of a BYTES tensor, whose elements may span several buffers.
class BufferListReader {
 public:
  explicit BufferListReader(const InputBuffers& buffers) : buffers_(buffers) {}

  // Reads up to `count` bytes and copies them to `out` unless it is null. Returns the number of
  // bytes that were read.
  uint64_t Read(void* out, uint64_t count) {
    uint64_t done = 0;
    while (done < count && index_ < buffers_.size()) {
      const InputBuffer& buffer = buffers_[index_];
      const uint64_t size = std::min(count - done, buffer.attributes.byte_size - offset_);
      if (out != nullptr) {
        std::memcpy(static_cast<char*>(out) + done, static_cast<const char*>(buffer.base) + offset_,
                    size);
      }
      done += size;
      offset_ += size;
      if (offset_ == buffer.attributes.byte_size) {
        ++index_;
        offset_ = 0;
      }
    }
    return done;
  }

 private:
  const InputBuffers& buffers_;
  size_t index_ = 0;
  uint64_t offset_ = 0;
};

Status CheckBytes(const RequestContext& context, const InputTensor& input, int64_t expected) {
  for (const InputBuffer& buffer : input.buffers) {
    if (buffer.attributes.memory_type == TRITONSERVER_MEMORY_GPU) return Status::Ok();
  }
  const auto where = [&] {
    return StrCat("inference input '", input.name, "' for model '", context.schema.model_name, "'");
  };
  BufferListReader reader(input.buffers);
  int64_t count = 0;
  uint32_t length = 0;
  while (const uint64_t got = reader.Read(&length, sizeof(length))) {
    if (got < sizeof(length)) {
      return context.Invalid("incomplete string length indicator for ", where(), ", expecting ",
                             sizeof(length), " bytes but only ", got,
                             " bytes available. Please make sure the string length indicator is in "
                             "one buffer.");
    }
    if (count == expected) {
      return context.Invalid("unexpected number of string elements ", count + 1, " for ", where(),
                             ", expecting ", expected);
    }
    ++count;
    if (const uint64_t have = reader.Read(nullptr, length); have < length) {
      if (count < expected) break;
      return InvalidArgError("incomplete string data for inference input '", input.name,
                             "', expecting string of length ", length, " but only ", have,
                             " bytes available");
    }
  }
  if (count == expected) return Status::Ok();
  return context.Invalid("expected ", expected, " string elements for ", where(), ", got ", count);
}

Status CheckByteSize(const RequestContext& context, const InputSpec& spec, const std::string& name,
                     InputTensor* input) {
  input->byte_size = TotalBytes(*input);
  if (spec.any_byte_size) return Status::Ok();
  // CheckInputs rejects batch size 0 at the end. Until then the data is checked as for batch
  // size 1.
  const bool no_rows =
      context.schema.max_batch_size > 0 && !spec.shape_tensor && input->client_shape.front() == 0;
  const Result<int64_t> count = ElementCount(input->client_shape.span().subspan(no_rows ? 1 : 0));
  int64_t expected = 0;
  if (!count.ok() || __builtin_mul_overflow(*count, ByteSize(spec.data_type), &expected)) {
    return context.Invalid("shape ", ShapeText(input->client_shape.span()), " of input '", name,
                           "' for model '", context.schema.model_name,
                           "' needs more than 2^63-1 bytes, got ", input->byte_size);
  }
  if (spec.data_type == DataType::kBytes) return CheckBytes(context, *input, *count);
  if (input->byte_size == static_cast<uint64_t>(expected)) return Status::Ok();
  return context.Invalid("input byte size mismatch for input '", name, "' for model '",
                         context.schema.model_name, "'. Expected ", expected, ", got ",
                         input->byte_size);
}

}  // namespace

std::string RequestLogPrefix(const std::string& request_id) {
  return StrCat("[request id: ", request_id.empty() ? "<id_unknown>" : request_id, "] ");
}

Status CheckInputs(const RequestSchema& schema, const std::string& request_id,
                   std::span<InputTensor> inputs, int64_t* batch_size) {
  const RequestContext context{schema, request_id};
  std::string raw_name;  // the client's name of the raw input, for messages
  for (InputTensor& input : inputs) {
    if (!input.raw) continue;
    NEREID_RETURN_IF_ERROR(DeduceRawInput(context, inputs.size(), &input));
    if (input.raw_name.empty()) input.raw_name = input.name;
    input.name = context.schema.inputs.front().name;
    raw_name = input.raw_name;
  }
  NEREID_RETURN_IF_ERROR(MatchInputs(context, inputs));
  *batch_size = -1;
  if (schema.max_batch_size > 0)
    NEREID_RETURN_IF_ERROR(CheckBatchSize(context, inputs, batch_size));
  for (InputTensor& input : inputs) {
    const InputSpec& spec = context.schema.inputs[input.spec_index];
    if (input.data_type != spec.data_type) {
      return context.Invalid("inference input '", input.name, "' data-type is '",
                             Name(input.data_type), "', but model '", context.schema.model_name,
                             "' expects '", Name(spec.data_type), "'");
    }
    NEREID_RETURN_IF_ERROR(CheckShape(context, spec, input));
    ApplyReshape(spec, &input);
    NEREID_RETURN_IF_ERROR(
        CheckByteSize(context, spec, raw_name.empty() ? input.name : raw_name, &input));
  }
  if (*batch_size == 0) {
    return context.Invalid("inference request batch-size must be >= 1 for '", schema.model_name,
                           "'");
  }
  if (*batch_size < 0) *batch_size = 1;
  return Status::Ok();
}

}  // namespace nereid::core
