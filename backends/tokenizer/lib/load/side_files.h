// The files beside a tokenizer file that complete or override it: tokenizer_config.json,
// special_tokens_map.json, added_tokens.json, and generation_config.json and config.json for
// special ids. Each is read once. [any thread]
#pragma once

#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/tokenizer/lib/pre_tokenize/added_tokens.h"
#include "nereid/status.h"

namespace nereid::tokenizer {

struct TokenizerComponents;

// The settings that a loader needs. The defaults apply if there are no side files.
struct SideFileOptions {
  std::optional<bool> add_bos, add_eos;
  std::optional<bool> add_prefix_space;
  bool legacy = true;  // of SentencePiece; false: only the text's start gets the prefix
  // Further tokens that are recognised in the text. An entry without an id gets the id of its
  // content in the vocabulary; what happens if it has none depends on the format.
  std::vector<AddedToken> added;
};

class SideFiles {
 public:
  // An absent file is not an error; a file that is not a JSON object is.
  static Result<SideFiles> Read(const std::string& directory);
  // The same from file contents by file name. Other names are ignored.
  static Result<SideFiles> FromTexts(const std::map<std::string, std::string>& texts);

  // INVALID_ARG names the file, the field and the fault.
  Result<SideFileOptions> Options() const;
  // Applies the special ids of the files, which override those in `components`. Adds or removes BOS
  // and EOS around a text if tokenizer_config.json says so. Also applies its
  // clean_up_tokenization_spaces.
  Status ApplyTo(TokenizerComponents& components) const;

 private:
  void FindSpecialIds(TokenizerComponents& components) const;
  std::vector<const nlohmann::json*> RoleFiles() const;
  const nlohmann::json& RoleOf(const char* key) const;
  std::array<std::pair<const char*, nlohmann::json*>, 5> JsonFiles();
  std::vector<AddedToken> NamedTokens() const;

  nlohmann::json config_, special_map_, added_, generation_, model_;
};

}  // namespace nereid::tokenizer
