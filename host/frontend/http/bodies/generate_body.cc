// An input's value is a scalar or an array. The members `id` and `parameters` are special.
#include "host/frontend/http/bodies/generate_body.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "host/frontend/client_input.h"
#include "host/frontend/http/bodies/data_type.h"
#include "host/frontend/http/bodies/generate_members.h"
#include "host/frontend/http/bodies/tensor_json.h"
#include "host/frontend/http/json/json_reader.h"

namespace nereid::http {
namespace {

constexpr size_t kMaxMetadataDepth = 64;

Result<InputSignature> ReadInputSignature(JsonReader& reader) {
  InputSignature input;
  NEREID_RETURN_IF_ERROR(reader.ReadObject([&](std::string_view key) -> Status {
    if (key == "name") {
      NEREID_ASSIGN_OR_RETURN(input.name, reader.ReadString());
    } else if (key == "datatype") {
      NEREID_ASSIGN_OR_RETURN(const std::string_view name, reader.ReadString());
      input.datatype = ParseDataType(name);
    } else if (key == "shape") {
      return reader.ReadArray([&]() -> Status {
        NEREID_ASSIGN_OR_RETURN(const int64_t dim, reader.ReadInt64());
        input.shape.push_back(dim);
        return Status::Ok();
      });
    } else {
      return reader.SkipValue();
    }
    return Status::Ok();
  }));
  return input;
}

Result<InputTensor> ReadInput(JsonReader& reader, const InputSignature& signature) {
  if (!SupportsJson(signature.datatype)) {
    return InvalidArgError("receiving ", DataTypeName(signature.datatype),
                           " data via JSON is not supported. Please use the binary data format for "
                           "input ",
                           signature.name);
  }
  InputTensor input;
  input.name = signature.name;
  input.datatype = signature.datatype;
  input.parsed = ByteBuffer(64);
  int64_t num_elements = 0;
  const std::function<Status()> read_element = [&]() -> Status {
    if (reader.Peek() == JsonKind::kArray) return reader.ReadArray(read_element);
    ++num_elements;
    return ReadJsonElement(reader, signature.datatype, input.parsed);
  };
  // As in Triton, the outermost array determines the number of elements. Nested arrays must not add
  // any.
  const bool is_array = reader.Peek() == JsonKind::kArray;
  int64_t num_outermost = is_array ? 0 : 1;
  const Status status = !is_array ? read_element() : reader.ReadArray([&] {
    ++num_outermost;
    return read_element();
  });
  if (!status.ok()) return Status(status).WithContext(StrCat("input '", input.name, "'"));
  NEREID_ASSIGN_OR_RETURN(const std::vector<int64_t> shape, FillShape(signature, num_outermost));
  if (num_outermost != num_elements) {
    return InvalidArgError("input '", input.name,
                           "': Shape does not match true shape of 'data' field");
  }
  input.shape.assign(shape);
  return input;
}

// Checks the name of a member that is to become a parameter. `false` asks for no feature.
Status CheckName(JsonReader& reader, std::string_view name, const ModelSignature& model) {
  if (!IsLanguageModel(model)) return Status::Ok();
  bool is_false = false;
  if (reader.Peek() == JsonKind::kBool) {
    const size_t start = reader.position();
    NEREID_ASSIGN_OR_RETURN(const bool value, reader.ReadBool());
    reader.Rewind(start);
    is_false = !value;
  }
  return CheckUnknownMember(name, is_false, model);
}

// Notes the member whose reading has just added a parameter, which no language model reads.
void NoteParameter(const ModelSignature& model, GenerateBody& body) {
  if (IsLanguageModel(model)) body.unknown_members.push_back(body.options.parameters.back().name);
}

// Reads a member of the object `parameters`. As in Triton, a member that names an input is an
// input.
Status ReadNested(JsonReader& reader, std::string_view name, const ModelSignature& model,
                  GenerateBody& body) {
  if (const InputSignature* signature = model.Find(name)) {
    NEREID_ASSIGN_OR_RETURN(InputTensor input, ReadInput(reader, *signature));
    body.inputs.push_back(std::move(input));
    return Status::Ok();
  }
  NEREID_RETURN_IF_ERROR(CheckName(reader, name, model));
  const size_t num_parameters = body.options.parameters.size();
  NEREID_RETURN_IF_ERROR(ReadRequestParameter(reader, name, body.options)
                             .WithContext("Converting keyword: 'parameters'"));
  // The parameters of the protocol, such as `timeout`, are options.
  if (body.options.parameters.size() > num_parameters) NoteParameter(model, body);
  return Status::Ok();
}

Status ReadId(JsonReader& reader, std::string& id) {
  Result<std::string_view> text = reader.ReadString();
  if (!text.ok()) return std::move(text).status().WithContext("'id'");
  NEREID_RETURN_IF_ERROR(RejectZeroByte("id", *text));
  id = *text;
  return Status::Ok();
}

}  // namespace

const InputSignature* ModelSignature::Find(std::string_view name) const {
  for (const InputSignature& input : inputs) {
    if (input.name == name) return &input;
  }
  return nullptr;
}

Result<ModelSignature> ParseModelSignature(std::string_view metadata) {
  JsonReader reader(metadata, kMaxMetadataDepth);
  ModelSignature signature;
  NEREID_RETURN_IF_ERROR(reader.ReadObject([&](std::string_view key) -> Status {
    if (key != "inputs") return reader.SkipValue();
    return reader.ReadArray([&]() -> Status {
      NEREID_ASSIGN_OR_RETURN(InputSignature input, ReadInputSignature(reader));
      signature.inputs.push_back(std::move(input));
      return Status::Ok();
    });
  }));
  return signature;
}

Result<std::vector<int64_t>> FillShape(const InputSignature& input, int64_t num_elements) {
  const auto mismatch = [&] {
    return InvalidArgError("The schema can not convert input '", input.name,
                           "' to tensor with proper shape");
  };
  std::vector<int64_t> shape = input.shape;
  int64_t* innermost_variable = nullptr;
  int64_t fixed_size = 1;
  for (int64_t& dim : shape) {
    if (dim < 0) {
      dim = 1;
      innermost_variable = &dim;
    } else if (__builtin_mul_overflow(fixed_size, dim, &fixed_size)) {
      return mismatch();
    }
  }
  if (fixed_size == 0 ? num_elements != 0 : num_elements % fixed_size != 0) return mismatch();
  const int64_t rest = fixed_size == 0 ? 1 : num_elements / fixed_size;
  if (innermost_variable != nullptr) {
    *innermost_variable = rest;
  } else if (rest != 1) {
    return mismatch();
  }
  return shape;
}

Status ParseGenerateBody(std::string_view json, const ModelSignature& model, size_t max_depth,
                         GenerateBody& body) {
  JsonReader reader(json, max_depth);
  NEREID_RETURN_IF_ERROR(reader.ReadObject([&](std::string_view key) -> Status {
    const InputSignature* const signature = model.Find(key);
    if (key == "id") {
      const size_t start = reader.position();
      NEREID_RETURN_IF_ERROR(ReadId(reader, body.options.id));
      // As in Triton, the model also receives the id, as the input of that name or as a parameter.
      if (signature == nullptr) {
        body.options.parameters.push_back({"id", body.options.id});
        return Status::Ok();
      }
      reader.Rewind(start);
    }
    if (key == "parameters" && signature != nullptr) {
      return InvalidArgError(
          "Keyword 'parameters' for nested schema also given as input tensor name");
    }
    if (signature != nullptr) {
      NEREID_ASSIGN_OR_RETURN(InputTensor input, ReadInput(reader, *signature));
      body.inputs.push_back(std::move(input));
      return Status::Ok();
    }
    if (key == "parameters") {
      return reader.ReadObject(
          [&](std::string_view name) { return ReadNested(reader, name, model, body); });
    }
    NEREID_RETURN_IF_ERROR(CheckName(reader, key, model));
    NEREID_ASSIGN_OR_RETURN(RequestParameter parameter, ReadParameter(reader, key));
    body.options.parameters.push_back(std::move(parameter));
    NoteParameter(model, body);
    return Status::Ok();
  }));
  return reader.ExpectEnd();
}

}  // namespace nereid::http
