/// \file
/// The tokenizer library's public interface: loads the tokenizer files of Hugging Face,
/// SentencePiece, Mistral (tekken) and tiktoken models, encodes text into token ids and decodes ids
/// into text. Ids and texts equal those of the original libraries (PyPI tokenizers 0.23,
/// sentencepiece 0.2, tiktoken). The library uses no Triton header. [any thread]
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/tokenizer/lib/post_process/encoding.h"
#include "backends/tokenizer/lib/text/marked_text.h"
#include "backends/tokenizer/lib/vocabulary/token_table.h"
#include "nereid/status.h"

namespace nereid::tokenizer {

class TokenDecoder;
struct TokenizerComponents;

enum class InvalidUtf8 {
  kReplace,  ///< replace each maximal ill-formed subpart by U+FFFD
  kRefuse,   ///< return an error with the offset of the first invalid byte
};

struct EncodeOptions {
  bool add_special_tokens = true;  ///< such as BOS and EOS, as the post-processor says
  InvalidUtf8 invalid_utf8 = InvalidUtf8::kReplace;
  bool truncate = false;  ///< Encode only: apply the truncation of tokenizer.json, if any
};

struct DecodeOptions {
  bool skip_special_tokens = true;
  /// Remove spaces before English punctuation and contractions, as transformers does with
  /// clean_up_tokenization_spaces. Tokenizer::cleans_up_spaces() says what the files ask for.
  bool cleans_up_spaces = false;
};

/// Two texts that are encoded together, such as the question and the passage of a reranker. Both
/// are borrowed for the duration of the call.
struct TextPair {
  std::string_view first, second;
};

/// A loaded tokenizer. It never changes after loading, except for an internal atomic cache, so that
/// all methods may be called concurrently. [any thread]
class Tokenizer {
 public:
  /// Loads a tokenizer.
  ///
  /// `path` is a tokenizer.json, a SentencePiece model, a tekken.json, a tiktoken rank file, or a
  /// directory. In a directory the first of these is loaded: tokenizer.json, tokenizer.model,
  /// spiece.model, tekken.json, tiktoken.model, *.tiktoken.
  ///
  /// Side files in the same folder are read, too. tokenizer_config.json, special_tokens_map.json,
  /// added_tokens.json, generation_config.json and config.json name the special ids and further
  /// added tokens. tokenizer_config.json also decides, where it says so, whether BOS and EOS are
  /// added, whether a space is prepended to the text, and the value of cleans_up_spaces().
  ///
  /// Errors: NOT_FOUND lists the names that were looked for. UNSUPPORTED names the component of the
  /// file that this library does not implement. INVALID_ARG names the file and the faulty field.
  static Result<std::shared_ptr<const Tokenizer>> Load(const std::string& path);
  /// Loads from the bytes of a tokenizer.json or tekken.json, without side files. `json` is not
  /// used after the call.
  static Result<std::shared_ptr<const Tokenizer>> FromJson(std::string_view json);
  /// Loads from the bytes of a tiktoken rank file, without side files. Such a file has no split
  /// pattern and no special tokens: they are those of the published vocabulary with the same number
  /// of tokens (load/published_vocabularies.cc lists them). UNSUPPORTED if there is none.
  static Result<std::shared_ptr<const Tokenizer>> FromTiktoken(std::string_view ranks);
  /// Loads from the bytes of a SentencePiece model of type BPE or Unigram, without side files.
  static Result<std::shared_ptr<const Tokenizer>> FromSentencePiece(std::string_view model);

  explicit Tokenizer(std::unique_ptr<const TokenizerComponents> components);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// Returns the token ids of `text`. Time is about linear in its size for the known patterns.
  /// Errors: INVALID_ARG if a custom split pattern exceeds its work limit on this text, if a part
  /// of the text has no token and the model has no unknown token, or if the text is not valid UTF-8
  /// and `options` refuse that.
  Result<std::vector<int32_t>> Encode(std::string_view text, EncodeOptions options = {}) const;

  /// Returns the token ids of a prompt of which clients wrote parts. Special tokens are recognised
  /// only where no byte of them came from a client: a message that contains "<|im_end|>" cannot end
  /// its turn. Other added tokens are recognised everywhere. Without marks the ids are those of
  /// Encode. Errors: those of Encode; invalid UTF-8 is always refused.
  Result<std::vector<int32_t>> EncodeMarked(const MarkedText& text,
                                            EncodeOptions options = {}) const;

  /// Returns ids with offsets, masks and the parts that truncation cut off, as encode() of PyPI
  /// tokenizers does. The truncation and padding of tokenizer.json are always applied.
  /// Errors: those of Encode; INVALID_ARG if truncation or padding cannot be applied, or if the
  /// text has 4 GiB or more or the result would exceed kMaxTokensPerCall tokens.
  Result<Encoding> EncodeDetailed(std::string_view text, EncodeOptions options = {}) const;
  /// Encodes several texts and pads them to the same length. An error in one text fails the call.
  Result<std::vector<Encoding>> EncodeBatch(std::span<const std::string_view> texts,
                                            EncodeOptions options = {}) const;

  /// Encodes two texts as a pair, with the special tokens that the post-processor defines for
  /// pairs. The result's type_ids tell the texts apart, and offsets are relative to each text.
  /// Truncation shortens the text that its strategy names. UNSUPPORTED if the post-processor does
  /// not use each of two texts exactly once.
  Result<Encoding> EncodePair(std::string_view first, std::string_view second,
                              EncodeOptions options = {}) const;
  /// Encodes several pairs and pads them to the same length. An error in one pair fails the call.
  Result<std::vector<Encoding>> EncodePairs(std::span<const TextPair> pairs,
                                            EncodeOptions options = {}) const;

