// The formats of JSON schemas that are enforced. Every other format is an annotation. [any thread]
#pragma once

#include <string>
#include <string_view>

namespace nereid::llm::grammar {

// The pattern of a format, for RegexMatch::kWhole, or an empty text if it is not enforced.
std::string PatternOfFormat(std::string_view format);

}  // namespace nereid::llm::grammar
