// How the fastest algorithm of a product is found: for which numbers of rows it is looked for, and
// which of the candidates wins. No CUDA here.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "nereid/status.h"

namespace nereid::gpu {

// The largest of the numbers of rows that share an algorithm with `num_rows`. Trials take this one:
// what is fast for it is at most as slow for fewer rows, while an algorithm whose tiles just fit
// one number may take half as long again for a few rows more.
int TrialRows(int num_rows);

// Numbers of rows whose candidates are tried for `trial_rows`, itself first: cuBLASLt's proposals
// for some sizes are slower than those for larger ones.
std::vector<int> ProposalRows(int trial_rows);

// Seconds that candidate `i` takes; nothing: it can not run.
using TimeCandidate = std::function<Result<std::optional<double>>(int i)>;

// The fastest of [0, count): all once, then the best few again in turns, by their least times, so
// that clocks that rise or fall meanwhile favour none. Nothing: none can run.
Result<std::optional<int>> FindFastest(int count, const TimeCandidate& time);

}  // namespace nereid::gpu
