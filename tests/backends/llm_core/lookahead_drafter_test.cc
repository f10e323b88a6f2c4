// Lookahead decoding, compared with a plain form of it: a matrix of guesses, a dense mask that says
// what each of them sees, and lists of n-grams.
#include "backends/llm_core/speculation/lookahead_drafter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <list>
#include <map>
#include <random>
#include <set>

#include "backends/llm_core/speculation/lookahead_window.h"
#include "backends/llm_core/speculation/method.h"
#include "backends/llm_core/speculation/ngram_pool.h"

namespace nereid::llm {
namespace {

using Ids = std::vector<int32_t>;
using Target = std::function<int32_t(const Ids& tokens)>;  // samples the next token

struct Proposal {
  Ids drafts, parents;

  void Cut(size_t size) {
    drafts.resize(std::min(size, drafts.size()));
    parents.resize(drafts.size());
  }
  Ids PathTo(int32_t draft) const {
    Ids path;
    for (; draft >= 0; draft = parents[draft]) path.insert(path.begin(), drafts[draft]);
    return path;
  }
  // All paths from the newest token to a draft.
  std::set<Ids> Paths() const {
    std::set<Ids> paths;
    for (size_t i = 0; i < drafts.size(); ++i) paths.insert(PathTo(static_cast<int32_t>(i)));
    return paths;
  }
};

Ids Joined(Ids tokens, const Ids& more) {
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokens;
}

// What the target samples behind the newest token and behind each draft.
Ids RowTokens(const Ids& tokens, const Proposal& proposal, const Target& target) {
  Ids sampled = {target(tokens)};
  for (size_t i = 0; i < proposal.drafts.size(); ++i) {
    sampled.push_back(target(Joined(tokens, proposal.PathTo(static_cast<int32_t>(i)))));
  }
  return sampled;
}

// The tokens of a step: accepted drafts and the sampled token behind them.
Ids Accepted(const Proposal& proposal, const Ids& row_tokens) {
  Ids accepted;
  for (int32_t at = -1;;) {
    accepted.push_back(row_tokens[at + 1]);
    int32_t next = -1;
    for (size_t i = 0; i < proposal.drafts.size(); ++i) {
      if (proposal.parents[i] == at && proposal.drafts[i] == accepted.back()) {
        next = static_cast<int32_t>(i);
      }
    }
    if (next < 0) return accepted;
    at = next;
  }
}

Proposal Propose(Drafter& drafter, std::unique_ptr<DrafterState>& state, const Ids& tokens,
                 int32_t max_drafts = kMaxTreeDrafts, const LookaheadSizes* sizes = nullptr) {
  Proposal proposal;
  DraftQuery query = {.tokens = tokens,
                      .max_drafts = max_drafts,
                      .state = &state,
                      .lookahead = sizes,
                      .drafts = &proposal.drafts,
                      .parents = &proposal.parents,
                      .takes_trees = true};
  drafter.Propose(std::span(&query, 1));
  return proposal;
}

// Lookahead decoding without trees: rows of guesses, and a mask between them.
class PlainLookahead {
 public:
  PlainLookahead(const LookaheadSizes& sizes, const Ids& tokens)
      : sizes_(sizes), runs_(1000, num_rows(), tokens), rows_(num_rows()) {
    for (int32_t column = 0; column < sizes.window_size; ++column)
      AddColumn(runs_.column(num_runs_++));
  }

  // What the proposal has to contain, as paths from the newest token.
  std::set<Ids> Paths(const Ids& tokens) {
    for (; num_pooled_ < tokens.size(); ++num_pooled_) {
      if (num_pooled_ + 1 < size_t(sizes_.ngram_size)) continue;
      const auto end = tokens.begin() + static_cast<ptrdiff_t>(num_pooled_) + 1;
      AddNgram(Ids(end - sizes_.ngram_size, end));
    }
    Move(tokens);
    rows_[0][0] = tokens.back();
    std::set<Ids> paths;
    const auto add_prefixes = [&](const Ids& path) {
      for (size_t size = 1; size <= path.size(); ++size) {
        paths.insert(Ids(path.begin(), path.begin() + static_cast<ptrdiff_t>(size)));
      }
    };
    int32_t num_found = 0;
    for (const Ids& ngram : pool_[tokens.back()]) {
      if (num_found++ == sizes_.verification_set_size) break;
      add_prefixes(Ids(ngram.begin() + 1, ngram.end()));
    }
    for (int32_t column = 0; column < sizes_.window_size; ++column) {
      add_prefixes(Seen(num_rows() - 1, column));
    }
    return paths;
  }

