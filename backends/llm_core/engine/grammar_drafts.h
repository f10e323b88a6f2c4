// Draft tokens of sequences with a grammar: none is verified that the grammar does not allow, and
// text that the grammar forces is proposed. [engine thread]
#pragma once

#include <memory>
#include <span>

#include "backends/llm_core/engine/sequence.h"

namespace nereid::llm {

// Called when the drafts of a step are chosen, before it is scheduled.
void FitDraftsToGrammars(std::span<const std::unique_ptr<Sequence>> running);

}  // namespace nereid::llm
