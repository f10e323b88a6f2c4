// Finds the known name that is closest to a misspelt one. Used only in error messages.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nereid {

// Returns the candidate with the smallest edit distance, at most a third of the name's length (but
// at least 2). Empty if no candidate is that close.
std::string ClosestName(std::string_view name, const std::vector<std::string>& candidates);

// " (did you mean 'X'?)", or an empty string.
std::string DidYouMean(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace nereid
