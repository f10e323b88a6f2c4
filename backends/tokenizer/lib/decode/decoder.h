// The decoder component of tokenizer.json in compiled form. The text of each id is computed at
// load, so that decoding is mostly copying. Whole texts and streams use the same code. TokenDecoder
// is immutable after Make [any thread]; a DecodeState belongs to one stream.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/tokenizer/lib/decode/decoder_steps.h"
#include "nereid/status.h"

namespace nereid::tokenizer {

class TokenDecoder {
 public:
  struct Token {
    std::string_view text;
    bool special;
  };
  // Returns the token of an id below `id_end`, or nothing if no token has the id.
  using TokenOfId = std::function<std::optional<Token>(int32_t id)>;

  // `spec` is the "decoder" member; null joins tokens with spaces. UNSUPPORTED names the component.
  static Result<TokenDecoder> Make(const nlohmann::json& spec, int32_t id_end,
                                   const TokenOfId& token_of_id);
  static TokenDecoder Make(DecoderSteps steps, int32_t id_end, const TokenOfId& token_of_id);

  // Returns the id whose text inside a stream is the longest prefix of `text`, or -1. Special
  // tokens and byte tokens are not considered. Scans all ids.
  int32_t FindLongestPrefix(std::string_view text) const;
  size_t TextSize(int32_t id) const {
    return middle_texts_[id].size;
  }  // of the id's text inside a stream, in bytes

  // Returns the bytes of the id's token inside a stream, or nothing where its text is not made of
  // bytes that belong to it alone: without a byte-level decoder, for all but byte tokens.
  std::optional<std::string> BytesOf(int32_t id) const;

  bool IsSpecial(int32_t id) const {
    return id >= 0 && id < static_cast<int32_t>(middle_texts_.size()) && middle_texts_[id].special;
  }

 private:
  friend class DecodeState;
  enum class Kind : uint8_t {
    kAbsent,  // no token has this id
    kText,
    kByte,  // a <0xHH> token under ByteFallback
  };
  struct TokenText {
    uint32_t offset = 0, size = 0;  // in arena_
    Kind kind = Kind::kAbsent;
    bool special = false;
    bool is_valid_utf8 = false;  // valid UTF-8 by itself
    uint8_t byte = 0;            // of kByte
  };

  TokenText MakeTokenText(const Token& token, bool first, bool last);
  std::string_view TextOf(const TokenText& token_text) const {
    return {arena_.data() + token_text.offset, token_text.size};
  }

  // Returns the texts for a token at this position.
  const std::vector<TokenText>& TextsAt(bool first, bool last) const;

  DecoderSteps steps_;
  // Readable bytes after the last text in arena_: short texts are copied as blocks of this size.
  static constexpr size_t kBlock = 16;

  std::string arena_;
  bool is_concatenation_ = false;        // the output is the plain concatenation of all texts
  std::vector<TokenText> middle_texts_;  // [id_end]
  // The same for the first token, the last token, and a token that is both. Empty if the position
  // makes no difference.
  std::vector<TokenText> first_texts_, last_texts_, only_texts_;
};

// The decoding state of one stream of ids. [one thread at a time]
class DecodeState {
 public:
  DecodeState(const TokenDecoder& decoder, bool skip_special_tokens, size_t max_pending_ids);

  void Push(int32_t id, std::string& out);
  void PushAll(std::span<const int32_t> ids, std::string& out);
  void Finish(std::string& out);
  // Marks the start of the text as passed: the following ids continue an earlier text.
  void AssumeStarted();
  // True if the text of all ids so far was emitted.
  bool is_flushed() const;

 private:
  size_t PushValidTexts(std::span<const int32_t> ids, std::string& out);
  void PushText(int32_t id, std::string& out);
  void EmitToken(int32_t id, bool last, std::string& out);
  void PushByteLevel(const TokenDecoder::TokenText& token_text, std::string& out);
  void PushByte(uint8_t byte, std::string& out);
  void EndByteRun(std::string& out);
  void EmitByteRun(std::string_view text, std::string& out);
  void Emit(std::string_view text, std::string& out);
  void LimitPending(std::string& out);

  const TokenDecoder& decoder_;
  const bool skip_special_tokens_;
  const size_t max_pending_ids_;
  bool first_ = true;            // no token was seen yet; with first_until_text, no text
  int32_t deferred_last_ = -1;   // held back: its text differs if it is the last token
  int32_t previous_ = -1;        // the previous token, if repeats are dropped
  std::string pending_;          // undecoded bytes
  size_t num_pending_ids_ = 0;   // number of ids since the first undecoded byte
  bool run_overflowed_ = false;  // the current run of byte tokens exceeded max_pending_ids_
  std::vector<TextStepState> text_states_;  // one for each step in DecoderSteps::on_text
};

}  // namespace nereid::tokenizer
