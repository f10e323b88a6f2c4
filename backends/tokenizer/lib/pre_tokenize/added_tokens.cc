// See added_tokens.h.
#include "backends/tokenizer/lib/pre_tokenize/added_tokens.h"

#include <algorithm>
#include <unordered_map>

#include "backends/tokenizer/lib/parse/json_fields.h"
#include "backends/tokenizer/lib/text/char_traits.h"
#include "backends/tokenizer/lib/text/unicode.h"
#include "backends/tokenizer/lib/text/utf8.h"

namespace nereid::tokenizer {
namespace {

// Returns the character that ends at `at`, which must be positive.
Utf8Char CharBefore(std::string_view text, size_t at) {
  do {
    --at;
  } while (IsContinuation(text[at]));
  return CharAt(text, at);
}

bool IsSingleWord(std::string_view text, size_t begin, size_t end) {
  if (begin > 0 && IsWordChar(CharBefore(text, begin).code)) return false;
  return end == text.size() || !IsWordChar(CharAt(text, end).code);
}

size_t SkipSpacesBack(std::string_view text, size_t at, size_t limit) {
  while (at > limit) {
    const Utf8Char c = CharBefore(text, at);
    if (!IsSpaceChar(c.code)) break;
    at -= c.size;
  }
  return at;
}

size_t SkipSpaces(std::string_view text, size_t at) {
  while (at < text.size()) {
    const Utf8Char c = CharAt(text, at);
    if (!IsSpaceChar(c.code)) break;
    at += c.size;
  }
  return at;
}

}  // namespace

Result<AddedToken> AddedToken::Read(const Json& spec, std::string_view where) {
  AddedToken token;
  NEREID_ASSIGN_OR_RETURN(token.content, StringField(spec, "content", where));
  NEREID_ASSIGN_OR_RETURN(token.special, BoolField(spec, "special", false, where));
  NEREID_ASSIGN_OR_RETURN(token.single_word, BoolField(spec, "single_word", false, where));
  NEREID_ASSIGN_OR_RETURN(token.lstrip, BoolField(spec, "lstrip", false, where));
  NEREID_ASSIGN_OR_RETURN(token.rstrip, BoolField(spec, "rstrip", false, where));
  NEREID_ASSIGN_OR_RETURN(token.normalized, BoolField(spec, "normalized", !token.special, where));
  return token;
}

void OverlayAddedTokens(std::span<const AddedToken> over, const TokenTable& vocabulary,
                        std::vector<AddedToken>& tokens) {
  std::unordered_map<std::string_view, size_t> by_content;
  std::unordered_map<int32_t, size_t> by_id;
  for (size_t i = 0; i < tokens.size(); ++i) {
    by_content[tokens[i].content] = i;
    by_id[tokens[i].id] = i;
  }
  std::vector<bool> is_hidden(tokens.size());
  std::vector<AddedToken> shown;
  for (AddedToken token : over) {
    const auto same = by_content.find(token.content);
    if (token.id < 0 && same != by_content.end()) continue;
    if (token.id < 0) token.id = vocabulary.Find(token.content).value_or(-1);
    if (token.id < 0 || token.content.empty()) continue;
    if (same != by_content.end()) is_hidden[same->second] = true;
    if (const auto it = by_id.find(token.id); it != by_id.end()) is_hidden[it->second] = true;
    shown.push_back(std::move(token));
  }
  for (size_t i = 0; i < is_hidden.size(); ++i) {
    if (!is_hidden[i]) shown.push_back(std::move(tokens[i]));
  }
  tokens = std::move(shown);
}

Result<AddedTokens> AddedTokens::Make(const Json& spec, std::span<const AddedToken> more,
                                      const TokenTable& vocabulary, const Normalizer& normalizer) {
  if (!spec.is_null() && !spec.is_array()) {
    return InvalidArgError("added_tokens: expected an array, got ", spec.type_name());
  }
  std::vector<AddedToken> tokens;
  std::unordered_map<std::string, size_t> index_of;  // by content; of duplicates the last counts
  auto next_id = static_cast<int32_t>(vocabulary.num_entries());
  const auto add = [&](AddedToken token) {
    const auto [known, is_new] = index_of.emplace(token.content, tokens.size());
    if (is_new) {
      const auto id = vocabulary.Find(token.content);
      token.is_role_only = token.is_role_only && !id;
      token.id = id ? *id : next_id;
      next_id = std::max(next_id, token.id + 1);
    } else {
      token.id = tokens[known->second].id;
      known->second = tokens.size();
    }
    tokens.push_back(std::move(token));
  };
  for (const Json& entry : spec) {
    NEREID_ASSIGN_OR_RETURN(AddedToken token, AddedToken::Read(entry, "added_tokens"));
    if (!token.content.empty()) add(std::move(token));
  }
  for (const AddedToken& token : more) {
    if (token.content.empty()) continue;
    const auto known = index_of.find(token.content);
    if (known == index_of.end()) {
      add(token);
    } else if (token.overrides) {
      add(token);
    } else {
      tokens[known->second].special |= token.special;
    }
  }
  return FromList(std::move(tokens), normalizer);
}

Result<AddedTokens> AddedTokens::FromList(std::vector<AddedToken> tokens,
                                          const Normalizer& normalizer) {
  AddedTokens added;
  std::unordered_map<int32_t, size_t> index_of_id;
  for (AddedToken& token : tokens) {
    if (token.special) added.special_contents_.insert(token.content);
    const auto [it, is_new] = index_of_id.emplace(token.id, added.tokens_.size());
    if (is_new) {
      added.tokens_.push_back(std::move(token));
    } else {
      added.tokens_[it->second] = std::move(token);
    }
  }
  for (size_t i = 0; i < added.tokens_.size(); ++i) {
    const AddedToken& token = added.tokens_[i];
    std::string form = token.content;
    if (token.normalized && !normalizer.Normalize(token.content, form)) {
      return InvalidArgError("added token '", token.content, "' cannot be normalised");
    }
    // A token whose normalized form is empty is never found in a text.
    (token.normalized ? added.normalized_ : added.raw_).Add(form, static_cast<int32_t>(i));
    added.decoded_forms_.push_back(std::move(form));
  }
  return added;
}

void AddedTokens::SplitAt(const TokenTrie& trie, std::string_view text, const IsBarred& is_barred,
                          std::vector<Split>& out) const {
  out.clear();
  size_t done = 0;  // the text before this is in `out`
  size_t from = 0;
  while (const auto match = trie.Find(text, from)) {
    from = match->end;
    const AddedToken& token = tokens_[match->value];
    size_t begin = match->begin, end = match->end;
    if (is_barred && is_barred(token, begin, end)) {
      from = begin + 1;
      continue;
    }
    if (token.single_word && !IsSingleWord(text, begin, end)) continue;
    if (token.lstrip) {  // excludes spaces that the previous token took, although these may be part
                         // of this token
      const bool is_shared = begin < done && done < end;
      begin = is_shared ? done : SkipSpacesBack(text, begin, std::min(done, begin));
    }
    if (token.rstrip) end = SkipSpaces(text, end);
    if (done < begin) out.push_back({done, begin, -1});
    out.push_back({begin, end, token.id});
    done = end;
  }
  if (done < text.size()) out.push_back({done, text.size(), -1});
}

}  // namespace nereid::tokenizer
