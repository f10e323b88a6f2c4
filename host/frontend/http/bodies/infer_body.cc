// Parses the JSON part and assigns the binary part to the inputs.
#include "host/frontend/http/bodies/infer_body.h"

#include <algorithm>
#include <optional>
#include <span>

#include "host/frontend/client_input.h"
#include "host/frontend/http/bodies/data_type.h"
#include "host/frontend/http/bodies/tensor_json.h"

namespace nereid::http {
namespace {

constexpr size_t kMaxDims = 100;
constexpr size_t kMaxTensors = 4096;  // inputs or outputs per request

Status ReadShape(JsonReader& reader, InlineVector<int64_t, 6>& shape) {
  return reader.ReadArray([&]() -> Status {
    NEREID_ASSIGN_OR_RETURN(const uint64_t dim, reader.ReadUint64());
    if (dim > INT64_MAX)
      return reader.ErrorHere("expected a dimension up to ", INT64_MAX, ", got ", dim);
    if (shape.size() == kMaxDims) return reader.ErrorHere("more than ", kMaxDims, " dimensions");
    shape.push_back(static_cast<int64_t>(dim));
    return Status::Ok();
  });
}

Status ReadText(JsonReader& reader, std::string_view what, std::string& text) {
  Result<std::string_view> value = reader.ReadString();
  if (!value.ok()) return std::move(value).status().WithContext(StrCat("'", what, "'"));
  NEREID_RETURN_IF_ERROR(RejectZeroByte(what, *value));
  text = *value;
  return Status::Ok();
}

// Collects the shared_memory_* parameters of a tensor.
class SharedMemoryParameters {
 public:
  // Returns false if `key` is not one of them.
  Result<bool> Take(JsonReader& reader, std::string_view key) {
    if (key == "shared_memory_region") {
      has_region_ = true;
      NEREID_RETURN_IF_ERROR(ReadText(reader, key, range_.region));
      return true;
    }
    if (key == "shared_memory_offset") return ReadSize(reader, key, range_.offset);
    if (key != "shared_memory_byte_size") return false;
    return ReadSize(reader, key, range_.size_bytes);
  }

  bool has_region() const { return has_region_; }
  // Returns none without a region. A missing size is reported by the lookup of the region.
  std::optional<SharedRange> Finish() {
    return has_region_ ? std::optional(std::move(range_)) : std::nullopt;
  }

 private:
  static Result<bool> ReadSize(JsonReader& reader, std::string_view key, uint64_t& size) {
    Result<uint64_t> value = reader.ReadUint64();
    if (!value.ok()) return std::move(value).status().WithContext(StrCat("'", key, "'"));
    size = *value;
    return true;
  }

  SharedRange range_;
  bool has_region_ = false;
};

// One element of "inputs". Its "data" can be parsed only after datatype and shape, which may follow
// it.
class InputReader {
 public:
  InputReader(JsonReader& reader, std::string_view model, std::string_view& binary)
      : reader_(reader), model_(model), binary_(binary) {}

  Result<InputTensor> Read() {
    Status status = ReadMembers();
    if (status.ok()) status = Finish();
    if (status.ok()) return std::move(input_);
    if (has_triton_text_ || input_.name.empty()) return status;
    return std::move(status).WithContext(StrCat("input '", input_.name, "'"));
  }

 private:
  Status ReadMembers() {
    return reader_.ReadObject([&](std::string_view key) -> Status {
      if (key == "name") {
        has_name_ = true;
        return ReadText(reader_, key, input_.name);
      }
      if (key == "datatype") return ReadDataType();
      if (key == "shape") {
        has_shape_ = true;
        return ReadShape(reader_, input_.shape).WithContext("'shape'");
      }
      if (key == "parameters") return ReadParameters();
      if (key == "data") return ReadOrPostponeData();
      return reader_.SkipValue();
    });
  }

  Status ReadDataType() {
    has_datatype_ = true;
    std::string name;
    NEREID_RETURN_IF_ERROR(ReadText(reader_, "datatype", name));
    input_.datatype = ParseDataType(name);
    return Status::Ok();
  }

  Status ReadParameters() {
    if (reader_.Peek() == JsonKind::kNull) return reader_.SkipValue();  // ignored, as in Triton
    return reader_.ReadObject([&](std::string_view key) -> Status {
      if (key == "binary_data_size") {
        Result<uint64_t> size = reader_.ReadUint64();
        if (!size.ok()) return std::move(size).status().WithContext("'binary_data_size'");
        binary_bytes_ = *size;
        return Status::Ok();
      }
      NEREID_ASSIGN_OR_RETURN(const bool is_taken, shared_.Take(reader_, key));
      return is_taken ? Status::Ok() : reader_.SkipValue();
    });
  }

