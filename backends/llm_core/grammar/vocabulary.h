// The byte sequences of a tokenizer's tokens as a trie, in the form that masks are computed from.
// Built once for a tokenizer and shared by all grammars. Immutable. [any thread]
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nereid/status.h"

namespace nereid::tokenizer {
class Tokenizer;
}

namespace nereid::llm::grammar {

// Nodes in preorder, without the root: the nodes below node i are those from i + 1 to its `end`.
struct TokenTrie {
  struct Node {
    uint32_t end;
    int32_t token;   // the token that ends here, or -1
    uint16_t depth;  // 1 for the first byte of a token
    uint8_t byte;
  };
  std::vector<Node> nodes;
  size_t max_depth = 0;

  // A token whose bytes begin with the path to `node`.
  int32_t TokenBelow(uint32_t node) const {
    while (nodes[node].token < 0) ++node;
    return nodes[node].token;
  }
};

// The automaton of texts that a JSON string may contain without escapes, byte by byte: returns the
// next state, or -1. State 0 is the start, and is reached again after each whole character.
int NextPlainState(int state, uint8_t byte);

class Vocabulary {
 public:
  // The longest plain token, in characters. Longer ones are not plain.
  static constexpr int kMaxPlainChars = 20;

  // Tokens of more bytes are long. There are few of them.
  static constexpr size_t kMaxShortBytes = 32;
  struct LongToken {
    int32_t id;
    int num_spaces;  // bytes, if all of them are white space of JSON, else 0
    int num_plain;   // characters, if all of them are plain, else 0
  };

  // A token without text that a grammar may still demand, by the name that `text` is.
  struct SpecialToken {
    int32_t id;
    std::string text;
  };

  // `tokens[id]` has the bytes of token `id`; an empty one is never allowed, such as special
  // tokens. `end_ids` end a generation. Errors: INVALID_ARG if there are too many tokens or bytes.
  static Result<std::shared_ptr<const Vocabulary>> Make(
      std::vector<std::string> tokens, std::vector<int32_t> end_ids,
      std::vector<SpecialToken> special_tokens = {});
  // Special tokens have no text: only Marker leads to one. A token that the tokenizer decodes
  // differently at the beginning of a text counts as inside of one. `num_tokens`: of the model,
  // whose further tokens are never allowed; 0: of the tokenizer.
  static Result<std::shared_ptr<const Vocabulary>> Make(const tokenizer::Tokenizer& tokenizer,
                                                        std::vector<int32_t> end_ids,
                                                        int32_t num_tokens = 0);

  size_t size() const { return tokens_.size(); }
  size_t num_mask_words() const { return (tokens_.size() + 31) / 32; }
  std::string_view token(int32_t id) const { return tokens_[id]; }
  const std::vector<int32_t>& end_ids() const { return end_ids_; }
  // The longest token that `text` begins with, and its size; -1 and 0 if there is none.
  std::pair<int32_t, size_t> LongestToken(std::string_view text) const;
  // The bytes of `text` with the names of special tokens replaced by what stands for the tokens:
  // bytes that no text has.
  std::string Marker(std::string_view text) const;
  const TokenTrie& all() const { return all_; }
  // Tokens of whole characters that a JSON string contains as they are, as a mask, and the other
  // tokens.
  const std::vector<uint32_t>& plain_mask() const { return plain_mask_; }
  const TokenTrie& other() const { return other_; }
  // One of those with the same bytes.
  const std::vector<LongToken>& long_tokens() const { return long_tokens_; }
  // Further tokens with the bytes of token `id`: the next one, or -1.
  int32_t NextTwin(int32_t id) const { return twins_[id]; }

 private:
  Vocabulary() = default;
  // Makes what is searched from the tokens, whose bytes are final but for those that are too long.
  void Index();

  std::vector<std::string> tokens_;
  std::vector<int32_t> end_ids_;
  std::vector<int32_t> twins_;
  std::vector<uint32_t> plain_mask_;
  std::vector<LongToken> long_tokens_;
  std::vector<SpecialToken> special_tokens_;
  TokenTrie all_, other_;
};

}  // namespace nereid::llm::grammar
