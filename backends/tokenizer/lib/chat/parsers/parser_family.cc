// See parser_family.h.
#include "backends/tokenizer/lib/chat/parsers/parser_family.h"

#include "backends/tokenizer/lib/chat/parsers/families/families.h"
#include "backends/tokenizer/lib/chat/parsers/json_text.h"

namespace nereid::tokenizer {
namespace {

// Families with markers of their own come before those whose markers others also use.
constexpr const ParserFamily* kAllFamilies[] = {
    &parsers::kHarmony,     &parsers::kKimi,        &parsers::kKimiK3,     &parsers::kDeepSeekV3,
    &parsers::kDeepSeekV31, &parsers::kDeepSeekV32, &parsers::kDeepSeekV4, &parsers::kHunyuan,
    &parsers::kSeed,        &parsers::kGemma4,      &parsers::kLfm,        &parsers::kNemotron,
    &parsers::kGlm,         &parsers::kMiniMax,     &parsers::kMiniMaxM1,  &parsers::kQwenCoder,
    &parsers::kMistral,     &parsers::kGranite,     &parsers::kPhi,        &parsers::kHermes,
    &parsers::kLlama,       &parsers::kGemma,       &parsers::kPythonic,   &parsers::kThink,
};

}  // namespace

bool HasBegunReasoning(const ParserFamily& family, std::string_view prompt_end) {
  while (!prompt_end.empty() && parsers::IsSpace(prompt_end.back())) prompt_end.remove_suffix(1);
  return prompt_end.ends_with(family.reasoning.begin);
}

std::span<const ParserFamily* const> ParserFamilies() {
  return kAllFamilies;
}

const ParserFamily* FindParserFamily(std::string_view name) {
  for (const ParserFamily* family : kAllFamilies) {
    if (family->name == name) return family;
  }
  return nullptr;
}

const ParserFamily* ParserFamilyOfTemplate(std::string_view source) {
  for (const ParserFamily* family : kAllFamilies) {
    if (family->recognizes(source)) return family;
  }
  return nullptr;
}

}  // namespace nereid::tokenizer