  Status ReadOrPostponeData() {
    has_data_ = true;
    if (has_shape_ && !IsEmpty() && SupportsJson(input_.datatype)) {
      return ReadJsonTensor(reader_, input_.datatype, input_.shape, input_.parsed);
    }
    data_position_ = reader_.position();
    return reader_.SkipValue();
  }

  // As in Triton, the data of a tensor without elements is ignored.
  bool IsEmpty() const {
    return std::find(input_.shape.begin(), input_.shape.end(), 0) != input_.shape.end();
  }

  // Triton's exact message, which clients depend on. It names the input itself if needed.
  template <typename... Parts>
  Status TritonError(const Parts&... parts) {
    has_triton_text_ = true;
    return InvalidArgError(parts...);
  }

  Status CheckSources() {
    std::string sources;
    if (has_data_) sources += " 'data'";
    if (binary_bytes_) sources += " 'binary_data_size'";
    if (shared_.has_region()) sources += " 'shared_memory_region'";
    if (has_data_ + binary_bytes_.has_value() + shared_.has_region() == 1) return Status::Ok();
    return TritonError(
        "Input must set only one of the following fields: 'data', 'binary_data_size' in "
        "'parameters', 'shared_memory_region' in 'parameters'. But ",
        sources.empty() ? "no field is set" : StrCat("set", sources));
  }

  Status Finish() {
    NEREID_RETURN_IF_ERROR(CheckSources());
    if (!has_name_) return InvalidArgError("an input has no 'name'");
    if (!has_datatype_) return InvalidArgError("no 'datatype'");
    if (!has_shape_) return InvalidArgError("no 'shape'");
    if (input_.datatype == TRITONSERVER_TYPE_INVALID) {
      return TritonError("invalid datatype for input ", input_.name);
    }
    input_.shared = shared_.Finish();
    if (input_.shared) return Status::Ok();
    if (binary_bytes_) return AssignBinaryData();
    if (IsEmpty()) return Status::Ok();
    if (!SupportsJson(input_.datatype)) {
      return TritonError("receiving ", DataTypeName(input_.datatype),
                         " data via JSON is not supported. Please use the binary data format for "
                         "input ",
                         input_.name);
    }
    if (!data_position_) return Status::Ok();
    const size_t end = reader_.position();
    reader_.Rewind(*data_position_);
    NEREID_RETURN_IF_ERROR(ReadJsonTensor(reader_, input_.datatype, input_.shape, input_.parsed));
    reader_.Rewind(end);
    return Status::Ok();
  }

  Status AssignBinaryData() {
    if (*binary_bytes_ > binary_.size()) {
      return TritonError("unexpected size for input '", input_.name, "', expecting ",
                         *binary_bytes_ - binary_.size(), " additional bytes for model '", model_,
                         "'");
    }
    input_.binary = binary_.substr(0, *binary_bytes_);
    binary_.remove_prefix(*binary_bytes_);
    return Status::Ok();
  }

