// The files that lie beside a tokenizer and speak over it: tokenizer_config.json,
// special_tokens_map.json, added_tokens.json, and generation_config.json and config.json, which
// name ids. Each is read once. [any thread]
#pragma once

#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/tokenizer/lib/split/added_tokens.h"
#include "nereid/status.h"

namespace nereid::tokenizer {

struct TokenizerParts;

// What they say that a loader has to know; by default, as if there were none.
struct SideOptions {
  std::optional<bool> add_bos, add_eos;
  std::optional<bool> add_prefix_space;
  bool legacy = true;  // sentencepiece; false: the prefix stands before the whole text only
  // Tokens that are recognised in the text too. Those without an id are in the vocabulary, or
  // nowhere.
  std::vector<AddedToken> added;
};

class SideFiles {
 public:
  // A file that is not a JSON object is an error; an absent one is not.
  static Result<SideFiles> Read(const std::string& directory);
  // The same from the texts of the files, by name. Other names do not count.
  static Result<SideFiles> FromTexts(const std::map<std::string, std::string>& texts);

  // INVALID_ARG names the file, the field, and what is wrong.
  Result<SideOptions> Options() const;
  // The special ids that the files name, over those already in `parts`; BOS and EOS around a text
  // where tokenizer_config.json says so, and none where it says no.
  Status Finish(TokenizerParts& parts) const;

 private:
  void FindSpecialIds(TokenizerParts& parts) const;
  std::vector<const nlohmann::json*> RoleFiles() const;
  const nlohmann::json& RoleOf(const char* key) const;
  std::array<std::pair<const char*, nlohmann::json*>, 5> Slots();
  std::vector<AddedToken> NamedTokens() const;

  nlohmann::json config_, special_map_, added_, generation_, model_;
};

}  // namespace nereid::tokenizer
