// Validation of safetensors headers and of the index of shards.
#include "backends/llm_core/checkpoint/safetensors.h"
#include "backends/llm_core/checkpoint/error_list.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/json_reader.h"

namespace nereid::llm {
namespace {

using Json = nlohmann::json;

struct ByteRange {
  uint64_t begin = 0;
  uint64_t end = 0;
  std::string_view tensor;
};

// Parses the header's JSON. A duplicate tensor name is an error; the parser would keep the last
// one.
Result<Json> ParseHeader(std::string_view text, std::string_view file_name) {
  std::set<std::string> names;
  std::string duplicate;
  const auto note_key = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::key && depth == 1 &&
        !names.insert(parsed.get<std::string>()).second) {
      duplicate = parsed.get<std::string>();
    }
    return true;
  };
  const JsonLimits limits{.max_bytes = kMaxHeaderBytes};
  NEREID_ASSIGN_OR_RETURN(
      Json header,
      ReadJsonObject<Json>(text, StrCat("'", file_name, "': header of ", text.size(), " bytes"),
                           limits, note_key));
  if (!duplicate.empty()) {
    return InvalidArgError("'", file_name, "': tensor '", ShowText(duplicate), "' occurs twice");
  }
  return header;
}

std::optional<uint64_t> AsUnsigned(const Json& value) {
  if (!value.is_number_unsigned()) return std::nullopt;
  return value.get<uint64_t>();
}

Status ParseShape(const Json& entry, CheckpointTensor& tensor) {
  const auto shape = entry.find("shape");
  if (shape == entry.end() || !shape->is_array()) return InvalidArgError("'shape' is not a list");
  constexpr size_t kMaxDims = 64;
  if (shape->size() > kMaxDims) {
    return InvalidArgError("'shape' has ", shape->size(), " dimensions, limit ", kMaxDims);
  }
  for (const Json& dim : *shape) {
    const std::optional<uint64_t> size = AsUnsigned(dim);
    if (!size || *size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return InvalidArgError("'shape' holds ", ShowJson(dim), ", expected a non-negative integer");
    }
    tensor.shape.push_back(static_cast<int64_t>(*size));
  }
  return Status::Ok();
}

// The size that shape and dtype require; nullopt on overflow.
std::optional<uint64_t> ExpectedBytes(const CheckpointTensor& tensor) {
  uint64_t bytes = Info(tensor.type).size_bytes;
  for (const int64_t dim : tensor.shape) {
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(dim), &bytes)) return std::nullopt;
  }
  return bytes;
}

Result<ByteRange> ParseOffsets(const Json& entry, uint64_t data_bytes) {
  const auto offsets = entry.find("data_offsets");
  if (offsets == entry.end() || !offsets->is_array() || offsets->size() != 2) {
    return InvalidArgError("'data_offsets' is not a list of two");
  }
  const std::optional<uint64_t> begin = AsUnsigned((*offsets)[0]);
  const std::optional<uint64_t> end = AsUnsigned((*offsets)[1]);
  if (!begin || !end || *begin > *end) {
    return InvalidArgError("data_offsets ", ShowJson(*offsets), " is not an ascending range");
  }
  if (*end > data_bytes) {
    return InvalidArgError("data_offsets ", ShowJson(*offsets), " exceed the file's ", data_bytes,
                           " bytes of data (truncated file?)");
  }
  return ByteRange{*begin, *end, {}};
}

Result<ByteRange> ParseTensor(const Json& entry, std::span<const uint8_t> data,
                              CheckpointTensor& tensor) {
  if (!entry.is_object()) return InvalidArgError("the entry is not an object");
  const auto type = entry.find("dtype");
  if (type == entry.end() || !type->is_string()) return InvalidArgError("'dtype' is not a string");
  const std::optional<CheckpointDataType> parsed =
      ParseCheckpointDataType(type->get_ref<const std::string&>());
  if (!parsed) return InvalidArgError("unknown dtype ", ShowJson(*type));
  tensor.type = *parsed;
  NEREID_RETURN_IF_ERROR(ParseShape(entry, tensor));
  NEREID_ASSIGN_OR_RETURN(ByteRange range, ParseOffsets(entry, data.size()));
  const std::optional<uint64_t> expected = ExpectedBytes(tensor);
  if (!expected || *expected != range.end - range.begin) {
    return InvalidArgError(Info(tensor.type).name, " ", ShapeText(tensor.shape), " needs ",
                           expected ? StrCat(*expected) : "more than 2^64",
                           " bytes, data_offsets give ", range.end - range.begin);
  }
  tensor.bytes = data.subspan(range.begin, range.end - range.begin);
  return range;
}

