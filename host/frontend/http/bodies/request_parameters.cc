// Parses the parameters of a request: those of the protocol and those of the model.
#include "host/frontend/client_input.h"
#include "host/frontend/http/bodies/infer_body.h"

namespace nereid::http {

Result<RequestParameter> ReadParameter(JsonReader& reader, std::string_view name) {
  NEREID_RETURN_IF_ERROR(RejectZeroByte("parameters", name));
  RequestParameter parameter{std::string(name), {}};
  switch (reader.Peek()) {
    case JsonKind::kString: {
      NEREID_ASSIGN_OR_RETURN(const std::string_view text, reader.ReadString());
      NEREID_RETURN_IF_ERROR(RejectZeroByte(name, text).WithContext("parameter"));
      parameter.value = std::string(text);
      return parameter;
    }
    case JsonKind::kBool: {
      NEREID_ASSIGN_OR_RETURN(parameter.value, reader.ReadBool());
      return parameter;
    }
    case JsonKind::kNumber: {
      const size_t start = reader.position();
      NEREID_ASSIGN_OR_RETURN(const JsonNumber number, reader.ReadNumber());
      reader.Rewind(start);
      if (number.is_integer) {
        const Result<int64_t> whole = reader.ReadInt64();
        if (whole.ok()) {
          parameter.value = *whole;
          return parameter;
        }
        reader.Rewind(start);  // exceeds int64, and the C API has no larger integer type
      }
      NEREID_ASSIGN_OR_RETURN(parameter.value, reader.ReadDouble());
      return parameter;
    }
    case JsonKind::kObject:
    case JsonKind::kArray:
    case JsonKind::kNull:
      return InvalidArgError("parameter '", name,
                             "' has invalid type. It should be either 'int', 'bool', or 'string'.");
    default:
      return reader.Unexpected("a value");
  }
}

namespace {

Status ReadSequenceId(JsonReader& reader, RequestOptions& options) {
  if (reader.Peek() == JsonKind::kString) {
    NEREID_ASSIGN_OR_RETURN(const std::string_view id, reader.ReadString());
    NEREID_RETURN_IF_ERROR(RejectZeroByte("sequence_id", id));
    options.sequence_name = std::string(id);
    return Status::Ok();
  }
  NEREID_ASSIGN_OR_RETURN(options.sequence_id, reader.ReadUint64());
  return Status::Ok();
}

// Returns true if the protocol defines `name`. The value has been read then, or `status` is an
// error.
bool ReadProtocolParameter(JsonReader& reader, std::string_view name, RequestOptions& options,
                           Status& status) {
  const auto read_bool = [&](bool& value) {
    Result<bool> result = reader.ReadBool();
    if (result.ok()) value = *result;
    return std::move(result).status();
  };
  const auto read_uint = [&](uint64_t& value) {
    Result<uint64_t> result = reader.ReadUint64();
    if (result.ok()) value = *result;
    return std::move(result).status();
  };
  if (name == "sequence_id") {
    status = ReadSequenceId(reader, options);
  } else if (name == "sequence_start") {
    status = read_bool(options.sequence_start);
  } else if (name == "sequence_end") {
    status = read_bool(options.sequence_end);
  } else if (name == "priority") {
    status = read_uint(options.priority);
  } else if (name == "timeout") {
    status = read_uint(options.timeout_us);
  } else {
    return false;
  }
  return true;
}

}  // namespace

Status ReadRequestParameter(JsonReader& reader, std::string_view name, RequestOptions& options) {
  Status status;
  if (ReadProtocolParameter(reader, name, options, status)) {
    return std::move(status).WithContext(StrCat("parameter '", name, "'"));
  }
  if (name.substr(0, 7) == "triton_") {
    return InvalidArgError(
        "parameter keys starting with 'triton_' are reserved for Triton usage and should not be "
        "specified.");
  }
  NEREID_ASSIGN_OR_RETURN(RequestParameter parameter, ReadParameter(reader, name));
  options.parameters.push_back(std::move(parameter));
  return Status::Ok();
}

}  // namespace nereid::http
