// tiktoken's rank files: a line for each token, its bytes in base64, a space, its rank.
#include <array>
#include <charconv>

#include "base64.h"
#include "rank_tokenizer.h"

namespace nereid::tokenizer {
namespace {

constexpr std::string_view kThreeDigits =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kOneDigit =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr size_t kGpt2Tokens = 50256, kCl100kTokens = 100256, kLlama3Tokens = 128000,
                 kQwenTokens = 151643;

AddedToken Special(std::string content, size_t id) {
  AddedToken token;
  token.content = std::move(content);
  token.id = static_cast<int32_t>(id);
  token.normalized = false;
  token.special = true;
  return token;
}

void AddSpecials(size_t first_id, std::initializer_list<const char*> names, RankTokenizer& ranks) {
  for (const char* name : names) ranks.specials.push_back(Special(name, first_id++));
}

// Names 0, 1 and so on between `before` and `after`.
void AddNumbered(size_t first_id, size_t count, const char* before, const char* after,
                 RankTokenizer& ranks, size_t first_number = 0) {
  for (size_t i = 0; i < count; ++i) {
    ranks.specials.push_back(Special(StrCat(before, first_number + i, after), first_id + i));
  }
}

void DescribeLlama3(RankTokenizer& ranks) {
  ranks.pattern = kThreeDigits;
  AddSpecials(
      kLlama3Tokens,
      {"<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>",
       "<|reserved_special_token_1|>", "<|finetune_right_pad_id|>", "<|reserved_special_token_2|>",
       "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>", "<|python_tag|>"},
      ranks);
  AddNumbered(kLlama3Tokens + 11, 245, "<|reserved_special_token_", "|>", ranks, 3);
  ranks.prefix_ids = {static_cast<int32_t>(kLlama3Tokens)};
  ranks.special_ids.bos = static_cast<int32_t>(kLlama3Tokens);
  ranks.special_ids.eos = static_cast<int32_t>(kLlama3Tokens + 9);
}

void DescribeQwen(RankTokenizer& ranks) {
  ranks.pattern = kOneDigit;
  ranks.nfc = true;
  AddSpecials(kQwenTokens, {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}, ranks);
  ranks.special_ids.eos = ranks.special_ids.pad = static_cast<int32_t>(kQwenTokens);
}

Status Describe(RankTokenizer& ranks) {
  const size_t count = ranks.tokens.size();
  if (count == kLlama3Tokens) {
    DescribeLlama3(ranks);
  } else if (count == kQwenTokens) {
    DescribeQwen(ranks);
  } else if (count == kGpt2Tokens) {
    ranks.pattern = kGpt2Pattern;
    AddSpecials(kGpt2Tokens, {"<|endoftext|>"}, ranks);
    ranks.special_ids.eos = static_cast<int32_t>(kGpt2Tokens);
  } else if (count == kCl100kTokens) {
    ranks.pattern = kThreeDigits;
    AddSpecials(kCl100kTokens + 1,
                {"<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"}, ranks);
    ranks.specials.push_back(Special("<|endofprompt|>", 100276));
    ranks.special_ids.eos = static_cast<int32_t>(kCl100kTokens + 1);
  } else {
    return UnsupportedError("a tiktoken file of ", count,
                            " tokens: the patterns known are those of ", kGpt2Tokens, " (GPT-2), ",
                            kCl100kTokens, " (cl100k), ", kLlama3Tokens, " (Llama 3) and ",
                            kQwenTokens, " (Qwen); give a tokenizer.json");
  }
  return {};
}

// Takes the next line; false at the end.
bool NextLine(std::string_view& rest, std::string_view& line) {
  if (rest.empty()) return false;
  const size_t end = std::min(rest.find('\n'), rest.size());
  line = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return true;
}

// "base64 rank"
bool ReadLine(std::string_view line, RankTokenizer& ranks) {
  const size_t space = line.find(' ');
  if (space == line.npos || space == 0) return false;
  RankTokenizer::Token token;
  token.offset = static_cast<uint32_t>(ranks.arena.size());
  if (!AppendBase64(line.substr(0, space), ranks.arena)) return false;
  token.size = static_cast<uint32_t>(ranks.arena.size() - token.offset);
  const char* const end = line.data() + line.size();
  const auto [at, error] = std::from_chars(line.data() + space + 1, end, token.rank);
  if (error != std::errc() || at != end) return false;
  ranks.tokens.push_back(token);
  return true;
}

}  // namespace

bool LooksLikeTiktoken(std::string_view bytes) {
  RankTokenizer ranks;
  std::string_view line;
  return NextLine(bytes, line) && line.size() < 4096 && ReadLine(line, ranks);
}

PartsResult LoadTiktoken(std::string_view bytes) {
  if (bytes.size() >= UINT32_MAX) return InvalidArgError("larger than 4 GiB");
  RankTokenizer ranks;
  std::string_view line;
  for (size_t number = 1; NextLine(bytes, line); ++number) {
    if (line.empty()) continue;
    if (!ReadLine(line, ranks)) {
      return InvalidArgError("line ", number, ": expected base64, a space and a rank, got '",
                             line.substr(0, 80), "'");
    }
  }
  NEREID_RETURN_IF_ERROR(Describe(ranks));
  return MakeRankTokenizer(ranks);
}

}  // namespace nereid::tokenizer
