// The split pattern and the special tokens of published tiktoken vocabularies, which their rank
// files do not contain. tokenizer_config.json may rename these special tokens or add others.
#include <initializer_list>

#include "backends/tokenizer/lib/load/rank_tokenizer.h"

namespace nereid::tokenizer {
namespace {

// Patterns with one to three digits per pre-token (Llama 3, GLM), with one digit (Qwen), and of
// cl100k, which keeps the spaces at the end of a text together.
constexpr std::string_view kThreeDigits =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kOneDigit =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kCl100k =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+\z|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kO200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kKimi =
    R"([\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

AddedToken Special(std::string content, size_t id) {
  AddedToken token;
  token.content = std::move(content);
  token.id = static_cast<int32_t>(id);
  token.normalized = false;
  token.special = true;
  return token;
}

// Adds special tokens with consecutive ids from `id` on and advances `id`.
void AddSpecials(size_t& id, std::initializer_list<const char*> names, RankTokenizerSpec& ranks) {
  for (const char* name : names) ranks.specials.push_back(Special(name, id++));
}

// Adds `count` special tokens whose names contain numbers from first_number on.
void AddNumbered(size_t& id, size_t count, const char* before, const char* after,
                 RankTokenizerSpec& ranks, size_t first_number = 0) {
  for (size_t i = 0; i < count; ++i) {
    ranks.specials.push_back(Special(StrCat(before, first_number + i, after), id++));
  }
}

void DescribeGpt2(
    RankTokenizerSpec& ranks) {  // r50k; and p50k, which has one more token and more runs of spaces
  constexpr int32_t kEnd = 50256;
  ranks.pattern = kGpt2Pattern;
  ranks.specials.push_back(Special("<|endoftext|>", kEnd));
  ranks.special_ids.eos = kEnd;
}

void DescribeCl100k(RankTokenizerSpec& ranks) {
  size_t id = 100257;
  ranks.pattern = kCl100k;
  ranks.special_ids.eos = static_cast<int32_t>(id);
  AddSpecials(id, {"<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"}, ranks);
  ranks.specials.push_back(Special("<|endofprompt|>", 100276));
}

void DescribeO200k(RankTokenizerSpec& ranks) {
  constexpr int32_t kEnd = 199999;
  ranks.pattern = kO200k;
  ranks.specials = {Special("<|endoftext|>", kEnd), Special("<|endofprompt|>", 200018)};
  ranks.special_ids.eos = kEnd;
}

void DescribeLlama3(RankTokenizerSpec& ranks) {
  size_t id = 128000;
  ranks.pattern = kThreeDigits;
  ranks.special_ids.bos = static_cast<int32_t>(id);
  ranks.special_ids.eos = static_cast<int32_t>(id + 9);
  ranks.prefix_ids = {static_cast<int32_t>(id)};
  AddSpecials(
      id,
      {"<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>",
       "<|reserved_special_token_1|>", "<|finetune_right_pad_id|>", "<|reserved_special_token_2|>",
       "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>", "<|python_tag|>"},
      ranks);
  AddNumbered(id, 245, "<|reserved_special_token_", "|>", ranks, 3);
}

void DescribeLlama4(RankTokenizerSpec& ranks) {
  constexpr const char* kText = "<|text_post_train_reserved_special_token_";
  constexpr const char* kVision = "<|vision_reserved_special_token_";
  constexpr const char* kReasoning = "<|reasoning_reserved_special_token_";
  size_t id = 200000;
  ranks.pattern = kO200k;
  ranks.special_ids.bos = static_cast<int32_t>(id);
  ranks.special_ids.eos = static_cast<int32_t>(id + 8);
  ranks.special_ids.pad = static_cast<int32_t>(id + 18);
  ranks.prefix_ids = {static_cast<int32_t>(id)};
  AddSpecials(
      id,
      {"<|begin_of_text|>", "<|end_of_text|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>",
       "<|header_start|>", "<|header_end|>", "<|eom|>", "<|eot|>", "<|step|>"},
      ranks);
  AddNumbered(id, 6, kText, "|>", ranks);
  AddSpecials(id, {"<|python_start|>", "<|python_end|>", "<|finetune_right_pad|>"}, ranks);
  AddNumbered(id, 61, kText, "|>", ranks, 8);
  AddSpecials(id, {"<|image_start|>", "<|image_end|>"}, ranks);
  AddNumbered(id, 2, kVision, "|>", ranks);
  AddSpecials(id, {"<|tile_x_separator|>", "<|tile_y_separator|>"}, ranks);
  AddNumbered(id, 4, kVision, "|>", ranks, 2);
  AddSpecials(id, {"<|image|>"}, ranks);
  AddNumbered(id, 1, kVision, "|>", ranks, 6);
  AddSpecials(id, {"<|patch|>"}, ranks);
  AddNumbered(id, 1041, kVision, "|>", ranks, 7);
  AddNumbered(id, 8, kReasoning, "|>", ranks);
  AddSpecials(id, {"<|reasoning_thinking_start|>", "<|reasoning_thinking_end|>"}, ranks);
  AddNumbered(id, 200000 + 2048 - id, "<|reserved_special_token_", "|>", ranks);
}

void DescribeQwen(RankTokenizerSpec& ranks) {
  size_t id = 151643;
  ranks.pattern = kOneDigit;
  ranks.nfc = true;
  ranks.special_ids.eos = ranks.special_ids.pad = static_cast<int32_t>(id);
  AddSpecials(id, {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}, ranks);
  AddNumbered(id, 205, "<|extra_", "|>", ranks);
}

void DescribeHunyuan(RankTokenizerSpec& ranks) {
  size_t id = 127957;
  ranks.pattern = kOneDigit;
  ranks.nfc = true;
  ranks.special_ids.eos = static_cast<int32_t>(id);
  AddSpecials(id, {"<|endoftext|>", "<|startoftext|>", "<|bos|>", "<|eos|>", "<|pad|>"}, ranks);
  AddNumbered(id, 205, "<|extra_", "|>", ranks);
}

void DescribeGlm4(RankTokenizerSpec& ranks) {
  size_t id = 151329;
  ranks.pattern = kThreeDigits;
  ranks.special_ids.eos = ranks.special_ids.pad = static_cast<int32_t>(id);
  ranks.prefix_ids = {static_cast<int32_t>(id + 2), static_cast<int32_t>(id + 4)};
  AddSpecials(id,
              {"<|endoftext|>", "[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>", "<|system|>",
               "<|user|>", "<|assistant|>", "<|observation|>", "<|begin_of_image|>",
               "<|end_of_image|>", "<|begin_of_video|>", "<|end_of_video|>"},
              ranks);
}

void DescribeKimi(RankTokenizerSpec& ranks) {  // tokenizer_config.json renames most of these
  size_t id = 163584;
  ranks.pattern = kKimi;
  ranks.special_ids.bos = static_cast<int32_t>(id);
  ranks.special_ids.eos = static_cast<int32_t>(id + 1);
  ranks.special_ids.unk = static_cast<int32_t>(id + 254);
  ranks.special_ids.pad = static_cast<int32_t>(id + 255);
  AddSpecials(id, {"[BOS]", "[EOS]"}, ranks);
  AddNumbered(id, 252, "<|reserved_token_", "|>", ranks, id);
  AddSpecials(id, {"[UNK]", "[PAD]"}, ranks);
}

// The published vocabularies, identified by the number of tokens in their files.
struct PublishedVocabulary {
  size_t num_tokens;
  const char* name;
  void (*describe)(RankTokenizerSpec&);
};
constexpr PublishedVocabulary kPublishedVocabularies[] = {
    {50256, "GPT-2", DescribeGpt2},      {50280, "p50k", DescribeGpt2},
    {100256, "cl100k", DescribeCl100k},  {127957, "Hunyuan", DescribeHunyuan},
    {128000, "Llama 3", DescribeLlama3}, {151329, "GLM-4", DescribeGlm4},
    {151643, "Qwen", DescribeQwen},      {163584, "Kimi", DescribeKimi},
    {199998, "o200k", DescribeO200k},    {200000, "Llama 4", DescribeLlama4},
};

}  // namespace

Status DescribePublishedVocabulary(RankTokenizerSpec& ranks) {
  std::string known;
  for (const PublishedVocabulary& published : kPublishedVocabularies) {
    if (ranks.tokens.size() == published.num_tokens) {
      published.describe(ranks);
      return {};
    }
    known += StrCat(known.empty() ? "" : ", ", published.num_tokens, " (", published.name, ")");
  }
  return UnsupportedError("a tiktoken file of ", ranks.tokens.size(),
                          " tokens: the patterns known are those of ", known,
                          "; give a tokenizer.json");
}

}  // namespace nereid::tokenizer
