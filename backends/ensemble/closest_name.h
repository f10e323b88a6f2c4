// "Did you mean": the known name that is nearest to a misspelt one. Used only to word errors.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nereid::ensemble {

// The candidate within a third of the name's length (at least two edits); empty when none is near.
std::string ClosestName(std::string_view name, const std::vector<std::string>& candidates);

// " (did you mean 'X'?)" or nothing.
std::string DidYouMean(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace nereid::ensemble
