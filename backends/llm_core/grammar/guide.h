// What a request says about the form of its output: a type, by TensorRT-LLM's names, and a text.
// [any thread]
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "backends/llm_core/grammar/grammar.h"
#include "nereid/status.h"

namespace nereid::llm::grammar {

enum class GuideType : uint8_t {
  kJson,           // a JSON object or array; the text is not used
  kJsonSchema,     // JSON that is valid against the schema
  kRegex,          // the whole output matches
  kEbnf,           // rules; see ebnf.h
  kStructuralTag,  // texts in which parts are JSON; see structural_tag.h
  kChoice,         // one text of a JSON list; an extension
};

struct Guide {
  GuideType type = GuideType::kJson;
  std::string text;
};

// INVALID_ARG lists the names.
Result<GuideType> ParseGuideType(std::string_view name);
std::string_view NameOf(GuideType type);

// Names of request parameters that say the same as fields of OpenAI's routes: guided_json,
// guided_regex, guided_choice, guided_grammar, response_format.
std::span<const char* const> GuideParameters();
// The guide of the parameter `name`, which is one of them; nothing for the response format `text`.
Result<std::optional<Guide>> ReadGuideParameter(std::string_view name, std::string_view text);

// INVALID_ARG says what cannot be compiled and why, also where it is only not supported: the
// request is at fault. The first mask is computed as well, so that a grammar that no token can
// begin is an error, and what the lexer needs first is known.
Result<std::shared_ptr<const Grammar>> CompileGuide(const Guide& guide,
                                                    std::shared_ptr<const Vocabulary> vocabulary,
                                                    const GrammarOptions& options = {});

}  // namespace nereid::llm::grammar
