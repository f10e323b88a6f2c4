// Fills, moves and refines the columns of guesses.
#include "backends/llm_core/speculation/lookahead_window.h"

#include <algorithm>
#include <utility>

namespace nereid::llm {

LookaheadWindow::LookaheadWindow(int32_t num_columns, int32_t num_rows,
                                 std::span<const int32_t> tokens)
    : num_rows_(num_rows), last_rows_(num_columns, -1) {
  tokens_.reserve(static_cast<size_t>(num_columns) * num_rows_);
  for (int32_t column = 0; column < num_columns; ++column) AppendRun(tokens);
}

// A run of real tokens has likelier continuations than random tokens. Steps of this length between
// the beginnings of the runs spread them over all tokens.
void LookaheadWindow::AppendRun(std::span<const int32_t> tokens) {
  constexpr uint64_t kStep = 0x9e3779b97f4a7c15u;
  const uint64_t first = (++num_runs_ * kStep >> 32) * tokens.size() >> 32;
  for (size_t row = 0; row < num_rows_; ++row) {
    tokens_.push_back(tokens[(first + row) % tokens.size()]);
  }
}

void LookaheadWindow::Shift(int32_t count, int32_t newest, std::span<const int32_t> tokens,
                            const NgramPool& pool) {
  const size_t num_new = std::min(static_cast<size_t>(count), last_rows_.size());
  tokens_.erase(tokens_.begin(), tokens_.begin() + static_cast<ptrdiff_t>(num_new * num_rows_));
  if (!tokens_.empty()) tokens_.front() = newest;
  for (size_t i = 0; i < num_new; ++i) {
    const int32_t before = tokens_.empty() ? newest : tokens_[tokens_.size() - num_rows_];
    pool.Find(before, 1, found_);
    if (found_.empty()) {
      AppendRun(tokens);
    } else {
      tokens_.insert(tokens_.end(), found_[0].begin(), found_[0].end());
    }
  }
}

void LookaheadWindow::AddTo(int32_t newest, DraftTreeBuilder& tree) {
  tokens_.front() = newest;
  int32_t top = kTreeRoot;  // of the column
  for (size_t column = 0; column < last_rows_.size(); ++column) {
    const auto tokens = std::span(tokens_).subspan(column * num_rows_, num_rows_);
    if (column > 0) top = tree.Child(top, tokens.front());
    const int32_t last = tree.Chain(top, tokens.subspan(1));
    last_rows_[column] = last == kNoChild ? -1 : last + 1;
  }
}

void LookaheadWindow::Advance(std::span<const int32_t> row_tokens, NgramPool& pool) {
  for (size_t column = 0; column < last_rows_.size(); ++column) {
    const int32_t row = std::exchange(last_rows_[column], -1);
    if (row < 0 || row >= static_cast<int32_t>(row_tokens.size())) continue;
    if (row_tokens[row] < 0) continue;  // all tokens are banned
    const auto tokens = std::span(tokens_).subspan(column * num_rows_, num_rows_);
    ngram_.assign(tokens.begin(), tokens.end());
    ngram_.push_back(row_tokens[row]);
    pool.Insert(ngram_);
    std::copy(ngram_.begin() + 1, ngram_.end(), tokens.begin());
  }
}

}  // namespace nereid::llm
