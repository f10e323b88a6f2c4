// See space_clean_up.h.
#include "backends/tokenizer/lib/decode/space_clean_up.h"

#include <utility>

namespace nereid::tokenizer {
namespace {

void ReplaceAll(std::string_view from, std::string_view to, std::string& text) {
  size_t at = text.find(from);
  if (at == text.npos) return;
  std::string replaced;
  size_t copied = 0;
  for (; at != text.npos; at = text.find(from, copied)) {
    replaced.append(text, copied, at - copied).append(to);
    copied = at + from.size();
  }
  replaced.append(text, copied);
  text = std::move(replaced);
}

// Whether no rule can match across position `at`, whatever follows `text`. A match across it
// contains the character before `at`, which every rule keeps unless it is a space, and does not end
// with it. `text` starts at such a position.
bool IsSettledAt(std::string_view text, size_t at) {
  if (at == 0) return true;
  const char last = text[at - 1];
  const char before = at >= 2 ? text[at - 2] : '\0';
  switch (last) {
    case ' ':  // the rules remove at most two of adjacent spaces
      return at + 1 < text.size() && text[at] == ' ' && text[at + 1] == ' ';
    case '\'':
      return before != ' ' && before != 'n';
    case 'n':
      return before != ' ';
    case 'v':
    case 'r':  // the rule for " ' " may join the quote with the letter
      return before != '\'' && !(before == ' ' && at >= 3 && text[at - 3] == '\'');
    default:
      return true;
  }
}

size_t SettledSize(std::string_view text) {
  size_t size = text.size();
  while (!IsSettledAt(text, size)) --size;
  return size;
}

}  // namespace

std::string CleanUpSpaces(std::string text) {
  constexpr std::pair<std::string_view, std::string_view> kRules[] = {
      {" .", "."},     {" ?", "?"},   {" !", "!"},   {" ,", ","},     {" ' ", "'"},
      {" n't", "n't"}, {" 'm", "'m"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kRules) ReplaceAll(from, to, text);
  return text;
}

void SpaceCleanUp::PushToken(std::string_view text, std::string& out) {
  ++num_tokens_;
  pending_.append(text);
  token_of_byte_.resize(pending_.size(), num_tokens_);
  Emit(SettledSize(pending_), out);
  if (!pending_.empty() && num_tokens_ - token_of_byte_.front() + 1 >= max_pending_ids_) {
    Emit(pending_.size(), out);
  }
}

void SpaceCleanUp::Finish(std::string& out) {
  Emit(pending_.size(), out);
}

void SpaceCleanUp::Emit(size_t num_bytes, std::string& out) {
  if (num_bytes == 0) return;
  out += CleanUpSpaces(pending_.substr(0, num_bytes));
  pending_.erase(0, num_bytes);
  token_of_byte_.erase(token_of_byte_.begin(),
                       token_of_byte_.begin() + static_cast<ptrdiff_t>(num_bytes));
}

}  // namespace nereid::tokenizer