  // Samples behind the last row, where the path to it is among those that were in the step.
  void Step(const Ids& tokens, const std::set<Ids>& in_step, const Target& target) {
    std::vector<Ids> ngrams;
    std::vector<Ids> next = rows_;
    for (int32_t column = 0; column < sizes_.window_size; ++column) {
      const Ids seen = Seen(num_rows() - 1, column);
      if (!seen.empty() && !in_step.contains(seen)) continue;
      Ids& ngram = ngrams.emplace_back();
      for (int32_t row = 0; row < num_rows(); ++row) ngram.push_back(rows_[row][column]);
      ngram.push_back(target(Joined(tokens, seen)));
      for (int32_t row = 0; row < num_rows(); ++row) next[row][column] = ngram[row + 1];
    }
    rows_ = next;
    for (const Ids& ngram : ngrams) AddNgram(ngram);
  }

 private:
  int32_t num_rows() const { return sizes_.ngram_size - 1; }

  void AddColumn(std::span<const int32_t> tokens) {
    for (int32_t row = 0; row < num_rows(); ++row) rows_[row].push_back(tokens[row]);
  }

  // The columns of positions that are past go, if the last step yielded more than one token.
  void Move(const Ids& tokens) {
    const size_t num_before = std::exchange(num_tokens_, tokens.size());
    if (num_before == 0) return;
    int32_t num_lost = 0;
    for (size_t i = num_before + 1; i < tokens.size() && num_lost < sizes_.window_size; ++i) {
      for (Ids& row : rows_) row.erase(row.begin());
      ++num_lost;
    }
    if (num_lost == 0) return;
    if (!rows_[0].empty()) rows_[0][0] = tokens.back();
    for (; num_lost > 0; --num_lost) {
      const int32_t before = rows_[0].empty() ? tokens.back() : rows_[0].back();
      if (const std::list<Ids>& known = pool_[before]; !known.empty()) {
        AddColumn(std::span(known.front()).subspan(1));
      } else {
        AddColumn(runs_.column(num_runs_++));
      }
    }
  }

  // The tokens behind the newest one that a place sees by the mask, in the order of their
  // positions.
  Ids Seen(int32_t row, int32_t column) const {
    const int32_t width = sizes_.window_size;
    const int32_t size = num_rows() * width;
    std::vector<std::vector<bool>> mask(size, std::vector<bool>(size, false));
    for (int32_t from = 0; from < size; ++from) {
      for (int32_t to = 0; to < size; ++to) {
        const bool is_in_first_row = to / width == 0 && to % width <= from % width;
        const bool is_above = to % width == from % width && to / width <= from / width;
        mask[from][to] = is_in_first_row || is_above;
      }
    }
    std::map<int32_t, int32_t> by_position;
    for (int32_t to = 1; to < size; ++to) {  // 0 is the newest token
      if (!mask[row * width + column][to]) continue;
      const auto added =
          by_position.emplace(to / width + to % width, rows_[to / width][to % width]);
      EXPECT_TRUE(added.second);
    }
    Ids seen;
    for (const auto& [position, token] : by_position) seen.push_back(token);
    return seen;
  }

  void AddNgram(const Ids& ngram) {
    std::list<Ids>& ngrams = pool_[ngram.front()];
    ngrams.remove(ngram);
    ngrams.push_front(ngram);
  }

