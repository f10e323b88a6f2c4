// Explicit trees, and trees of the likeliest paths.
#include "backends/llm_core/speculation/ranked_tree.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <queue>
#include <string>

#include "backends/llm_core/speculation/draft_tree.h"
#include "backends/llm_core/speculation/drafter.h"

namespace nereid::llm {
namespace {

using RankPath = std::vector<int32_t>;

std::string PathText(std::span<const int32_t> path) {
  std::string text = "{";
  for (const int32_t rank : path) text += StrCat(text.size() > 1 ? ", " : "", rank);
  return text + "}";
}

// Reads the paths of a list. It knows brackets, commas, spaces and numbers only.
class PathReader {
 public:
  explicit PathReader(std::string_view text) : text_(text) {}

  Result<std::vector<RankPath>> Read() {
    std::vector<RankPath> paths;
    int32_t open = 0;  // brackets that are not closed
    for (size_t at = 0; at < text_.size(); ++at) {
      const char c = text_[at];
      if (c == '{' || c == '[') {
        if (++open > 2) return Unexpected(at);
        if (open == 1 || is_list_) paths.emplace_back();
        // A second bracket before any rank: the first one is the list's.
        if (open == 2 && paths.size() == 1 && paths[0].empty() && !is_list_) is_list_ = true;
      } else if (c == '}' || c == ']') {
        if (--open < 0) return Unexpected(at);
      } else if (c >= '0' && c <= '9') {
        if (open != (is_list_ ? 2 : 1)) return Unexpected(at);
        int32_t rank = 0;
        const char* const end = text_.data() + text_.size();
        const auto [stop, error] = std::from_chars(text_.data() + at, end, rank);
        if (error != std::errc()) return Unexpected(at);
        paths.back().push_back(rank);
        at = static_cast<size_t>(stop - text_.data()) - 1;
      } else if (c != ',' && c != ' ' && c != '\t' && c != '\n') {
        return Unexpected(at);
      }
    }
    if (open != 0) return Unexpected(text_.size());
    for (const RankPath& path : paths) {
      if (path.empty()) return InvalidArgError("got '", text_, "': a path is empty");
    }
    return paths;
  }

 private:
  Status Unexpected(size_t at) const {
    const std::string what =
        at < text_.size() ? StrCat("'", text_.substr(at, 1), "'") : std::string("the end");
    return InvalidArgError("got '", text_, "': ", what, " at byte ", at,
                           ", expected a list of paths, as {0}, {0, 0}, {1}");
  }

