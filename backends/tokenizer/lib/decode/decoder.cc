// See decoder.h.
#include "backends/tokenizer/lib/decode/decoder.h"

#include <algorithm>
#include <cstring>

#include "backends/tokenizer/lib/text/byte_encoding.h"
#include "backends/tokenizer/lib/text/utf8.h"

namespace nereid::tokenizer {
namespace {

std::string ApplySteps(const std::vector<TokenStep>& steps, std::string text, bool first,
                       bool last) {
  for (const TokenStep& step : steps) text = step.Apply(text, first, last);
  return text;
}

// Returns the value of a token `<0xHH>`. Like the reference, accepts a plus sign and one digit.
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

TokenDecoder TokenDecoder::Make(DecoderSteps decoder_steps, int32_t id_end,
                                const TokenOfId& token_of_id) {
  TokenDecoder decoder;
  decoder.steps_ = std::move(decoder_steps);
  const bool first_differs = decoder.steps_.first_differs();
  const bool last_differs = decoder.steps_.last_differs();
  const auto fill = [&](std::vector<TokenText>& texts, bool first, bool last) {
    texts.resize(id_end);
    for (int32_t id = 0; id < id_end; ++id) {
      if (const auto token = token_of_id(id))
        texts[id] = decoder.MakeTokenText(*token, first, last);
    }
  };
  fill(decoder.middle_texts_, false, false);
  if (first_differs) fill(decoder.first_texts_, true, false);
  if (last_differs) fill(decoder.last_texts_, false, true);
  if (first_differs && last_differs) fill(decoder.only_texts_, true, true);
  const DecoderSteps& steps = decoder.steps_;
  decoder.is_concatenation_ = steps.byte_level && !steps.drops_repeats && !first_differs &&
                              !last_differs && steps.on_text.empty();
  decoder.arena_.append(kBlock, '\0');
  decoder.arena_.shrink_to_fit();
  return decoder;
}

const std::vector<TokenDecoder::TokenText>& TokenDecoder::TextsAt(bool first, bool last) const {
  first &= !first_texts_.empty();
  last &= !last_texts_.empty();
  if (first && last) return only_texts_;
  return first ? first_texts_ : last ? last_texts_ : middle_texts_;
}

TokenDecoder::TokenText TokenDecoder::MakeTokenText(const Token& token, bool first, bool last) {
  TokenText token_text;
  token_text.special = token.special;
  std::string text = ApplySteps(steps_.before_fallback, std::string(token.text), first, last);
  if (const auto byte = steps_.byte_fallback ? ByteOf(text) : std::nullopt) {
    token_text.kind = Kind::kByte;
    token_text.byte = *byte;
    return token_text;
  }
  text = ApplySteps(steps_.after_fallback, std::move(text), first, last);
  token_text.kind = Kind::kText;
  token_text.offset = static_cast<uint32_t>(arena_.size());
  if (!steps_.byte_level || !AppendBytesOf(text, arena_)) arena_.append(text);
  token_text.size = static_cast<uint32_t>(arena_.size() - token_text.offset);
  token_text.is_valid_utf8 = IsValidUtf8(TextOf(token_text));
  return token_text;
}

std::optional<std::string> TokenDecoder::BytesOf(int32_t id) const {
  if (id < 0 || id >= static_cast<int32_t>(middle_texts_.size())) return "";
  const TokenText& token_text = middle_texts_[id];
  if (token_text.kind == Kind::kAbsent) return "";
  if (token_text.kind == Kind::kByte) return std::string(1, static_cast<char>(token_text.byte));
  if (!steps_.byte_level) return std::nullopt;
  return std::string(TextOf(token_text));
}

int32_t TokenDecoder::FindLongestPrefix(std::string_view text) const {
  int32_t found = -1;
  uint32_t longest = 0;
  for (size_t id = 0; id < middle_texts_.size(); ++id) {
    const TokenText& token_text = middle_texts_[id];
    if (token_text.kind != Kind::kText || token_text.special || token_text.size <= longest)
      continue;
    if (!text.starts_with(TextOf(token_text))) continue;
    found = static_cast<int32_t>(id);
    longest = token_text.size;
  }
  return found;
}

DecodeState::DecodeState(const TokenDecoder& decoder, bool skip_special_tokens,
                         size_t max_pending_ids)
    : decoder_(decoder),
      skip_special_tokens_(skip_special_tokens),
      max_pending_ids_(max_pending_ids) {
  for (const TokenStep& step : decoder.steps_.on_text) {
    text_states_.push_back({&step, step.start, ""});
  }
}

void DecodeState::AssumeStarted() {
  first_ = false;
  for (TextStepState& state : text_states_) state.num_start_left = 0;
}

bool DecodeState::is_flushed() const {
  const auto holds = [](const TextStepState& state) { return !state.pending.empty(); };
  return pending_.empty() && deferred_last_ < 0 &&
         std::none_of(text_states_.begin(), text_states_.end(), holds);
}

void DecodeState::PushAll(std::span<const int32_t> ids, std::string& out) {
  while (!ids.empty()) {
    const size_t done =
        decoder_.is_concatenation_ && pending_.empty() ? PushValidTexts(ids, out) : 0;
    ids = ids.subspan(done);
    if (ids.empty()) return;
    Push(ids.front(), out);
    ids = ids.subspan(1);
  }
}

// Appends the texts of `ids` up to the first one that is not valid UTF-8 by itself, and returns
// their number. Most texts are short: a whole block is copied at once, and the next copy overwrites
// the excess.
size_t DecodeState::PushValidTexts(std::span<const int32_t> ids, std::string& out) {
  constexpr size_t kBlock = TokenDecoder::kBlock;
  constexpr size_t kIdsPerAppend = 64;  // number of ids gathered before each append
  const TokenDecoder::TokenText* texts = decoder_.middle_texts_.data();
  const size_t num_texts = decoder_.middle_texts_.size();
  const char* arena = decoder_.arena_.data();
  char gathered[kIdsPerAppend * kBlock];
  size_t done = 0;
  for (bool is_stopped = false; done < ids.size() && !is_stopped;) {
    const size_t end = std::min(ids.size(), done + kIdsPerAppend);
    char* target = gathered;
    for (; done < end; ++done) {
      const auto id = static_cast<size_t>(static_cast<uint32_t>(ids[done]));
      is_stopped = id >= num_texts || !texts[id].is_valid_utf8 || texts[id].size > kBlock ||
                   texts[id].kind != TokenDecoder::Kind::kText ||
                   (skip_special_tokens_ && texts[id].special);
      if (is_stopped) break;
      std::memcpy(target, arena + texts[id].offset, kBlock);
      target += texts[id].size;
    }
    out.append(gathered, static_cast<size_t>(target - gathered));
  }
  first_ = first_ && done == 0;
  return done;
}

void DecodeState::Push(int32_t id, std::string& out) {
  if (!pending_.empty()) ++num_pending_ids_;
  if (id < 0 || id >= static_cast<int32_t>(decoder_.middle_texts_.size())) return LimitPending(out);
  const TokenDecoder::TokenText* token_text = &decoder_.middle_texts_[id];
  if (token_text->kind == TokenDecoder::Kind::kAbsent ||
      (skip_special_tokens_ && token_text->special)) {
    return LimitPending(out);
  }
  if (decoder_.steps_.drops_repeats) {
    if (id == previous_) return;
    previous_ = id;
  }
  if (deferred_last_ >= 0) {  // another token follows, so it was not the last
    EmitToken(deferred_last_, /*last=*/false, out);
    deferred_last_ = -1;
  }
  if (token_text->kind == TokenDecoder::Kind::kByte) {
    PushByte(token_text->byte, out);
  } else {
    PushText(id, out);
  }
  LimitPending(out);
}

void DecodeState::PushText(int32_t id, std::string& out) {
  if (!decoder_.steps_.byte_level) EndByteRun(out);
  if (!decoder_.last_texts_.empty()) {
    const auto text = [&](bool last) {
      return decoder_.TextOf(decoder_.TextsAt(first_, last)[id]);
    };
    if (text(false) != text(true)) {
      deferred_last_ = id;
      return;
    }
  }
  EmitToken(id, /*last=*/false, out);
}

void DecodeState::EmitToken(int32_t id, bool last, std::string& out) {
  const TokenDecoder::TokenText& token_text = decoder_.TextsAt(first_, last)[id];
  if (decoder_.steps_.byte_level) {
    PushByteLevel(token_text, out);
  } else {
    if (decoder_.steps_.joins_with_spaces && !first_) Emit(" ", out);
    Emit(decoder_.TextOf(token_text), out);
  }
  first_ = first_ && decoder_.steps_.first_until_text && token_text.size == 0;
}

void DecodeState::PushByteLevel(const TokenDecoder::TokenText& token_text, std::string& out) {
  const std::string_view bytes = decoder_.TextOf(token_text);
  if (pending_.empty() && token_text.is_valid_utf8) return Emit(bytes, out);
  pending_.append(bytes);
  std::string decoded;
  const size_t consumed = AppendLossy(pending_, /*final=*/false, decoded);
  if (consumed == 0) {
    num_pending_ids_ = std::max<size_t>(num_pending_ids_, 1);
    return;
  }
  pending_.erase(0, consumed);
  num_pending_ids_ = pending_.empty() ? 0 : 1;  // the remaining bytes came with this token
  Emit(decoded, out);
}

// A run of byte tokens is text only if the whole run is valid, which is known at its end.
void DecodeState::PushByte(uint8_t byte, std::string& out) {
  pending_.push_back(static_cast<char>(byte));
  num_pending_ids_ = std::max<size_t>(num_pending_ids_, 1);
  if (!run_overflowed_) return;
  std::string decoded;
  pending_.erase(0, AppendLossy(pending_, /*final=*/false, decoded));
  if (pending_.empty()) num_pending_ids_ = 0;
  EmitByteRun(decoded, out);
}

void DecodeState::EndByteRun(std::string& out) {
  if (!pending_.empty()) {
    std::string decoded;
    if (run_overflowed_) {
      AppendLossy(pending_, /*final=*/true, decoded);
      EmitByteRun(decoded, out);
    } else if (IsValidUtf8(pending_)) {
      EmitByteRun(pending_, out);
    } else {
      for (size_t i = 0; i < pending_.size(); ++i) EmitByteRun(kReplacement, out);
    }
  }
  pending_.clear();
  num_pending_ids_ = 0;
  run_overflowed_ = false;
}

// Emits one token that ByteFallback produces from a run.
void DecodeState::EmitByteRun(std::string_view text, std::string& out) {
  const auto& steps = decoder_.steps_.after_fallback;
  if (first_ && decoder_.steps_.strips_first_byte_space && text.starts_with(' '))
    text.remove_prefix(1);
  const bool is_nothing = text.empty();
  if (steps.empty()) {
    Emit(text, out);
  } else {
    Emit(ApplySteps(steps, std::string(text), first_, false), out);
  }
  first_ = first_ && decoder_.steps_.first_until_text && is_nothing;
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

void DecodeState::LimitPending(std::string& out) {
  if (pending_.empty() || num_pending_ids_ < max_pending_ids_) return;
  std::string decoded;
  if (decoder_.steps_.byte_level) {
    AppendLossy(pending_, /*final=*/true, decoded);
    pending_.clear();
    num_pending_ids_ = 0;
    Emit(decoded, out);
    return;
  }
  run_overflowed_ = true;
  pending_.erase(0, AppendLossy(pending_, /*final=*/false, decoded));
  num_pending_ids_ = pending_.empty() ? 0 : 1;
  if (!decoded.empty()) EmitByteRun(decoded, out);
}

void DecodeState::Finish(std::string& out) {
  if (deferred_last_ >= 0) {
    EmitToken(deferred_last_, /*last=*/true, out);
    deferred_last_ = -1;
  }
  if (decoder_.steps_.byte_level) {
    std::string decoded;
    AppendLossy(pending_, /*final=*/true, decoded);
    Emit(decoded, out);
    pending_.clear();
  } else {
    EndByteRun(out);
  }
}

}  // namespace nereid::tokenizer
