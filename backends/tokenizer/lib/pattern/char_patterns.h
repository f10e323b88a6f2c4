// Patterns of the pre-tokenizers that have no regular expression: they look at one character and
// perhaps the one before. [any thread]
#pragma once

#include <memory>

#include "backends/tokenizer/lib/pattern/pattern.h"

namespace nereid::tokenizer {

std::unique_ptr<const Pattern> MakeSpacePattern();        // every White_Space character
std::unique_ptr<const Pattern> MakePunctuationPattern();  // every punctuation character
std::unique_ptr<const Pattern> MakeWordPattern();         // \w+|[^\w\s]+ of Rust's regex crate
std::unique_ptr<const Pattern> MakeScriptPattern();       // runs of one script, spaces with either

}  // namespace nereid::tokenizer
