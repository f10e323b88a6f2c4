// Special ids from the files that lie beside a tokenizer. The first file that names a token wins:
// tokenizer_config.json, special_tokens_map.json, then generation_config.json and config.json,
// which name ids.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "json_fields.h"
#include "tokenizer_parts.h"

namespace nereid::tokenizer {
namespace {

constexpr uintmax_t kMaxSideFileBytes = 64 << 20;

// The file's JSON object, or null when there is none.
Result<Json> ReadSideFile(const std::string& directory, const char* name) {
  const std::filesystem::path path = std::filesystem::path(directory) / name;
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error) return Json();
  if (size > kMaxSideFileBytes)
    return InvalidArgError("'", path.string(), "': ", size, " bytes are too many");
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return InvalidArgError("'", path.string(), "': not a JSON object");
  return json;
}

// A token is written as its string or as an object with "content".
std::optional<int32_t> NamedToken(const Json& file, const char* key, const TokenizerParts& parts) {
  const Json& entry = Member(file, key);
  const Json& content = entry.is_object() ? Member(entry, "content") : entry;
  if (!content.is_string()) return std::nullopt;
  return parts.IdOfToken(content.get<std::string>());
}

// An id is written as a number or, for several ends, as a list, of which the first counts.
std::optional<int32_t> NumberedToken(const Json& file, const char* key) {
  const Json& entry = Member(file, key);
  const Json& id = entry.is_array() && !entry.empty() ? entry[0] : entry;
  if (!id.is_number_unsigned() || id.get<uint64_t>() >= kMaxTokenId) return std::nullopt;
  return id.get<int32_t>();
}

}  // namespace

Status ReadSpecialIds(const std::string& directory, TokenizerParts& parts) {
  SpecialIds found;
  const auto offer = [](std::optional<int32_t>& slot, std::optional<int32_t> id) {
    if (!slot) slot = id;
  };
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    NEREID_ASSIGN_OR_RETURN(const Json file, ReadSideFile(directory, name));
    offer(found.bos, NamedToken(file, "bos_token", parts));
    offer(found.eos, NamedToken(file, "eos_token", parts));
    offer(found.pad, NamedToken(file, "pad_token", parts));
    offer(found.unk, NamedToken(file, "unk_token", parts));
  }
  for (const char* name : {"generation_config.json", "config.json"}) {
    NEREID_ASSIGN_OR_RETURN(const Json file, ReadSideFile(directory, name));
    offer(found.bos, NumberedToken(file, "bos_token_id"));
    offer(found.eos, NumberedToken(file, "eos_token_id"));
    offer(found.pad, NumberedToken(file, "pad_token_id"));
  }
  offer(found.bos, parts.special_ids.bos);
  offer(found.eos, parts.special_ids.eos);
  offer(found.pad, parts.special_ids.pad);
  offer(found.unk, parts.special_ids.unk);
  parts.special_ids = found;
  return {};
}

namespace {

constexpr std::string_view kConfig = "tokenizer_config.json";

Result<std::optional<bool>> OptionalBool(const Json& file, const char* key) {
  if (Member(file, key).is_null()) return std::optional<bool>();
  NEREID_ASSIGN_OR_RETURN(const bool value, BoolField(file, key, false, kConfig));
  return std::optional<bool>(value);
}

}  // namespace

Status ApplyBosAndEos(const std::string& directory, TokenizerParts& parts) {
  NEREID_ASSIGN_OR_RETURN(const Json file, ReadSideFile(directory, kConfig.data()));
  NEREID_ASSIGN_OR_RETURN(const std::optional<bool> bos, OptionalBool(file, "add_bos_token"));
  NEREID_ASSIGN_OR_RETURN(const std::optional<bool> eos, OptionalBool(file, "add_eos_token"));
  const auto apply = [](std::optional<bool> wanted, std::optional<int32_t> id, bool at_front,
                        std::vector<int32_t>& ids) {
    if (!wanted || !id) return;
    const bool present = std::find(ids.begin(), ids.end(), *id) != ids.end();
    if (*wanted && !present) ids.insert(at_front ? ids.begin() : ids.end(), *id);
    if (!*wanted) std::erase(ids, *id);
  };
  apply(bos, parts.special_ids.bos, /*at_front=*/true, parts.prefix_ids);
  apply(eos, parts.special_ids.eos, /*at_front=*/false, parts.suffix_ids);
  return {};
}

Result<SentencePieceOptions> ReadSentencePieceOptions(const std::string& directory) {
  SentencePieceOptions options;
  NEREID_ASSIGN_OR_RETURN(const Json file, ReadSideFile(directory, kConfig.data()));
  NEREID_ASSIGN_OR_RETURN(options.add_bos, BoolField(file, "add_bos_token", true, kConfig));
  NEREID_ASSIGN_OR_RETURN(options.add_eos, OptionalBool(file, "add_eos_token"));
  NEREID_ASSIGN_OR_RETURN(options.add_prefix_space, OptionalBool(file, "add_prefix_space"));
  NEREID_ASSIGN_OR_RETURN(options.legacy, BoolField(file, "legacy", true, kConfig));
  return options;
}

}  // namespace nereid::tokenizer
