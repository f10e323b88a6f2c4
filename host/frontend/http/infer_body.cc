// The walk over the JSON part, then the hand-out of the binary part.
#include "host/frontend/http/infer_body.h"

#include <optional>
#include <span>

#include "host/frontend/http/data_type.h"
#include "host/frontend/http/tensor_json.h"

namespace nereid::http {
namespace {

constexpr size_t kMaxDims = 64;
constexpr size_t kMaxTensors = 4096;  // inputs or outputs of one request

Status ReadShape(JsonReader& reader, std::vector<int64_t>& shape) {
  return reader.ReadArray([&]() -> Status {
    NEREID_ASSIGN_OR_RETURN(const uint64_t dim, reader.ReadUint64());
    if (dim > INT64_MAX) return reader.ErrorHere("a dimension does not fit INT64: ", dim);
    if (shape.size() == kMaxDims) return reader.ErrorHere("more than ", kMaxDims, " dimensions");
    shape.push_back(static_cast<int64_t>(dim));
    return Status::Ok();
  });
}

Status ReadText(JsonReader& reader, std::string_view what, std::string& text) {
  Result<std::string_view> value = reader.ReadString();
  if (!value.ok()) return std::move(value).status().WithContext(StrCat("'", what, "'"));
  // Names and ids cross the C API, where a zero byte would cut them short.
  if (value->find('\0') != std::string_view::npos) {
    return InvalidArgError("'", what, "' holds a zero byte");
  }
  text = *value;
  return Status::Ok();
}

// The shared_memory_* parameters of a tensor, gathered.
class SharedReader {
 public:
  // False when `key` is none of them.
  Result<bool> Take(JsonReader& reader, std::string_view key) {
    if (key == "shared_memory_region") {
      has_region_ = true;
      NEREID_RETURN_IF_ERROR(ReadText(reader, key, range_.region));
      return true;
    }
    if (key == "shared_memory_offset") return TakeSize(reader, key, range_.offset);
    if (key != "shared_memory_byte_size") return false;
    has_size_ = true;
    return TakeSize(reader, key, range_.size_bytes);
  }

  // None when there was no region.
  Result<std::optional<SharedRange>> Finish() {
    if (!has_region_) return std::optional<SharedRange>();
    if (has_size_) return std::optional(std::move(range_));
    return InvalidArgError("'shared_memory_region' is '", range_.region,
                           "', but there is no 'shared_memory_byte_size'");
  }

 private:
  static Result<bool> TakeSize(JsonReader& reader, std::string_view key, uint64_t& size) {
    Result<uint64_t> value = reader.ReadUint64();
    if (!value.ok()) return std::move(value).status().WithContext(StrCat("'", key, "'"));
    size = *value;
    return true;
  }

  SharedRange range_;
  bool has_region_ = false;
  bool has_size_ = false;
};

// One element of "inputs". Its "data" can be parsed only once datatype and shape are known, which
// may come after it.
class InputReader {
 public:
  InputReader(JsonReader& reader, std::string_view& binary) : reader_(reader), binary_(binary) {}

  Result<InputTensor> Read() {
    Status status = ReadMembers();
    if (status.ok()) status = Finish();
    if (status.ok()) return std::move(input_);
    if (input_.name.empty()) return status;
    return std::move(status).WithContext(StrCat("input '", input_.name, "'"));
  }

