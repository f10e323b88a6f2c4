// Metadata JSON to signature; element counts to shapes.
#include "host/frontend/http/bodies/model_signature.h"

#include <algorithm>
#include <optional>

#include "host/frontend/http/bodies/data_type.h"
#include "host/frontend/http/json/json_reader.h"

namespace nereid::http {
namespace {

constexpr size_t kMaxMetadataDepth = 64;

Result<InputSignature> ReadInput(JsonReader& reader) {
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
      NEREID_ASSIGN_OR_RETURN(InputSignature input, ReadInput(reader));
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
  int64_t* innermost_open = nullptr;
  int64_t num_fixed = 1;
  for (int64_t& dim : shape) {
    if (dim < 0) {
      dim = 1;
      innermost_open = &dim;
    } else if (__builtin_mul_overflow(num_fixed, dim, &num_fixed)) {
      return mismatch();
    }
  }
  if (num_fixed == 0 ? num_elements != 0 : num_elements % num_fixed != 0) return mismatch();
  const int64_t rest = num_fixed == 0 ? 1 : num_elements / num_fixed;
  if (innermost_open != nullptr) {
    *innermost_open = rest;
  } else if (rest != 1) {
    return mismatch();
  }
  return shape;
}

}  // namespace nereid::http
