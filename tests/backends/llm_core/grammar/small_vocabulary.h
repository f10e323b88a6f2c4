// Vocabularies for tests of grammars.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/llm_core/grammar/grammar.h"
#include "backends/llm_core/grammar/matcher.h"

namespace nereid::llm::grammar {

// Every byte is a token, then come `more`, and the last token ends a generation.
inline std::shared_ptr<const Vocabulary> BytesAnd(const std::vector<std::string>& more) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  tokens.insert(tokens.end(), more.begin(), more.end());
  tokens.emplace_back();
  const auto end = static_cast<int32_t>(tokens.size() - 1);
  return Vocabulary::Make(std::move(tokens), {end}).value();
}

inline bool MaskHas(const std::vector<uint32_t>& mask, int32_t token) {
  return mask[token / 32] >> (token % 32) & 1;
}

// Whether a text is accepted, byte by byte; both ways of computing masks must agree at each byte.
inline bool Accepts(const std::shared_ptr<const Grammar>& grammar, const std::string& text) {
  Matcher matcher(grammar);
  std::vector<uint32_t> mask(grammar->vocabulary().num_mask_words()), walked = mask;
  for (const char c : text) {
    matcher.ComputeMask(mask);
    matcher.ComputeMaskByWalk(walked);
    EXPECT_EQ(mask, walked) << text;
    const bool allowed = MaskHas(mask, static_cast<uint8_t>(c));
    EXPECT_EQ(matcher.Accept({&c, 1}), allowed) << text;
    if (!allowed) return false;
  }
  matcher.ComputeMask(mask);
  EXPECT_EQ(MaskHas(mask, grammar->vocabulary().end_ids()[0]), matcher.CanEnd());
  return matcher.CanEnd();
}

}  // namespace nereid::llm::grammar
