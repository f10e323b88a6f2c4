#include "base/closest_name.h"

#include <algorithm>
#include <cctype>
#include <numeric>

#include "nereid/status.h"

namespace nereid {
namespace {

// Levenshtein distance. A change of case costs nothing, so that such a candidate always wins.
size_t EditDistance(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = diagonal + (lower(a[i - 1]) == lower(b[j - 1]) ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({change, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string ClosestName(std::string_view name, const std::vector<std::string>& candidates) {
  std::string closest;
  size_t best = std::max<size_t>(2, name.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    if (candidate.size() <= 2 && candidate.size() != name.size()) continue;
    const size_t distance = EditDistance(name, candidate);
    if (distance < best && distance < std::max(name.size(), candidate.size())) {
      best = distance;
      closest = candidate;
    }
  }
  return closest;
}

std::string DidYouMean(std::string_view name, const std::vector<std::string>& candidates) {
  const std::string closest = ClosestName(name, candidates);
  return closest.empty() ? std::string() : StrCat(" (did you mean '", closest, "'?)");
}

}  // namespace nereid