  const LookaheadSizes sizes_;
  const LookaheadWindow runs_;  // whose columns are the runs of the first tokens, in order
  int32_t num_runs_ = 0;        // that were used
  size_t num_tokens_ = 0;       // at the last proposal
  std::vector<Ids> rows_;
  std::map<int32_t, std::list<Ids>> pool_;  // newest first
  size_t num_pooled_ = 0;
};

// Hardly predictable.
int32_t NextOfHash(const Ids& tokens) {
  uint32_t hash = 17;
  for (size_t i = tokens.size() - std::min<size_t>(3, tokens.size()); i < tokens.size(); ++i) {
    hash = (hash ^ static_cast<uint32_t>(tokens[i])) * 0x01000193u;
  }
  return static_cast<int32_t>((hash >> 11) % 9);
}

int32_t NextOfCycle(const Ids& tokens) {
  return (tokens.back() + 1) % 24;
}

class LookaheadSizesTest : public ::testing::TestWithParam<LookaheadSizes> {};

TEST_P(LookaheadSizesTest, ProposesTheSameAsAMatrixWithAMask) {
  const LookaheadSizes sizes = GetParam();
  std::mt19937 random(11);
  for (const Target& target : {Target(NextOfHash), Target(NextOfCycle)}) {
    LookaheadDrafter drafter(sizes);
    std::unique_ptr<DrafterState> state;
    Ids tokens = {3, 1, 4, 1, 5};
    PlainLookahead plain(sizes, tokens);
    for (int step = 0; step < 60; ++step) {
      Proposal proposal = Propose(drafter, state, tokens);
      ASSERT_LE(static_cast<int64_t>(proposal.drafts.size()), sizes.num_drafts());
      ASSERT_EQ(proposal.parents.size(), proposal.drafts.size());
      for (size_t i = 0; i < proposal.parents.size(); ++i) {
        ASSERT_GE(proposal.parents[i], -1);
        ASSERT_LT(proposal.parents[i], static_cast<int32_t>(i));
      }
      ASSERT_EQ(proposal.Paths().size(), proposal.drafts.size()) << "children of a token differ";
      ASSERT_EQ(proposal.Paths(), plain.Paths(tokens));
      switch (random() % 5) {
        case 0:  // the step is lost, as those of a sequence that is preempted
          continue;
        case 1:  // without drafts
          tokens.push_back(target(tokens));
          continue;
        case 2:  // there is room for a part only
          proposal.Cut(random() % (proposal.drafts.size() + 1));
          if (proposal.drafts.empty()) continue;
          break;
        default:
          break;
      }
      const Ids row_tokens = RowTokens(tokens, proposal, target);
      drafter.ObserveRowTokens(state, row_tokens);
      plain.Step(tokens, proposal.Paths(), target);
      tokens = Joined(tokens, Accepted(proposal, row_tokens));
    }
    for (size_t i = 5; i < tokens.size(); ++i) {
      ASSERT_EQ(tokens[i], target(Ids(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(i))));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, LookaheadSizesTest,
                         ::testing::Values(LookaheadSizes{4, 3, 4}, LookaheadSizes{5, 2, 3},
                                           LookaheadSizes{1, 2, 1}, LookaheadSizes{1, 5, 2},
                                           LookaheadSizes{7, 5, 0}, LookaheadSizes{15, 5, 15},
                                           LookaheadSizes{2, 1 + 32, 2}));

// A part of the cycle is in the window before the sequence comes to it for the first time.
TEST(LookaheadDrafterTest, LearnsWhatTheSequenceHasNotReachedYet) {
  LookaheadDrafter drafter({6, 4, 4});
  std::unique_ptr<DrafterState> state;
  Ids tokens = {0, 8, 16};
  int num_steps = 0;
  const auto run_until = [&](size_t size) {
    for (; tokens.size() < size; ++num_steps) {
      const Proposal proposal = Propose(drafter, state, tokens);
      const Ids row_tokens = RowTokens(tokens, proposal, NextOfCycle);
      drafter.ObserveRowTokens(state, row_tokens);
      tokens = Joined(tokens, Accepted(proposal, row_tokens));
    }
  };
  run_until(3 + 23);  // no token of the output was there before
  EXPECT_LT(num_steps, 16);
  const size_t before = tokens.size();
  num_steps = 0;
  run_until(before + 100);
  EXPECT_EQ(num_steps, 25) << "4 tokens a step: 3 accepted drafts, and the one behind them";
}

TEST(LookaheadDrafterTest, AlsoFindsNgramsOfThePrompt) {
  LookaheadDrafter drafter({1, 3, 1});
  std::unique_ptr<DrafterState> state;
  const Proposal proposal = Propose(drafter, state, {7, 5, 6, 2, 7});
  ASSERT_GE(proposal.drafts.size(), 2u);
  EXPECT_EQ(proposal.PathTo(1), (Ids{5, 6})) << "before the window";
}

TEST(LookaheadDrafterTest, TakesTheSizesOfTheRequestAndAsFewDraftsAsThereIsRoomFor) {
  LookaheadDrafter drafter({4, 3, 4});
  std::unique_ptr<DrafterState> state;
  const LookaheadSizes sizes = {2, 2, 0};
  EXPECT_EQ(Propose(drafter, state, {1, 2, 3}, kMaxTreeDrafts, &sizes).drafts.size(), 1u);
  std::unique_ptr<DrafterState> other;
  const Proposal whole = Propose(drafter, other, {1, 2, 3, 1, 5, 1});
  for (int32_t most = 1; most <= static_cast<int32_t>(whole.drafts.size()); ++most) {
    std::unique_ptr<DrafterState> fresh;
    const Proposal part = Propose(drafter, fresh, {1, 2, 3, 1, 5, 1}, most);
    Proposal expected = whole;
    expected.Cut(static_cast<size_t>(most));
    EXPECT_EQ(part.drafts, expected.drafts);
    EXPECT_EQ(part.parents, expected.parents);
  }
}

TEST(LookaheadDrafterTest, ProposesNothingWithoutTrees) {
  LookaheadDrafter drafter({4, 3, 4});
  std::unique_ptr<DrafterState> state;
  const Ids tokens = {1, 2, 1};
  Proposal proposal;
  DraftQuery query = {.tokens = tokens,
                      .max_drafts = 8,
                      .state = &state,
                      .drafts = &proposal.drafts,
                      .parents = &proposal.parents};
  drafter.Propose(std::span(&query, 1));
  EXPECT_TRUE(proposal.drafts.empty());
  drafter.ObserveRowTokens(state, Ids{1});
}

TEST(LookaheadDrafterTest, AColumnWaitsWhereRulesBanEveryToken) {
  LookaheadDrafter drafter({3, 3, 2});
  std::unique_ptr<DrafterState> state;
  const Proposal first = Propose(drafter, state, {4, 5, 6});
  drafter.ObserveRowTokens(state, Ids(first.drafts.size() + 1, -1));
  EXPECT_EQ(Propose(drafter, state, {4, 5, 6}).Paths(), first.Paths());
}

TEST(NgramPoolTest, IsBoundedAndForgetsWhatItHasNotSeenForTheLongestTime) {
  for (int32_t size = 2; size <= 129; ++size) {
    const NgramPool pool(size, 128 / (size - 1) - 1);
    EXPECT_GE(pool.capacity(), 16);
    EXPECT_LE(pool.capacity(), NgramPool::kMaxNgrams);
    EXPECT_LE(pool.capacity() * (size_t(size) * 4 + 8), NgramPool::kMaxBytes);
  }
  NgramPool pool(3, 4);
  std::vector<std::span<const int32_t>> found;
  pool.Find(7, 4, found);
  EXPECT_TRUE(found.empty());
  for (int32_t i = 0; i < 16; ++i) pool.Insert(Ids{7, i, i});
  pool.Insert(Ids{7, 0, 0});  // seen again
  for (int32_t i = 100; i < 115; ++i) pool.Insert(Ids{7, i, i});
  pool.Find(7, 100, found);
  ASSERT_EQ(found.size(), 16u) << "of one first token";
  EXPECT_EQ(found.front()[0], 114) << "newest first";
  EXPECT_EQ(found.back()[0], 0);
  for (int32_t i = 0; i < 100000; ++i) pool.Insert(Ids{i, i + 1, i + 2});
  pool.Find(99999, 4, found);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(std::ranges::equal(found[0], Ids{100000, 100001}));
}

TEST(LookaheadSizesTest, AreCheckedAndParsed) {
  const auto error_of = [](const Status& status) { return std::string(status.message()); };
  EXPECT_TRUE(CheckLookaheadSizes({4, 3, 4}).ok());
  EXPECT_TRUE(CheckLookaheadSizes({15, 5, 15}).ok());
  EXPECT_EQ(LookaheadSizes({4, 3, 4}).num_drafts(), 15);
  EXPECT_EQ(LookaheadSizes({7, 7, 7}).num_drafts(), 83) << "as in TensorRT-LLM's guide";
  EXPECT_EQ(error_of(CheckLookaheadSizes({0, 3, 4})),
            "size 'lookahead_window_size' is 0, expected at least 1");
  EXPECT_EQ(error_of(CheckLookaheadSizes({4, 1, 4})),
            "size 'lookahead_ngram_size' is 1, expected at least 2");
  EXPECT_EQ(error_of(CheckLookaheadSizes({4, 3, -1}, "input")),
            "input 'lookahead_verification_set_size' is -1, expected at least 0");
  EXPECT_EQ(error_of(CheckLookaheadSizes({16, 5, 17})),
            "lookahead decoding with 'lookahead_window_size' 16, 'lookahead_ngram_size' 5 and "
            "'lookahead_verification_set_size' 17 has 131 draft tokens a step, (window + "
            "verification set) * (ngram - 1) - 1, expected 1 to 127");
  EXPECT_FALSE(CheckLookaheadSizes({1, 2, 0}).ok()) << "no draft token";
  EXPECT_FALSE(CheckLookaheadSizes({INT32_MAX, INT32_MAX, INT32_MAX}).ok());
  const Result<LookaheadSizes> parsed = ParseLookaheadSizes("7,5,3");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(*parsed, (LookaheadSizes{7, 5, 3}));
  for (const char* text :
       {"", "4", "4,3", "4,3,", "4,3,4,", "4,3,4x", "a,3,4", "4;3;4", "4,3,1e9"}) {
    EXPECT_FALSE(ParseLookaheadSizes(text).ok()) << text;
  }
  EXPECT_TRUE(CheckLookaheadWithin({4, 3, 4}, {4, 3, 4}).ok());
  EXPECT_EQ(
      error_of(CheckLookaheadWithin({4, 4, 4}, {4, 3, 4})),
      "input 'lookahead_ngram_size' is 4: that of the model is 3, which a request may not exceed");
}

TEST(LookaheadSizesTest, AreThoseOfTheParameters) {
  using Values = std::map<std::string, std::string, std::less<>>;
  const auto find = [](const Values& values) {
    return FindSpeculationMethod([&](std::string_view key) {
      const auto found = values.find(key);
      return found == values.end() ? std::string() : found->second;
    });
  };
  const auto error_of = [&](const Values& values) {
    return std::string(find(values).status().message());
  };
  EXPECT_EQ(find({})->kind, DrafterKind::kOff);
  EXPECT_EQ(find({{"speculative_decoding", "ngram"}, {"decoding_mode", "top_k"}})->kind,
            DrafterKind::kNgram);
  for (const Values& values :
       {Values{{"speculative_decoding", "lookahead"}}, Values{{"decoding_mode", "lookahead"}}}) {
    EXPECT_EQ(find(values)->kind, DrafterKind::kLookahead);
    EXPECT_EQ(find(values)->lookahead, (LookaheadSizes{4, 3, 4}));
  }
  EXPECT_EQ(find({{"decoding_mode", "lookahead"}, {"lookahead_ngram_size", "5"}})->lookahead,
            (LookaheadSizes{4, 5, 4}));
  const Values named = {{"speculative_decoding", "lookahead=7,5,3"},
                        {"lookahead_window_size", "7"},
                        {"max_draft_tokens", "39"}};
  EXPECT_EQ(find(named)->lookahead, (LookaheadSizes{7, 5, 3}));
  EXPECT_EQ(error_of({{"lookahead_window_size", "7"}}),
            "parameter 'lookahead_window_size' is 7: it needs 'decoding_mode' or "
            "'speculative_decoding' lookahead");
  EXPECT_EQ(error_of({{"speculative_decoding", "lookahead=7,5,3"}, {"lookahead_window_size", "6"}}),
            "parameter 'lookahead_window_size' is 6 and that of 'speculative_decoding' is 7, "
            "expected the same or only one of them");
  EXPECT_EQ(error_of({{"speculative_decoding", "suffix"}, {"decoding_mode", "lookahead"}}),
            "parameter 'decoding_mode' is 'lookahead' and 'speculative_decoding' is 'suffix', "
            "expected lookahead or none");
  EXPECT_EQ(error_of({{"speculative_decoding", "lookahead"}, {"max_draft_tokens", "8"}}),
            "parameter 'max_draft_tokens' is 8: lookahead decoding with these sizes has 15 draft "
            "tokens a step, (window + verification set) * (ngram - 1) - 1, expected at least as "
            "many or none");
  EXPECT_NE(error_of({{"decoding_mode", "lookahead"}, {"lookahead_ngram_size", "64"}})
                .find("'lookahead_ngram_size' 64"),
            std::string::npos);
  EXPECT_NE(error_of({{"speculative_decoding", "lookahead=4"}}), "");
  EXPECT_EQ(error_of({{"speculative_decoding", "lookahead"}, {"max_draft_tokens", "many"}}),
            "parameter 'max_draft_tokens' is 'many', expected an integer");
}

}  // namespace
}  // namespace nereid::llm
