/// \file
/// The window of lookahead decoding: guesses that the target refines in every step, and from whose
/// history n-grams are taken. [engine thread]
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backends/llm_core/speculation/draft_tree_builder.h"
#include "backends/llm_core/speculation/ngram_pool.h"

namespace nereid::llm {

/// Columns of `num_rows` tokens each. The first row is a chain that begins with the sequence's
/// newest token, so that its other tokens are guesses of what follows. The tokens of a column
/// follow each other, too: each one was sampled behind the one above it in an earlier step. The
/// token that the target samples behind a column makes it an n-gram of num_rows + 1 tokens. The
/// column then loses its first token, so that its guesses move on by one position, as the newest
/// token does. Where a step yields further tokens, the columns move by as many places.
class LookaheadWindow {
 public:
  /// The first guesses are runs of `tokens`, which must not be empty. They depend on nothing but
  /// the arguments.
  LookaheadWindow(int32_t num_columns, int32_t num_rows, std::span<const int32_t> tokens);

  /// Moves the columns by `count` places toward the newest token. The first ones are removed, and
  /// new ones are added at the end: each is what the pool has behind the first token of the column
  /// before, or another run of `tokens`.
  void Shift(int32_t count, int32_t newest, std::span<const int32_t> tokens, const NgramPool& pool);
  /// Adds the window behind `newest` to the tree, column after column, until the tree is full.
  void AddTo(int32_t newest, DraftTreeBuilder& tree);
  /// `row_tokens` were sampled behind the newest token and the first drafts of the tree, to which
  /// the window was added last. Columns that were not in the step to their ends stay as they are.
  void Advance(std::span<const int32_t> row_tokens, NgramPool& pool);

  std::span<const int32_t> column(int32_t index) const {
    return std::span(tokens_).subspan(static_cast<size_t>(index) * num_rows_, num_rows_);
  }

 private:
  void AppendRun(std::span<const int32_t> tokens);

  size_t num_rows_;
  uint64_t num_runs_ = 0;        // columns so far that were runs of the first tokens
  std::vector<int32_t> tokens_;  // [columns, rows]
  // By column: the index in row_tokens of the token behind it; -1: the column is in no step.
  std::vector<int32_t> last_rows_;
  std::vector<int32_t> ngram_;                   // scratch memory
  std::vector<std::span<const int32_t>> found_;  // scratch memory
};

}  // namespace nereid::llm