Status CheckLayout(std::vector<ByteRange>& ranges, uint64_t data_bytes) {
  std::sort(ranges.begin(), ranges.end(), [](const ByteRange& a, const ByteRange& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  uint64_t position = 0;
  std::string_view previous = "the header";
  for (const ByteRange& range : ranges) {
    if (range.begin < position) {
      return InvalidArgError("tensors '", ShowText(previous), "' and '", ShowText(range.tensor),
                             "' overlap");
    }
    if (range.begin > position) {
      return InvalidArgError("gap of ", range.begin - position, " bytes before tensor '",
                             ShowText(range.tensor), "'");
    }
    position = range.end;
    previous = range.tensor;
  }
  if (position != data_bytes) {
    return InvalidArgError(data_bytes - position, " bytes follow the last tensor");
  }
  return Status::Ok();
}

}  // namespace

std::string ShapeText(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += StrCat(i == 0 ? "" : ", ", shape[i]);
  return text + "]";
}

Result<TensorMap> ParseSafetensors(std::span<const uint8_t> file, std::string_view name) {
  if (file.size() < 8) {
    return InvalidArgError("'", name, "': ", file.size(),
                           " bytes are too few for a safetensors file");
  }
  uint64_t header_bytes = 0;
  for (int i = 7; i >= 0; --i) header_bytes = header_bytes << 8 | file[i];
  if (header_bytes > kMaxHeaderBytes || header_bytes > file.size() - 8) {
    return InvalidArgError("'", name, "': header of ", header_bytes, " bytes in a file of ",
                           file.size(), " bytes (limit ", kMaxHeaderBytes, ")");
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + 8, header_bytes);
  NEREID_ASSIGN_OR_RETURN(const Json header, ParseHeader(text, name));
  const std::span<const uint8_t> data = file.subspan(8 + header_bytes);

  TensorMap tensors;
  std::vector<ByteRange> ranges;
  for (const auto& [tensor_name, entry] : header.items()) {
    if (tensor_name == "__metadata__") continue;
    CheckpointTensor tensor;
    Result<ByteRange> range = ParseTensor(entry, data, tensor);
    if (!range.ok()) {
      return std::move(range).status().WithContext(
          StrCat("'", name, "': tensor '", ShowText(tensor_name), "'"));
    }
    const auto slot = tensors.emplace(tensor_name, std::move(tensor)).first;
    range->tensor = slot->first;
    ranges.push_back(*range);
  }
  NEREID_RETURN_IF_ERROR(CheckLayout(ranges, data.size()).WithContext(StrCat("'", name, "'")));
  return tensors;
}

Result<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  NEREID_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  NEREID_ASSIGN_OR_RETURN(TensorMap tensors, ParseSafetensors(file.bytes(), path));
  return SafetensorsFile(std::move(file), std::move(tensors));
}

std::set<std::string> TensorIndex::files() const {
  std::set<std::string> names;
  for (const auto& [tensor, file] : file_of) names.insert(file);
  return names;
}

Result<TensorIndex> ParseTensorIndex(std::string_view text, std::string_view path) {
  NEREID_ASSIGN_OR_RETURN(const Json json, ReadJsonObject<Json>(text, StrCat("'", path, "'")));
  if (!json.contains("weight_map") || !json["weight_map"].is_object()) {
    return InvalidArgError("'", path, "': no object 'weight_map'");
  }
  TensorIndex index;
  ErrorList misnamed("not in a file of this folder");
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || name == "." || name == ".." || name.find('\0') != std::string::npos ||
        std::filesystem::path(name).filename() != name) {
      misnamed.Add(StrCat("'", ShowText(tensor), "' is in ", ShowJson(file)));
    }
    index.file_of[tensor] = name;
  }
  if (!misnamed.empty()) {
    return InvalidArgError("'", path, "' has invalid file names", misnamed.Text());
  }
  return index;
}

}  // namespace nereid::llm