 private:
  Status ReadMembers() {
    return reader_.ReadObject([&](std::string_view key) -> Status {
      if (key == "name") return ReadText(reader_, key, input_.name);
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
    std::string name;
    NEREID_RETURN_IF_ERROR(ReadText(reader_, "datatype", name));
    input_.datatype = ParseDataType(name);
    if (input_.datatype == TRITONSERVER_TYPE_INVALID) {
      return InvalidArgError("unknown datatype '", name, "'");
    }
    return Status::Ok();
  }

  Status ReadParameters() {
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

  bool KnowsLayout() const { return has_shape_ && input_.datatype != TRITONSERVER_TYPE_INVALID; }

  Status ReadOrPostponeData() {
    has_data_ = true;
    if (KnowsLayout()) return ReadJsonTensor(reader_, input_.datatype, input_.shape, input_.parsed);
    data_position_ = reader_.position();
    return reader_.SkipValue();
  }

  Status Finish() {
    if (input_.name.empty()) return InvalidArgError("an input has no 'name'");
    if (input_.datatype == TRITONSERVER_TYPE_INVALID) return InvalidArgError("no 'datatype'");
    if (!has_shape_) return InvalidArgError("no 'shape'");
    NEREID_ASSIGN_OR_RETURN(input_.shared, shared_.Finish());
    if (input_.shared) {
      if (!has_data_ && !binary_bytes_) return Status::Ok();
      return InvalidArgError("expected no data beside 'shared_memory_region', got '",
                             has_data_ ? "data" : "binary_data_size", "'");
    }
    if (has_data_ == binary_bytes_.has_value()) {
      return InvalidArgError("expected either 'data' or 'binary_data_size' in 'parameters', got ",
                             has_data_ ? "both" : "none");
    }
    if (binary_bytes_) return TakeBinary();
    if (!data_position_) return Status::Ok();
    const size_t end = reader_.position();
    reader_.Rewind(*data_position_);
    NEREID_RETURN_IF_ERROR(ReadJsonTensor(reader_, input_.datatype, input_.shape, input_.parsed));
    reader_.Rewind(end);
    return Status::Ok();
  }

  Status TakeBinary() {
    if (*binary_bytes_ > binary_.size()) {
      return InvalidArgError("'binary_data_size' is ", *binary_bytes_, ", but only ",
                             binary_.size(), " bytes are left in the body");
    }
    input_.binary = binary_.substr(0, *binary_bytes_);
    binary_.remove_prefix(*binary_bytes_);
    return Status::Ok();
  }

  JsonReader& reader_;
  std::string_view& binary_;
  InputTensor input_;
  SharedReader shared_;
  bool has_shape_ = false;
  bool has_data_ = false;
  std::optional<size_t> data_position_;
  std::optional<uint64_t> binary_bytes_;
};

// One element of "outputs"; `is_binary` is set only where it is given.
struct ParsedOutput {
  std::string name;
  std::optional<bool> is_binary;
  uint64_t num_classes = 0;
  std::optional<SharedRange> shared;
};

Status ReadOutputParameters(JsonReader& reader, ParsedOutput& output) {
  SharedReader shared;
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
  NEREID_ASSIGN_OR_RETURN(output.shared, shared.Finish());
  if (!output.shared || output.num_classes == 0) return Status::Ok();
  return InvalidArgError("'classification' and 'shared_memory_region' exclude each other");
}

Result<ParsedOutput> ReadOutput(JsonReader& reader) {
  ParsedOutput output;
  Status status = reader.ReadObject([&](std::string_view key) -> Status {
    if (key == "name") return ReadText(reader, key, output.name);
    if (key == "parameters") return ReadOutputParameters(reader, output);
    return reader.SkipValue();
  });
  if (status.ok() && output.name.empty()) status = InvalidArgError("an output has no 'name'");
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

Status ParseInferBody(std::string_view json, std::string_view binary, size_t max_depth,
                      InferBody& body) {
  JsonReader reader(json, max_depth);
  bool has_inputs = false;
  std::vector<ParsedOutput> outputs;
  NEREID_RETURN_IF_ERROR(reader.ReadObject([&](std::string_view key) -> Status {
    if (key == "id") return ReadText(reader, key, body.options.id);
    if (key == "parameters") return ReadParameters(reader, body);
    if (key == "inputs") {
      has_inputs = true;
      return reader.ReadArray([&]() -> Status {
        if (body.inputs.size() == kMaxTensors) return reader.ErrorHere("too many inputs");
        NEREID_ASSIGN_OR_RETURN(InputTensor input, InputReader(reader, binary).Read());
        body.inputs.push_back(std::move(input));
        return Status::Ok();
      });
    }
    if (key == "outputs") {
      return reader.ReadArray([&]() -> Status {
        if (outputs.size() == kMaxTensors) return reader.ErrorHere("too many outputs");
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
    return InvalidArgError("unexpected additional input data: ", binary.size(),
                           " bytes after the last tensor");
  }
  for (ParsedOutput& output : outputs) {
    body.outputs.push_back({std::move(output.name), output.is_binary.value_or(body.binary_outputs),
                            output.num_classes, std::move(output.shared)});
  }
  return Status::Ok();
}

}  // namespace nereid::http
