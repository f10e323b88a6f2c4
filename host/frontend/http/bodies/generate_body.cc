// An input's value is a scalar or an array; `id` and the object `parameters` are special.
#include "host/frontend/http/bodies/generate_body.h"

#include <functional>

#include "host/frontend/http/bodies/data_type.h"
#include "host/frontend/http/bodies/tensor_json.h"
#include "host/frontend/zero_byte.h"

namespace nereid::http {
namespace {

Result<InputTensor> ReadInput(JsonReader& reader, const InputSignature& signature) {
  if (!HasJsonForm(signature.datatype)) {
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
  // As Triton has it, the outermost array tells how many elements there are: what is nested in it
  // may not add any.
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

// Of the object `parameters`: as Triton has it, a member that names an input is one too.
Status ReadNested(JsonReader& reader, std::string_view name, const ModelSignature& model,
                  GenerateBody& body) {
  if (const InputSignature* signature = model.Find(name)) {
    NEREID_ASSIGN_OR_RETURN(InputTensor input, ReadInput(reader, *signature));
    body.inputs.push_back(std::move(input));
    return Status::Ok();
  }
  return ReadRequestParameter(reader, name, body.options)
      .WithContext("Converting keyword: 'parameters'");
}

Status ReadId(JsonReader& reader, std::string& id) {
  Result<std::string_view> text = reader.ReadString();
  if (!text.ok()) return std::move(text).status().WithContext("'id'");
  NEREID_RETURN_IF_ERROR(RefuseZeroByte("id", *text));
  id = *text;
  return Status::Ok();
}

}  // namespace

Status ParseGenerateBody(std::string_view json, const ModelSignature& model, size_t max_depth,
                         GenerateBody& body) {
  JsonReader reader(json, max_depth);
  NEREID_RETURN_IF_ERROR(reader.ReadObject([&](std::string_view key) -> Status {
    const InputSignature* const signature = model.Find(key);
    if (key == "id") {
      const size_t start = reader.position();
      NEREID_RETURN_IF_ERROR(ReadId(reader, body.options.id));
      // As Triton has it, the model sees the id too: as its input of that name, or as a parameter.
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
    NEREID_ASSIGN_OR_RETURN(RequestParameter parameter, ReadParameter(reader, key));
    body.options.parameters.push_back(std::move(parameter));
    return Status::Ok();
  }));
  return reader.ExpectEnd();
}

}  // namespace nereid::http
