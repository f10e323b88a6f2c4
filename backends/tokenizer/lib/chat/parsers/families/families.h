// The table's entries, each defined in the file of its family.
#pragma once

#include <string_view>

#include "backends/tokenizer/lib/chat/parsers/parser_family.h"

namespace nereid::tokenizer::parsers {

extern const ParserFamily kDeepSeekV3, kDeepSeekV31, kDeepSeekV32, kDeepSeekV4, kGemma, kGemma4,
    kGlm, kGranite, kHarmony, kHermes, kHunyuan, kKimi, kKimiK3, kLfm, kLlama, kMiniMax, kMiniMaxM1,
    kMistral, kNemotron, kPhi, kPythonic, kQwenCoder, kSeed, kThink;

inline bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace nereid::tokenizer::parsers
