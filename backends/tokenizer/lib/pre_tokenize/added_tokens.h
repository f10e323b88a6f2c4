// Added tokens: strings such as "<|endoftext|>" that are recognised in the text before the model
// encodes the rest. Immutable after Make. [any thread]
#pragma once

#include <cstdint>
#include <functional>
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
  bool single_word = false;  // matches only without adjacent word characters
  bool lstrip = false;       // includes the spaces before it
  bool rstrip = false;       // includes the spaces after it
  bool normalized = true;    // matched in the normalized text, in normalized form
  bool special = false;
  bool overrides = false;  // from a side file: its flags override tokenizer.json's
  // No file gives it an id; a side file only names it in a role, such as pad_token. Its id follows
  // the vocabulary, and the model has no embedding for it.
  bool is_role_only = false;

  // Parses an object with "content" and the flags, without its id. INVALID_ARG names the fault and
  // `where`.
  static Result<AddedToken> Read(const nlohmann::json& spec, std::string_view where);
};

// Overrides `tokens` with `over`: entries of `tokens` with the same content or id are removed. An
// entry of `over` without an id is skipped if `tokens` has its content; otherwise it gets its id
// from the vocabulary, or is skipped if it has none there.
void OverlayAddedTokens(std::span<const AddedToken> over, const TokenTable& vocabulary,
                        std::vector<AddedToken>& tokens);

class AddedTokens {
 public:
  // `spec` is the "added_tokens" member; null means none. Entries of `more` are added if `spec`
  // lacks them; otherwise they only make a token special, or replace its flags if they override. As
  // in the reference, tokens that the vocabulary lacks get consecutive ids after the vocabulary and
  // the earlier added tokens, whatever ids the files state.
  static Result<AddedTokens> Make(const nlohmann::json& spec, std::span<const AddedToken> more,
                                  const TokenTable& vocabulary, const Normalizer& normalizer);
  // From tokens that have their final ids.
  static Result<AddedTokens> FromList(std::vector<AddedToken> tokens, const Normalizer& normalizer);

  // A section of the text, or an added token in it.
  struct Split {
    size_t begin, end;
    int32_t id;  // -1: a section of text
  };
  // Whether the token at [begin, end) of the text is not to be recognised.
  using IsBarred = std::function<bool(const AddedToken& token, size_t begin, size_t end)>;
  // Splits the raw text at tokens that are not normalized, or the normalized text at those that
  // are. An empty `is_barred` bars none.
  void SplitRaw(std::string_view text, std::vector<Split>& out,
                const IsBarred& is_barred = {}) const {
    SplitAt(raw_, text, is_barred, out);
  }
  void SplitNormalized(std::string_view text, std::vector<Split>& out,
                       const IsBarred& is_barred = {}) const {
    SplitAt(normalized_, text, is_barred, out);
  }

  const std::vector<AddedToken>& tokens() const { return tokens_; }
  // The token's text when decoded, which is the normalized form for a normalized token.
  const std::string& DecodedForm(size_t index) const { return decoded_forms_[index]; }
  bool IsSpecialContent(std::string_view content) const {
    return special_contents_.count(std::string(content)) > 0;
  }

 private:
  void SplitAt(const TokenTrie& trie, std::string_view text, const IsBarred& is_barred,
               std::vector<Split>& out) const;

  std::vector<AddedToken> tokens_;  // one per id
  std::vector<std::string> decoded_forms_;
  std::unordered_set<std::string> special_contents_;
  TokenTrie raw_, normalized_;
};

}  // namespace nereid::tokenizer
