// The decoder component of tokenizer.json, compiled: what each id adds to the text is worked out at
// load, so that decoding is mostly copying. One code path serves whole texts and streams.
// TokenDecoder is immutable after Make [any thread]; a DecodeState belongs to one stream.
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
  // Gives the token of each id below `id_end`, or nothing.
  using TokenOfId = std::function<std::optional<Token>(int32_t id)>;

  // From the "decoder" member; null joins tokens by spaces. UNSUPPORTED names the component.
  static Result<TokenDecoder> Make(const nlohmann::json& spec, int32_t id_end,
                                   const TokenOfId& token_of_id);
  static TokenDecoder Make(DecoderSteps steps, int32_t id_end, const TokenOfId& token_of_id);

  // The id whose text, in the middle of others, is the longest beginning of `text`; special tokens
  // and bytes do not count. -1: none. Looks at each id.
  int32_t LongestBeginning(std::string_view text) const;
  size_t SizeOf(int32_t id) const { return pieces_[id].size; }  // of that text

  bool IsSpecial(int32_t id) const {
    return id >= 0 && id < static_cast<int32_t>(pieces_.size()) && pieces_[id].special;
  }

 private:
  friend class DecodeState;
  enum class Kind : uint8_t {
    kAbsent,  // no token has this id
    kText,
    kByte,  // a <0xHH> token under ByteFallback
  };
  struct Piece {
    uint32_t offset = 0, size = 0;  // in arena_
    Kind kind = Kind::kAbsent;
    bool special = false;
    bool whole = false;  // valid UTF-8 by itself
    uint8_t byte = 0;    // of kByte
  };

  Piece MakePiece(const Token& token, bool first, bool last);
  std::string_view TextOf(const Piece& piece) const {
    return {arena_.data() + piece.offset, piece.size};
  }

  // The list of pieces for a token at this place.
  const std::vector<Piece>& PiecesAt(bool first, bool last) const;

  DecoderSteps steps_;
  // Bytes behind the last text that may be read: short texts are copied as one block.
  static constexpr size_t kBlock = 16;

  std::string arena_;
  bool is_plain_ = false;      // whole texts follow each other as they are
  std::vector<Piece> pieces_;  // [id_end]
  // The same for the first token, for the last, and for one that is both; empty where that is no
  // special case.
  std::vector<Piece> first_pieces_, last_pieces_, only_pieces_;
};

// One stream of ids in the making.
class DecodeState {
 public:
  DecodeState(const TokenDecoder& decoder, bool skip_special_tokens, size_t max_held_ids);

  void Push(int32_t id, std::string& out);
  void PushAll(std::span<const int32_t> ids, std::string& out);
  void Finish(std::string& out);
  // Declares that text came before, so that nothing is treated as the text's start.
  void AssumeStarted();
  // The text of all ids so far is out.
  bool is_settled() const;

 private:
  size_t PushPlain(std::span<const int32_t> ids, std::string& out);
  void PushText(int32_t id, std::string& out);
  void EmitPiece(int32_t id, bool last, std::string& out);
  void PushByteLevel(const TokenDecoder::Piece& piece, std::string& out);
  void PushByte(uint8_t byte, std::string& out);
  void EndByteRun(std::string& out);
  void EmitRun(std::string_view text, std::string& out);
  void Emit(std::string_view text, std::string& out);
  void LimitHeld(std::string& out);

  const TokenDecoder& decoder_;
  const bool skip_special_tokens_;
  const size_t max_held_ids_;
  bool first_ = true;                       // no token was seen yet, or no text (start_lasts)
  int32_t held_last_ = -1;                  // a token that differs if it stays the last
  int32_t previous_ = -1;                   // the token before, where repeats are dropped
  std::string pending_;                     // bytes held back
  size_t held_ids_ = 0;                     // ids since the first of them
  bool run_overflowed_ = false;             // the current run of byte tokens passed the limit
  std::vector<TextStepState> text_states_;  // one for each step on the joined text
};

}  // namespace nereid::tokenizer
