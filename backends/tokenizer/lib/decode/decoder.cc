// See decoder.h.
#include "backends/tokenizer/lib/decode/decoder.h"

#include <algorithm>
#include <cstring>

#include "backends/tokenizer/lib/text/byte_level.h"
#include "backends/tokenizer/lib/text/utf8.h"

namespace nereid::tokenizer {
namespace {

std::string ApplySteps(const std::vector<TokenStep>& steps, std::string text, bool first,
                       bool last) {
  for (const TokenStep& step : steps) text = step.Apply(text, first, last);
  return text;
}

// The value of a token `<0xHH>`; one hex digit with a sign passes too, as in the reference.
std::optional<uint8_t> ByteOf(std::string_view token) {
  if (token.size() != 6 || token.substr(0, 3) != "<0x" || token[5] != '>') return std::nullopt;
  unsigned value = 0;
  for (size_t i = token[3] == '+' ? 4 : 3; i < 5; ++i) {
    const char c = token[i];
    const char lower = static_cast<char>(c | 0x20);
    if (c >= '0' && c <= '9') {
      value = value * 16 + (c - '0');
    } else if (lower >= 'a' && lower <= 'f') {
      value = value * 16 + (lower - 'a' + 10);
    } else {
      return std::nullopt;
    }
  }
  return static_cast<uint8_t>(value);
}

}  // namespace

Result<TokenDecoder> TokenDecoder::Make(const nlohmann::json& spec, int32_t id_end,
                                        const TokenOfId& token_of_id) {
  NEREID_ASSIGN_OR_RETURN(DecoderSteps steps, DecoderSteps::Make(spec));
  return Make(std::move(steps), id_end, token_of_id);
}

TokenDecoder TokenDecoder::Make(DecoderSteps made, int32_t id_end, const TokenOfId& token_of_id) {
  TokenDecoder decoder;
  decoder.steps_ = std::move(made);
  const bool first_differs = decoder.steps_.first_differs();
  const bool last_differs = decoder.steps_.last_differs();
  const auto fill = [&](std::vector<Piece>& pieces, bool first, bool last) {
    pieces.resize(id_end);
    for (int32_t id = 0; id < id_end; ++id) {
      if (const auto token = token_of_id(id)) pieces[id] = decoder.MakePiece(*token, first, last);
    }
  };
  fill(decoder.pieces_, false, false);
  if (first_differs) fill(decoder.first_pieces_, true, false);
  if (last_differs) fill(decoder.last_pieces_, false, true);
  if (first_differs && last_differs) fill(decoder.only_pieces_, true, true);
  const DecoderSteps& steps = decoder.steps_;
  decoder.is_plain_ = steps.byte_level && !steps.drops_repeats && !first_differs && !last_differs &&
                      steps.on_text.empty();
  decoder.arena_.append(kBlock, '\0');
  decoder.arena_.shrink_to_fit();
  return decoder;
}

const std::vector<TokenDecoder::Piece>& TokenDecoder::PiecesAt(bool first, bool last) const {
  first &= !first_pieces_.empty();
  last &= !last_pieces_.empty();
  if (first && last) return only_pieces_;
  return first ? first_pieces_ : last ? last_pieces_ : pieces_;
}

TokenDecoder::Piece TokenDecoder::MakePiece(const Token& token, bool first, bool last) {
  Piece piece;
  piece.special = token.special;
  std::string text = ApplySteps(steps_.before_fallback, std::string(token.text), first, last);
  if (const auto byte = steps_.byte_fallback ? ByteOf(text) : std::nullopt) {
    piece.kind = Kind::kByte;
    piece.byte = *byte;
    return piece;
  }
  text = ApplySteps(steps_.after_fallback, std::move(text), first, last);
  piece.kind = Kind::kText;
  piece.offset = static_cast<uint32_t>(arena_.size());
  if (!steps_.byte_level || !AppendBytesOf(text, arena_)) arena_.append(text);
  piece.size = static_cast<uint32_t>(arena_.size() - piece.offset);
  piece.whole = IsValidUtf8(TextOf(piece));
  return piece;
}

int32_t TokenDecoder::LongestBeginning(std::string_view text) const {
  int32_t found = -1;
  uint32_t longest = 0;
  for (size_t id = 0; id < pieces_.size(); ++id) {
    const Piece& piece = pieces_[id];
    if (piece.kind != Kind::kText || piece.special || piece.size <= longest) continue;
    if (!text.starts_with(TextOf(piece))) continue;
    found = static_cast<int32_t>(id);
    longest = piece.size;
  }
  return found;
}

DecodeState::DecodeState(const TokenDecoder& decoder, bool skip_special_tokens, size_t max_held_ids)
    : decoder_(decoder), skip_special_tokens_(skip_special_tokens), max_held_ids_(max_held_ids) {
  for (const TokenStep& step : decoder.steps_.on_text) {
    text_states_.push_back({&step, step.start, ""});
  }
}

void DecodeState::AssumeStarted() {
  first_ = false;
  for (TextStepState& state : text_states_) state.start_left = 0;
}

bool DecodeState::is_settled() const {
  const auto holds = [](const TextStepState& state) { return !state.held.empty(); };
  return pending_.empty() && held_last_ < 0 &&
         std::none_of(text_states_.begin(), text_states_.end(), holds);
}

void DecodeState::PushAll(std::span<const int32_t> ids, std::string& out) {
  while (!ids.empty()) {
    const size_t done = decoder_.is_plain_ && pending_.empty() ? PushPlain(ids, out) : 0;
    ids = ids.subspan(done);
    if (ids.empty()) return;
    Push(ids.front(), out);
    ids = ids.subspan(1);
  }
}

// Copies the texts of `ids` up to the first that is not whole; returns how many those were. Most
// texts are short: a block is copied in one move, and what is too much of it overwritten.
size_t DecodeState::PushPlain(std::span<const int32_t> ids, std::string& out) {
  constexpr size_t kBlock = TokenDecoder::kBlock;
  constexpr size_t kRound = 64;  // ids that are gathered before they are appended
  const TokenDecoder::Piece* pieces = decoder_.pieces_.data();
  const size_t num_pieces = decoder_.pieces_.size();
  const char* arena = decoder_.arena_.data();
  char gathered[kRound * kBlock];
  size_t done = 0;
  for (bool is_stopped = false; done < ids.size() && !is_stopped;) {
    const size_t end = std::min(ids.size(), done + kRound);
    char* target = gathered;
    for (; done < end; ++done) {
      const auto id = static_cast<size_t>(static_cast<uint32_t>(ids[done]));
      is_stopped = id >= num_pieces || !pieces[id].whole || pieces[id].size > kBlock ||
                   pieces[id].kind != TokenDecoder::Kind::kText ||
                   (skip_special_tokens_ && pieces[id].special);
      if (is_stopped) break;
      std::memcpy(target, arena + pieces[id].offset, kBlock);
      target += pieces[id].size;
    }
    out.append(gathered, static_cast<size_t>(target - gathered));
  }
  first_ = first_ && done == 0;
  return done;
}

void DecodeState::Push(int32_t id, std::string& out) {
  if (!pending_.empty()) ++held_ids_;
  if (id < 0 || id >= static_cast<int32_t>(decoder_.pieces_.size())) return LimitHeld(out);
  const TokenDecoder::Piece* piece = &decoder_.pieces_[id];
  if (piece->kind == TokenDecoder::Kind::kAbsent || (skip_special_tokens_ && piece->special)) {
    return LimitHeld(out);
  }
  if (decoder_.steps_.drops_repeats) {
    if (id == previous_) return;
    previous_ = id;
  }
  if (held_last_ >= 0) {  // it was not the last
    EmitPiece(held_last_, /*last=*/false, out);
    held_last_ = -1;
  }
  if (piece->kind == TokenDecoder::Kind::kByte) {
    PushByte(piece->byte, out);
  } else {
    PushText(id, out);
  }
  LimitHeld(out);
}

void DecodeState::PushText(int32_t id, std::string& out) {
  if (!decoder_.steps_.byte_level) EndByteRun(out);
  if (!decoder_.last_pieces_.empty()) {
    const auto text = [&](bool last) {
      return decoder_.TextOf(decoder_.PiecesAt(first_, last)[id]);
    };
    if (text(false) != text(true)) {
      held_last_ = id;
      return;
    }
  }
  EmitPiece(id, /*last=*/false, out);
}

void DecodeState::EmitPiece(int32_t id, bool last, std::string& out) {
  const TokenDecoder::Piece& piece = decoder_.PiecesAt(first_, last)[id];
  if (decoder_.steps_.byte_level) {
    PushByteLevel(piece, out);
  } else {
    if (decoder_.steps_.spaces_between && !first_) Emit(" ", out);
    Emit(decoder_.TextOf(piece), out);
  }
  first_ = first_ && decoder_.steps_.start_lasts && piece.size == 0;
}

void DecodeState::PushByteLevel(const TokenDecoder::Piece& piece, std::string& out) {
  const std::string_view bytes = decoder_.TextOf(piece);
  if (pending_.empty() && piece.whole) return Emit(bytes, out);
  pending_.append(bytes);
  std::string settled;
  const size_t consumed = AppendLossy(pending_, /*final=*/false, settled);
  if (consumed == 0) {
    held_ids_ = std::max<size_t>(held_ids_, 1);
    return;
  }
  pending_.erase(0, consumed);
  held_ids_ = pending_.empty() ? 0 : 1;  // what is left came with this token
  Emit(settled, out);
}

// A run of byte tokens is text only if all of it is valid, which its end alone can tell.
void DecodeState::PushByte(uint8_t byte, std::string& out) {
  pending_.push_back(static_cast<char>(byte));
  held_ids_ = std::max<size_t>(held_ids_, 1);
  if (!run_overflowed_) return;
  std::string settled;
  pending_.erase(0, AppendLossy(pending_, /*final=*/false, settled));
  if (pending_.empty()) held_ids_ = 0;
  EmitRun(settled, out);
}

void DecodeState::EndByteRun(std::string& out) {
  if (!pending_.empty()) {
    std::string settled;
    if (run_overflowed_) {
      AppendLossy(pending_, /*final=*/true, settled);
      EmitRun(settled, out);
    } else if (IsValidUtf8(pending_)) {
      EmitRun(pending_, out);
    } else {
      for (size_t i = 0; i < pending_.size(); ++i) EmitRun(kReplacement, out);
    }
  }
  pending_.clear();
  held_ids_ = 0;
  run_overflowed_ = false;
}

// One token of what ByteFallback makes of a run.
void DecodeState::EmitRun(std::string_view text, std::string& out) {
  const auto& steps = decoder_.steps_.after_fallback;
  if (first_ && decoder_.steps_.bytes_lose_space && text.starts_with(' ')) text.remove_prefix(1);
  const bool is_nothing = text.empty();
  if (steps.empty()) {
    Emit(text, out);
  } else {
    Emit(ApplySteps(steps, std::string(text), first_, false), out);
  }
  first_ = first_ && decoder_.steps_.start_lasts && is_nothing;
}

void DecodeState::Emit(std::string_view text, std::string& out) {
  if (text_states_.empty()) {
    out.append(text);
    return;
  }
  std::string current, next;
  for (size_t i = 0; i + 1 < text_states_.size(); ++i) {
    next.clear();
    text_states_[i].Push(text, next);
    current.swap(next);
    text = current;
  }
  text_states_.back().Push(text, out);
}

void DecodeState::LimitHeld(std::string& out) {
  if (pending_.empty() || held_ids_ < max_held_ids_) return;
  std::string settled;
  if (decoder_.steps_.byte_level) {
    AppendLossy(pending_, /*final=*/true, settled);
    pending_.clear();
    held_ids_ = 0;
    Emit(settled, out);
    return;
  }
  run_overflowed_ = true;
  pending_.erase(0, AppendLossy(pending_, /*final=*/false, settled));
  held_ids_ = pending_.empty() ? 0 : 1;
  if (!settled.empty()) EmitRun(settled, out);
}

void DecodeState::Finish(std::string& out) {
  if (held_last_ >= 0) {
    EmitPiece(held_last_, /*last=*/true, out);
    held_last_ = -1;
  }
  if (decoder_.steps_.byte_level) {
    std::string settled;
    AppendLossy(pending_, /*final=*/true, settled);
    Emit(settled, out);
    pending_.clear();
  } else {
    EndByteRun(out);
  }
}

}  // namespace nereid::tokenizer