  /// Returns the text of `ids`, always valid UTF-8. Bytes that form no character become U+FFFD. Ids
  /// without a token are skipped.
  std::string Decode(std::span<const int32_t> ids, DecodeOptions options = {}) const;
  /// Returns the text that `ids` add to an earlier text. It differs from Decode where the decoder
  /// treats the first token specially: a space at its start is kept.
  std::string DecodeInContext(std::span<const int32_t> ids, DecodeOptions options = {}) const;

  /// Returns the bytes that the token adds inside a text, special tokens included. They need not be
  /// whole characters. Empty if the id has no token.
  std::string TokenBytes(int32_t id) const;

  /// Returns ids whose decoded text, after `prior_ids`, is exactly `text`. The last few ids of the
  /// stream are enough as `prior_ids`. If the ids of Encode qualify, the result is these; otherwise
  /// the text is covered greedily by the longest tokens. Empty if neither works. The greedy search
  /// scans the vocabulary once per token.
  std::vector<int32_t> EncodeContinuation(std::string_view text, std::span<const int32_t> prior_ids,
                                          DecodeOptions options = {}) const;

  /// Returns the token's content, or nothing if the id has no token. Byte-level tokens are returned
  /// in GPT-2's printable form. The view lives as long as the tokenizer.
  std::optional<std::string_view> IdToToken(int32_t id) const;
  /// Returns the id of the token with this content, or nothing. Added tokens take precedence.
  std::optional<int32_t> TokenToId(std::string_view token) const;
  /// Whether `skip_special_tokens` omits the token when decoding.
  bool IsSpecial(int32_t id) const;

  /// Whether tokenizer_config.json has clean_up_tokenization_spaces. transformers 4 follows it for
  /// every tokenizer. transformers 5 ignores it for BPE.
  bool cleans_up_spaces() const;
  /// Returns `text` as decoding with DecodeOptions::cleans_up_spaces leaves it.
  static std::string CleanUp(std::string text);

  /// The largest id plus one, including added tokens.
  int32_t vocab_size() const;
  /// The largest id plus one that the model itself can know. It excludes tokens without an id in
  /// any file, which only tokenizer_config.json or special_tokens_map.json name: such a token gets
  /// an id after the vocabulary, for which a checkpoint has no embedding.
  int32_t model_vocab_size() const;
  /// The ids of BOS, EOS, padding and unknown tokens, from the side files or the tokenizer file.
  const SpecialIds& special_ids() const;

 private:
  friend class IncrementalDecoder;
  /// `text` is valid UTF-8. `marks` are those of `text`, or null if a client wrote nothing of it.
  Result<std::vector<int32_t>> EncodeValid(std::string_view text, const MarkedText* marks,
                                           EncodeOptions options) const;
  /// `texts` has one element, or two for a pair.
  Result<Encoding> EncodeUnpadded(std::span<const std::string_view> texts,
                                  EncodeOptions options) const;
  Result<std::vector<Encoding>> PadBatch(std::vector<Encoding> batch) const;

  std::unique_ptr<const TokenizerComponents> components_;
};

/// The largest number of ids for which the text of a stream may be held back, where this limit is
/// used. The text that follows then depends on no more than this number of preceding ids. Engines
/// send this many ids as `prior_ids`, or all there are.
inline constexpr size_t kMaxPendingIds = 16;

/// Decodes a stream of ids chunk by chunk. However the ids are divided into calls, the concatenated
/// chunks equal Decode of all ids, and no chunk ends inside a character. Text is held back while
/// later ids can still change it. The tokenizer must outlive the decoder. [one thread at a time]
class IncrementalDecoder {
 public:
  static constexpr size_t kUnlimited = SIZE_MAX;

  /// `max_pending_ids` limits for how many ids text is held back. At the limit an unfinished
  /// character becomes U+FFFD, as it would at the end of the stream, and a run of byte tokens is
  /// emitted character by character. With a limit, the decoder's state depends only on that many
  /// last ids.
  explicit IncrementalDecoder(const Tokenizer& tokenizer, DecodeOptions options = {},
                              size_t max_pending_ids = kUnlimited);
  ~IncrementalDecoder();
  IncrementalDecoder(IncrementalDecoder&&) noexcept;

  /// Feeds `ids` whose text was emitted before, without returning their text. To resume in the
  /// middle of a stream, call it first on a new decoder, with at least the last `max_pending_ids`
  /// ids.
  void Replay(std::span<const int32_t> ids);
  /// Appends to `out` the text that `ids` complete.
  void Push(std::span<const int32_t> ids, std::string& out);
  /// True if the text of all ids so far was emitted and nothing is held back.
  bool is_flushed() const;
  /// Ends the stream: appends the text that was held back. The decoder must not be used afterwards.
  void Finish(std::string& out);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Returns the text that `ids` add after `prior_ids`. `prior_ids` are the last ids of the stream so
/// far: all of them, or at least kMaxPendingIds. Unless `is_final`, the bytes of an unfinished
/// character are left for the next call. The concatenated results of a stream's calls equal Decode
/// of all its ids. No state is kept between calls. [any thread]
std::string DecodeChunk(const Tokenizer& tokenizer, DecodeOptions options,
                        std::span<const int32_t> prior_ids, std::span<const int32_t> ids,
                        bool is_final);

}  // namespace nereid::tokenizer
