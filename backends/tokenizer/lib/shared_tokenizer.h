// Tokenizers that a backend has loaded, for whoever asks for the same path: the models before and
// behind an LLM hold one vocabulary. [any thread]
#pragma once

#include <memory>
#include <string>

#include "backends/tokenizer/lib/tokenizer.h"
#include "nereid/status.h"

namespace nereid::tokenizer {

// As Tokenizer::Load, but for a tokenizer that somebody still holds and whose files, and those
// beside them, are as they were then. Who asks while another one loads the same waits for it.
Result<std::shared_ptr<const Tokenizer>> LoadShared(const std::string& path);

}  // namespace nereid::tokenizer
