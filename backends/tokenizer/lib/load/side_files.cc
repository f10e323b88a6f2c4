// See side_files.h. The first file that defines a role wins, in the order of RoleFiles.
#include "backends/tokenizer/lib/load/side_files.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <unordered_set>

#include "backends/tokenizer/lib/load/tokenizer_components.h"
#include "backends/tokenizer/lib/parse/json_fields.h"
#include "base/file_content.h"

namespace nereid::tokenizer {
namespace {

constexpr std::string_view kConfig = "tokenizer_config.json";
constexpr const char* kTokenKeys[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                      "pad_token", "cls_token", "mask_token"};

// Returns the file's content, or nothing if the file does not exist.
Result<std::optional<std::string>> ReadText(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::optional<std::string>();
  NEREID_ASSIGN_OR_RETURN(std::string text, ReadFile(path.string(), kMaxTextFileBytes));
  return std::optional<std::string>(std::move(text));
}

Result<Json> ParseObject(const std::string& text, std::string_view shown) {
  return ReadJsonObject<Json>(text, StrCat("'", shown, "'"));
}

// A token is written as a string or as an object with "content".
std::optional<std::string> ContentOf(const Json& entry) {
  const Json& content = entry.is_object() ? Member(entry, "content") : entry;
  if (!content.is_string()) return std::nullopt;
  return content.get<std::string>();
}

// Ignores ids after the vocabulary that a token only got because a role names it.
std::optional<int32_t> IdOf(const Json& entry, const TokenizerComponents& components) {
  const std::optional<std::string> content = ContentOf(entry);
  return content ? components.IdOfToken(*content, /*include_role_only=*/false) : std::nullopt;
}

// An id is written as a number, or as a list of several EOS ids, of which the first is used.
std::optional<int32_t> NumberedToken(const Json& file, const char* key) {
  const Json& entry = Member(file, key);
  const Json& id = entry.is_array() && !entry.empty() ? entry[0] : entry;
  if (!id.is_number_unsigned() || id.get<uint64_t>() >= kMaxTokenId) return std::nullopt;
  return id.get<int32_t>();
}

Result<std::optional<bool>> OptionalBool(const Json& file, const char* key) {
  if (Member(file, key).is_null()) return std::optional<bool>();
  NEREID_ASSIGN_OR_RETURN(const bool value, BoolField(file, key, false, kConfig));
  return std::optional<bool>(value);
}

using Contents = std::unordered_set<std::string>;

Contents ContentsOf(const std::vector<AddedToken>& tokens) {
  Contents contents;
  for (const AddedToken& token : tokens) contents.insert(token.content);
  return contents;
}

// Format: {"32000": {"content": "<|im_start|>", "special": true, ...}, ...}
Result<std::vector<AddedToken>> ReadDecoder(const Json& decoder, const Contents& named) {
  const std::string where = StrCat(kConfig, ".added_tokens_decoder");
  if (!decoder.is_object()) {
    return InvalidArgError(where, ": expected an object, got ", decoder.type_name());
  }
  std::vector<AddedToken> tokens;
  for (const auto& [key, entry] : decoder.items()) {
    NEREID_ASSIGN_OR_RETURN(AddedToken token, AddedToken::Read(entry, where + "." + key));
    const char* const end = key.data() + key.size();
    const auto [at, error] = std::from_chars(key.data(), end, token.id);
    if (error != std::errc() || at != end || token.id < 0 || token.id >= int32_t{kMaxTokenId}) {
      return InvalidArgError(where, ": expected ids below ", kMaxTokenId, ", got '", key, "'");
    }
    token.special |= named.contains(token.content);
    token.overrides = true;
    tokens.push_back(std::move(token));
  }
  std::sort(tokens.begin(), tokens.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  return tokens;
}

// Format: {"<|im_start|>": 32000, ...}. This older format has no flags.
Result<std::vector<AddedToken>> ReadAddedTokens(const Json& file, const Contents& named) {
  std::vector<AddedToken> tokens;
  for (const auto& [content, id] : file.items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= kMaxTokenId) {
      return InvalidArgError("added_tokens.json['", content, "']: expected an id below ",
                             kMaxTokenId, ", got ", ShowJson(id));
    }
    AddedToken token;
    token.content = content;
    token.id = id.get<int32_t>();
    token.special = named.contains(content);
    token.normalized = !token.special;
    tokens.push_back(std::move(token));
  }
  std::sort(tokens.begin(), tokens.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  return tokens;
}

}  // namespace

std::array<std::pair<const char*, Json*>, 5> SideFiles::JsonFiles() {
  return {{{kConfig.data(), &config_},
           {"special_tokens_map.json", &special_map_},
           {"added_tokens.json", &added_},
           {"generation_config.json", &generation_},
           {"config.json", &model_}}};
}

Result<SideFiles> SideFiles::Read(const std::string& directory) {
  SideFiles files;
  for (const auto& [name, json] : files.JsonFiles()) {
    const std::filesystem::path path = std::filesystem::path(directory) / name;
    NEREID_ASSIGN_OR_RETURN(const std::optional<std::string> text, ReadText(path));
    if (!text) continue;
    NEREID_ASSIGN_OR_RETURN(*json, ParseObject(*text, path.string()));
  }
  return files;
}

Result<SideFiles> SideFiles::FromTexts(const std::map<std::string, std::string>& texts) {
  SideFiles files;
  for (const auto& [name, json] : files.JsonFiles()) {
    const auto text = texts.find(name);
    if (text == texts.end()) continue;
    NEREID_ASSIGN_OR_RETURN(*json, ParseObject(text->second, name));
  }
  return files;
}

// As in the reference, special_tokens_map.json is ignored if `added_tokens_decoder` exists.
std::vector<const Json*> SideFiles::RoleFiles() const {
  if (!Member(config_, "added_tokens_decoder").is_null()) return {&config_};
  return {&special_map_, &config_};
}

// Returns the token with this role: a string, an object or null. As in the reference, an explicit
// null counts, too: that file removes the role.
const Json& SideFiles::RoleOf(const char* key) const {
  for (const Json* file : RoleFiles()) {
    if (file->is_object() && file->contains(key)) return Member(*file, key);
  }
  return Member(config_, key);
}

// Returns the tokens that have a role, without ids.
std::vector<AddedToken> SideFiles::NamedTokens() const {
  std::vector<AddedToken> tokens;
  Contents known;
  const auto add = [&](const Json& entry) {
    AddedToken token;
    token.content = ContentOf(entry).value_or("");
    token.special = true;
    token.normalized = false;
    token.is_role_only = true;  // reset if the vocabulary contains the token
    const auto read = [&](const char* key, bool& flag) {
      const Json& value = entry.is_object() ? Member(entry, key) : Json();
      if (value.is_boolean()) flag = value.get<bool>();
    };
    read("lstrip", token.lstrip);
    read("rstrip", token.rstrip);
    read("single_word", token.single_word);
    read("normalized", token.normalized);
    if (token.content.empty() || !known.insert(token.content).second) return;
    tokens.push_back(std::move(token));
  };
  for (const char* key : kTokenKeys) add(RoleOf(key));
  for (const Json* file : RoleFiles()) {
    for (const char* key : {"additional_special_tokens", "extra_special_tokens"}) {
      for (const Json& entry : Member(*file, key)) add(entry);
    }
  }
  return tokens;
}

Result<SideFileOptions> SideFiles::Options() const {
  SideFileOptions options;
  NEREID_ASSIGN_OR_RETURN(options.add_bos, OptionalBool(config_, "add_bos_token"));
  NEREID_ASSIGN_OR_RETURN(options.add_eos, OptionalBool(config_, "add_eos_token"));
  NEREID_ASSIGN_OR_RETURN(options.add_prefix_space, OptionalBool(config_, "add_prefix_space"));
  NEREID_ASSIGN_OR_RETURN(options.legacy, BoolField(config_, "legacy", true, kConfig));
  const std::vector<AddedToken> named = NamedTokens();
  if (const Json& decoder = Member(config_, "added_tokens_decoder"); !decoder.is_null()) {
    NEREID_ASSIGN_OR_RETURN(options.added, ReadDecoder(decoder, ContentsOf(named)));
  } else {
    NEREID_ASSIGN_OR_RETURN(options.added, ReadAddedTokens(added_, ContentsOf(named)));
  }
  const Contents known = ContentsOf(options.added);
  for (const AddedToken& token : named) {
    if (!known.contains(token.content)) options.added.push_back(token);
  }
  return options;
}

// As in the reference, a token that only a role names is the pad token if no file gives a pad id.
// It is never BOS or EOS, because the model would refuse its id.
void SideFiles::FindSpecialIds(TokenizerComponents& components) const {
  SpecialIds found;
  const auto set_if_absent = [](std::optional<int32_t>& slot, std::optional<int32_t> id) {
    if (!slot) slot = id;
  };
  found.bos = IdOf(RoleOf("bos_token"), components);
  found.eos = IdOf(RoleOf("eos_token"), components);
  found.pad = IdOf(RoleOf("pad_token"), components);
  found.unk = IdOf(RoleOf("unk_token"), components);
  for (const Json* file : {&generation_, &model_}) {
    set_if_absent(found.bos, NumberedToken(*file, "bos_token_id"));
    set_if_absent(found.eos, NumberedToken(*file, "eos_token_id"));
    set_if_absent(found.pad, NumberedToken(*file, "pad_token_id"));
  }
  set_if_absent(found.bos, components.special_ids.bos);
  set_if_absent(found.eos, components.special_ids.eos);
  set_if_absent(found.pad, components.special_ids.pad);
  set_if_absent(found.unk, components.special_ids.unk);
  if (const auto pad = ContentOf(RoleOf("pad_token")))
    set_if_absent(found.pad, components.IdOfToken(*pad));
  components.special_ids = found;
}

Status SideFiles::ApplyTo(TokenizerComponents& components) const {
  FindSpecialIds(components);
  NEREID_ASSIGN_OR_RETURN(const std::optional<bool> bos, OptionalBool(config_, "add_bos_token"));
  NEREID_ASSIGN_OR_RETURN(const std::optional<bool> eos, OptionalBool(config_, "add_eos_token"));
  const auto apply = [&](std::optional<bool> add, std::optional<int32_t> id, bool before_text) {
    if (!add || !id) return;
    if (*add) components.post.AddSpecialToken(*id, before_text);
    if (!*add) components.post.RemoveSpecialToken(*id, before_text);
  };
  NEREID_ASSIGN_OR_RETURN(components.cleans_up_spaces,
                          BoolField(config_, "clean_up_tokenization_spaces", false, kConfig));
  apply(bos, components.special_ids.bos, /*before_text=*/true);
  apply(eos, components.special_ids.eos, /*before_text=*/false);
  return {};
}

}  // namespace nereid::tokenizer