  JsonReader& reader_;
  const std::string_view model_;
  std::string_view& binary_;
  InputTensor input_;
  SharedMemoryParameters shared_;
  bool has_triton_text_ = false;  // the message names the input itself
  bool has_name_ = false;
  bool has_datatype_ = false;
  bool has_shape_ = false;
  bool has_data_ = false;
  std::optional<size_t> data_position_;
  std::optional<uint64_t> binary_bytes_;
};

// One element of "outputs". As in Triton, the request's `binary_data_output` does not apply to an
// output that is listed.
struct ParsedOutput {
  std::string name;
  bool is_binary = false;
  uint64_t num_classes = 0;
  std::optional<SharedRange> shared;
  const char* conflicting_parameter = nullptr;  // parameter that must not be combined with a region
};

Status ReadOutputParameters(JsonReader& reader, ParsedOutput& output) {
  if (reader.Peek() == JsonKind::kNull) return reader.SkipValue();  // ignored, as in Triton
  SharedMemoryParameters shared;
  NEREID_RETURN_IF_ERROR(reader.ReadObject([&](std::string_view key) -> Status {
    if (key == "binary_data") {
      Result<bool> value = reader.ReadBool();
      if (!value.ok()) return std::move(value).status().WithContext("'binary_data'");
      output.is_binary = *value;
      return Status::Ok();
    }
    if (key == "classification") {
      Result<uint64_t> count = reader.ReadUint64();
      if (!count.ok()) return std::move(count).status().WithContext("'classification'");
      output.num_classes = *count;
      return Status::Ok();
    }
    NEREID_ASSIGN_OR_RETURN(const bool is_taken, shared.Take(reader, key));
    return is_taken ? Status::Ok() : reader.SkipValue();
  }));
  output.shared = shared.Finish();
  if (output.shared && output.is_binary) {
    output.conflicting_parameter = "binary_data";
  } else if (output.shared && output.num_classes != 0) {
    output.conflicting_parameter = "classification";
  }
  return Status::Ok();
}

Result<ParsedOutput> ReadOutput(JsonReader& reader) {
  ParsedOutput output;
  bool has_name = false;
  Status status = reader.ReadObject([&](std::string_view key) -> Status {
    if (key == "name") {
      has_name = true;
      return ReadText(reader, key, output.name);
    }
    if (key == "parameters") return ReadOutputParameters(reader, output);
    return reader.SkipValue();
  });
  if (status.ok() && !has_name) status = InvalidArgError("an output has no 'name'");
  if (status.ok() && output.conflicting_parameter != nullptr) {
    return InvalidArgError("Output can't set both 'shared_memory_region' and '",
                           output.conflicting_parameter, "'");
  }
  if (status.ok()) return output;
  return output.name.empty() ? status
                             : std::move(status).WithContext(StrCat("output '", output.name, "'"));
}

Status ReadParameters(JsonReader& reader, InferBody& body) {
  return reader.ReadObject([&](std::string_view key) -> Status {
    if (key != "binary_data_output") return ReadRequestParameter(reader, key, body.options);
    Result<bool> value = reader.ReadBool();
    if (!value.ok()) return std::move(value).status().WithContext("'binary_data_output'");
    body.binary_outputs = *value;
    return Status::Ok();
  });
}

}  // namespace

Status ParseInferBody(std::string_view json, std::string_view binary, std::string_view model,
                      size_t max_depth, InferBody& body) {
  JsonReader reader(json, max_depth);
  bool has_inputs = false;
  std::vector<ParsedOutput> outputs;
  NEREID_RETURN_IF_ERROR(reader.ReadObject([&](std::string_view key) -> Status {
    if (key == "id") return ReadText(reader, key, body.options.id);
    if (key == "parameters") return ReadParameters(reader, body);
    if (key == "inputs") {
      has_inputs = true;
      return reader.ReadArray([&]() -> Status {
        if (body.inputs.size() == kMaxTensors)
          return reader.ErrorHere("more than ", kMaxTensors, " inputs");
        NEREID_ASSIGN_OR_RETURN(InputTensor input, InputReader(reader, model, binary).Read());
        body.inputs.push_back(std::move(input));
        return Status::Ok();
      });
    }
    if (key == "outputs") {
      return reader.ReadArray([&]() -> Status {
        if (outputs.size() == kMaxTensors)
          return reader.ErrorHere("more than ", kMaxTensors, " outputs");
        NEREID_ASSIGN_OR_RETURN(ParsedOutput output, ReadOutput(reader));
        outputs.push_back(std::move(output));
        return Status::Ok();
      });
    }
    return reader.SkipValue();
  }));
  NEREID_RETURN_IF_ERROR(reader.ExpectEnd());
  if (!has_inputs) return InvalidArgError("the request has no 'inputs'");
  if (!binary.empty()) {
    return InvalidArgError("unexpected additional input data for model '", model, "'");
  }
  for (ParsedOutput& output : outputs) {
    body.outputs.push_back(
        {std::move(output.name), output.is_binary, output.num_classes, std::move(output.shared)});
  }
  return Status::Ok();
}

Status ReserveInputs(const InputTensors& inputs, ByteReservation& reservation) {
  constexpr size_t kMinBytes = 16 << 10;
  size_t parsed_bytes = 0;
  for (const InputTensor& input : inputs) parsed_bytes += input.parsed.capacity();
  if (parsed_bytes < kMinBytes || reservation.GrowBy(parsed_bytes)) return Status::Ok();
  return UnavailableError("input tensors of ", parsed_bytes,
                          " bytes exceed the free memory for requests in flight (",
                          reservation.budget()->tightest().flag(), ")");
}

}  // namespace nereid::http