  const std::string_view text_;
  bool is_list_ = false;  // brackets around all paths
};

Status CheckPath(const RankPath& path, int32_t max_depth, int32_t num_ranks) {
  if (static_cast<int32_t>(path.size()) > max_depth) {
    return InvalidArgError("path ", PathText(path), " has ", path.size(),
                           " ranks, expected at most ", max_depth);
  }
  for (const int32_t rank : path) {
    if (rank < num_ranks) continue;
    return InvalidArgError("path ", PathText(path), ": rank ", rank, ", expected 0 to ",
                           num_ranks - 1);
  }
  return {};
}

// Appends the choice of a path, and before it those of its parents.
void AppendChoice(const RankPath& path, std::map<RankPath, int32_t>& index_of,
                  std::vector<TreeChoice>& choices) {
  if (index_of.at(path) != kNoChild) return;
  TreeChoice choice;
  choice.depth = static_cast<int32_t>(path.size()) - 1;
  choice.rank = path.back();
  if (path.size() > 1) {
    const RankPath parent(path.begin(), path.end() - 1);
    AppendChoice(parent, index_of, choices);
    choice.parent = index_of.at(parent);
  }
  index_of[path] = static_cast<int32_t>(choices.size());
  choices.push_back(choice);
}

// With `is_comb`, only the first token of a depth has children.
void Grow(const RankedTokens& ranked, int32_t max_drafts, bool is_comb,
          std::vector<int32_t>& drafts, std::vector<int32_t>& parents) {
  struct OpenPath {
    float log_prob;  // of the whole path
    float before;    // of the drafts before it
    int32_t parent, depth, rank;
    // Of equal paths, the shorter one comes first, then the one whose parent was drafted first,
    // then the one with the likelier token, so that the order is always the same.
    bool operator<(const OpenPath& other) const {
      if (log_prob != other.log_prob) return log_prob < other.log_prob;
      if (depth != other.depth) return depth > other.depth;
      return parent != other.parent ? parent > other.parent : rank > other.rank;
    }
  };
  std::priority_queue<OpenPath> open;
  // Opens the first path from this rank on whose token may be drafted.
  const auto open_path = [&](float before, int32_t parent, int32_t depth, int32_t rank) {
    if (depth >= ranked.num_depths()) return;
    while (rank < ranked.num_ranks && ranked.At(depth, rank).id == kNoToken) ++rank;
    if (rank >= ranked.num_ranks) return;
    open.push({before + ranked.At(depth, rank).log_prob, before, parent, depth, rank});
  };
  open_path(0.0f, kTreeRoot, 0, 0);
  while (!open.empty() && static_cast<int32_t>(drafts.size()) < max_drafts) {
    const OpenPath best = open.top();
    open.pop();
    const auto draft = static_cast<int32_t>(drafts.size());
    drafts.push_back(ranked.At(best.depth, best.rank).id);
    parents.push_back(best.parent);
    open_path(best.before, best.parent, best.depth, best.rank + 1);
    if (!is_comb || best.rank == 0) open_path(best.log_prob, draft, best.depth + 1, 0);
  }
}

}  // namespace

Result<std::vector<TreeChoice>> ParseTreeChoices(std::string_view text, int32_t max_depth,
                                                 int32_t num_ranks) {
  NEREID_ASSIGN_OR_RETURN(const std::vector<RankPath> paths, PathReader(text).Read());
  if (paths.empty()) return InvalidArgError("got '", text, "': expected at least one path");
  if (paths.size() > static_cast<size_t>(kMaxTreeDrafts)) {
    return InvalidArgError("got ", paths.size(), " paths, expected at most ", kMaxTreeDrafts);
  }
  std::map<RankPath, int32_t> index_of;
  for (const RankPath& path : paths) {
    NEREID_RETURN_IF_ERROR(CheckPath(path, max_depth, num_ranks));
    if (!index_of.emplace(path, kNoChild).second) {
      return InvalidArgError("path ", PathText(path), " is twice in the list");
    }
  }
  for (const RankPath& path : paths) {
    const RankPath parent(path.begin(), path.end() - 1);
    if (parent.empty() || index_of.contains(parent)) continue;
    return InvalidArgError("path ", PathText(path), ": its parent ", PathText(parent),
                           " is not in the list");
  }
  std::vector<TreeChoice> choices;
  for (const RankPath& path : paths) AppendChoice(path, index_of, choices);
  return choices;
}

Result<std::vector<TreeChoice>> ParseCombChoices(std::string_view text, int32_t max_depth,
                                                 int32_t num_ranks) {
  NEREID_ASSIGN_OR_RETURN(std::vector<TreeChoice> choices,
                          ParseTreeChoices(text, max_depth, num_ranks));
  for (const TreeChoice& choice : choices) {
    if (choice.parent == kTreeRoot || choices[static_cast<size_t>(choice.parent)].rank == 0) {
      continue;
    }
    return UnsupportedError("a path of ", choice.depth + 1, " ranks goes on behind rank ",
                            choices[static_cast<size_t>(choice.parent)].rank,
                            ": expected rank 0 before the last one, since the head drafts along "
                            "its likeliest tokens only");
  }
  return choices;
}

void RemoveBanned(std::span<const int32_t> banned_ids, std::span<SampledToken> tokens) {
  for (SampledToken& token : tokens) {
    if (std::ranges::find(banned_ids, token.id) != banned_ids.end()) token.id = kNoToken;
  }
}

void FillTree(std::span<const TreeChoice> choices, const RankedTokens& ranked, int32_t max_drafts,
              std::vector<int32_t>& drafts, std::vector<int32_t>& parents) {
  // By choice: its draft. kNoChild: its token, or one before it, is not drafted.
  std::vector<int32_t> index_of(choices.size(), kNoChild);
  for (size_t i = 0; i < choices.size(); ++i) {
    const TreeChoice& choice = choices[i];
    if (static_cast<int32_t>(drafts.size()) == max_drafts) return;
    if (choice.depth >= ranked.num_depths() || choice.rank >= ranked.num_ranks) continue;
    const int32_t token = ranked.At(choice.depth, choice.rank).id;
    const int32_t parent =
        choice.parent == kTreeRoot ? kTreeRoot : index_of[static_cast<size_t>(choice.parent)];
    if (token == kNoToken || parent == kNoChild) continue;
    index_of[i] = static_cast<int32_t>(drafts.size());
    drafts.push_back(token);
    parents.push_back(parent);
  }
}

void GrowTree(const RankedTokens& ranked, int32_t max_drafts, std::vector<int32_t>& drafts,
              std::vector<int32_t>& parents) {
  Grow(ranked, max_drafts, false, drafts, parents);
}

void GrowComb(const RankedTokens& ranked, int32_t max_drafts, std::vector<int32_t>& drafts,
              std::vector<int32_t>& parents) {
  Grow(ranked, max_drafts, true, drafts, parents);
}

}  // namespace nereid::llm
