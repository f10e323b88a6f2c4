// Added tokens: strings that are recognised in the text before the model sees it, such as
// "<|endoftext|>". Immutable after Make. [any thread]
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "backends/tokenizer/lib/normalize/normalizer.h"
#include "backends/tokenizer/lib/vocabulary/token_table.h"
#include "backends/tokenizer/lib/vocabulary/token_trie.h"
#include "nereid/status.h"

namespace nereid::tokenizer {

struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool single_word = false;  // only where no word character is a neighbour
  bool lstrip = false;       // takes the spaces before it
  bool rstrip = false;       // takes the spaces behind it
  bool normalized = true;    // looked for in the normalised text, in its normalised form
  bool special = false;
  bool overrides = false;  // a side file's: its flags count, not tokenizer.json's
  // No file gives it an id, only a role: it follows the vocabulary, and no model knows it.
  bool is_role_only = false;

  // From an object with "content" and the flags, without its id. INVALID_ARG names what is wrong,
  // and `where`.
  static Result<AddedToken> Read(const nlohmann::json& spec, std::string_view where);
};

// Lays `over` upon `tokens`: what has the content or the id of one of `over` is no longer. Those of
// `over` without an id get that of the vocabulary, or are left out where it has none.
void Overlay(std::span<const AddedToken> over, const TokenTable& vocabulary,
             std::vector<AddedToken>& tokens);

class AddedTokens {
 public:
  // From the "added_tokens" member (null: none), then of `more` those that it lacks. One that it
  // has stays as it is, but for the flags of one that overrides; special it is if either says so.
  // Tokens that the vocabulary lacks get the ids that follow it and the added tokens before,
  // whatever the files say, as the reference does: those of `more` too, be they beyond what the
  // model knows.
  static Result<AddedTokens> Make(const nlohmann::json& spec, std::span<const AddedToken> more,
                                  const TokenTable& vocabulary, const Normalizer& normalizer);
  // From complete tokens.
  static Result<AddedTokens> FromList(std::vector<AddedToken> tokens, const Normalizer& normalizer);

  // A stretch of the text, or an added token.
  struct Split {
    size_t begin, end;
    int32_t id;  // -1: text
  };
  // Splits the raw text at tokens that are not normalized, or the normalised text at those that
  // are.
  void SplitRaw(std::string_view text, std::vector<Split>& out) const { SplitAt(raw_, text, out); }
  void SplitNormalized(std::string_view text, std::vector<Split>& out) const {
    SplitAt(normalized_, text, out);
  }

  const std::vector<AddedToken>& tokens() const { return tokens_; }
  // The token's spelling when it is decoded: its normalised form if it is a normalized one.
  const std::string& DecodedForm(size_t index) const { return decoded_forms_[index]; }
  bool IsSpecialContent(std::string_view content) const {
    return special_contents_.count(std::string(content)) > 0;
  }

 private:
  void SplitAt(const TokenTrie& trie, std::string_view text, std::vector<Split>& out) const;

  std::vector<AddedToken> tokens_;  // each id once
  std::vector<std::string> decoded_forms_;
  std::unordered_set<std::string> special_contents_;
  TokenTrie raw_, normalized_;
};

}  // namespace nereid::tokenizer
