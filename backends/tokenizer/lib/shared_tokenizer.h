/// \file
/// A cache of loaded tokenizers by path. The preprocessing model, the postprocessing model and the
/// LLM between them share one copy of the vocabulary. Used by the tokenizer backend and the LLM
/// backends at model load. [any thread]
#pragma once

#include <memory>
#include <string>

#include "backends/tokenizer/lib/tokenizer.h"
#include "nereid/status.h"

namespace nereid::tokenizer {

/// Returns the cached tokenizer of `path`, or loads it with Tokenizer::Load.
///
/// A cached tokenizer is returned only while another owner still holds it and its files are
/// unchanged. The cache compares device, inode, size, modification time and change time of the
/// loaded file and of all .json, .model and .tiktoken files in its folder. Symbolic links to
/// folders are resolved; a link to a file is not, because the side files next to the link belong to
/// it.
///
/// Ownership: the cache holds a weak reference, so the last returned pointer frees the tokenizer.
/// Threads: callers that request the same path at the same time wait for one load; different paths
/// load concurrently.
/// Errors: those of Tokenizer::Load. A failed load is not cached.
Result<std::shared_ptr<const Tokenizer>> LoadShared(const std::string& path);

}  // namespace nereid::tokenizer
