// The tokenizer library's front: loads a Hugging Face or sentencepiece tokenizer and turns text
// into ids and ids into text, id for id as the original libraries do. Knows no TRITON header. A
// Tokenizer never changes after Load: share it between threads freely. [any thread]
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/tokenizer/lib/finish/encoding.h"
#include "backends/tokenizer/lib/vocabulary/special_ids.h"
#include "nereid/status.h"

namespace nereid::tokenizer {

class TokenDecoder;
struct TokenizerParts;

enum class InvalidUtf8 {
  kReplace,  // by U+FFFD, one for each maximal subpart
  kRefuse,   // with the offset of the first byte that is wrong
};

struct EncodeOptions {
  bool add_special_tokens = true;  // BOS, EOS and the like, as the tokenizer's template says
  InvalidUtf8 invalid_utf8 = InvalidUtf8::kReplace;
  bool truncate = false;  // Encode alone: to the length that tokenizer.json says, if any
};

// Two texts that belong together: a question and a passage, what a reranker scores.
struct TextPair {
  std::string_view first, second;
};

class Tokenizer {
 public:
  // `path` is a tokenizer.json, a sentencepiece model, a tekken.json, a tiktoken rank file, or a
  // directory that holds one of them (tokenizer.json, tokenizer.model, spiece.model, tekken.json,
  // tiktoken.model, *.tiktoken, looked for in this order). Side files beside it
  // (tokenizer_config.json, special_tokens_map.json, added_tokens.json, generation_config.json)
  // name the special ids and further added tokens; tokenizer_config.json also says whether BOS and
  // EOS are added and whether a space stands before the text, where it says anything. Errors:
  // NOT_FOUND names what was looked for; UNSUPPORTED names the component; INVALID_ARG the fault of
  // the file.
  static Result<std::shared_ptr<const Tokenizer>> Load(const std::string& path);
  // The same from the bytes of a tokenizer.json or tekken.json, without side files.
  static Result<std::shared_ptr<const Tokenizer>> FromJson(std::string_view json);
  // The same from the bytes of a tiktoken rank file, whose pattern and special tokens are those of
  // the published vocabulary of its size (tiktoken.cc lists them).
  static Result<std::shared_ptr<const Tokenizer>> FromTiktoken(std::string_view ranks);
  // The same from the bytes of a sentencepiece model of type BPE or Unigram.
  static Result<std::shared_ptr<const Tokenizer>> FromSentencePiece(std::string_view model);

  explicit Tokenizer(std::unique_ptr<const TokenizerParts> parts);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Ids of `text`.
  // Errors: INVALID_ARG when a custom splitting pattern exceeds its work limit on this text, no
  // token stands for a part of it and the model has no unknown one, or the text is not UTF-8 and
  // that is to be refused.
  Result<std::vector<int32_t>> Encode(std::string_view text, EncodeOptions options = {}) const;

  // The same with offsets, masks and what overflows: what the original library's encode gives, with
  // the truncation and the padding that tokenizer.json asks for.
  Result<Encoding> EncodeFully(std::string_view text, EncodeOptions options = {}) const;
  // Of several texts, padded alike.
  Result<std::vector<Encoding>> EncodeBatch(std::span<const std::string_view> texts,
                                            EncodeOptions options = {}) const;

  // The same of two texts together, with what the post-processor puts around such: type_ids tell
  // them apart, offsets count in each by itself, and truncation cuts the one that its strategy
  // says. UNSUPPORTED where the post-processor has no place for two texts.
  Result<Encoding> EncodePair(std::string_view first, std::string_view second,
                              EncodeOptions options = {}) const;
  // Of several pairs, padded alike.
  Result<std::vector<Encoding>> EncodePairs(std::span<const TextPair> pairs,
                                            EncodeOptions options = {}) const;

  // Text of `ids`, valid UTF-8. Ids that no token has add nothing.
  std::string Decode(std::span<const int32_t> ids, bool skip_special_tokens = true) const;

  // Ids that add exactly `text` behind `prior_ids`, of which the last few suffice: the usual ones
  // where there are such, else longer tokens before shorter ones. Empty when no ids do.
  std::vector<int32_t> Spell(std::string_view text, std::span<const int32_t> prior_ids,
                             bool skip_special_tokens = true) const;

  // The token's own spelling (byte-level tokens in their printable form), or nothing.
  std::optional<std::string_view> IdToToken(int32_t id) const;
  std::optional<int32_t> TokenToId(std::string_view token) const;
  bool IsSpecial(int32_t id) const;

  // Number of ids, added tokens included: the largest id plus one.
  int32_t vocab_size() const;
  // The same without tokens that no file gives an id, but tokenizer_config.json or
  // special_tokens_map.json a role: no model knows them.
  int32_t model_vocab_size() const;
  const SpecialIds& special_ids() const;

 private:
  friend class IncrementalDecoder;
  // Of one text or two.
  Result<Encoding> EncodeUnpadded(std::span<const std::string_view> texts,
                                  EncodeOptions options) const;
  Result<std::vector<Encoding>> Padded(std::vector<Encoding> batch) const;

  std::unique_ptr<const TokenizerParts> parts_;
};

// A stream's text is held back for so many ids at most, so that what follows depends on no more of
// the past than these: engines send as many as `prior_ids`, or all there are, and hold as many.
inline constexpr size_t kMaxHeldIds = 16;

// Decodes a stream of ids. Whatever the ids and however they are cut into calls, the pieces put
// together equal Decode of all ids; a piece never ends inside a character. Not thread-safe; the
// tokenizer must outlive it. [one thread at a time]
class IncrementalDecoder {
 public:
  static constexpr size_t kUnlimited = SIZE_MAX;

  // `max_held_ids` bounds how many ids text may be held back for; past it an unfinished character
  // becomes U+FFFD, as it would at the end, and a run of byte tokens is given out character by
  // character. A bound makes the state a function of that many last ids.
  explicit IncrementalDecoder(const Tokenizer& tokenizer, bool skip_special_tokens = true,
                              size_t max_held_ids = kUnlimited);
  ~IncrementalDecoder();
  IncrementalDecoder(IncrementalDecoder&&) noexcept;

  // Enters `ids` that were given out before: nothing is returned for them. Use it first, with the
  // last `max_held_ids` ids at least, to take up a stream in its middle.
  void Replay(std::span<const int32_t> ids);
  // Appends to `out` the text that `ids` settle.
  void Push(std::span<const int32_t> ids, std::string& out);
  // The text of all ids so far is out: nothing is held back.
  bool is_settled() const;
  // Appends what was held back. Only Replay on a fresh decoder may follow.
  void Finish(std::string& out);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace nereid::tokenizer
