// The plan of a step as the kernels read it.
#include "backends/gpu_llm/step_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>

#include "backends/gpu_llm/kernels/attention/cache_layout.h"
#include "backends/llm_core/prompt/prompt_embeddings.h"

namespace nereid::gpu {
namespace {

class StepPlanTest : public ::testing::Test {
 protected:
  void Add(int32_t num_tokens, int32_t num_cached, bool samples) {
    tables_.emplace_back((num_cached + num_tokens + kBlockTokens - 1) / kBlockTokens);
    std::iota(tables_.back().begin(), tables_.back().end(),
              100 * static_cast<int32_t>(tables_.size()));
    llm::BatchEntry sequence;
    sequence.slot = static_cast<int32_t>(batch_.entries.size());
    sequence.first_token = static_cast<int32_t>(batch_.token_ids.size());
    sequence.num_tokens = num_tokens;
    sequence.num_cached = num_cached;
    sequence.num_logits = samples ? 1 : 0;
    sequence.samples = samples;
    batch_.entries.push_back(sequence);
    for (int32_t i = 0; i < num_tokens; ++i) batch_.token_ids.push_back(7 * sequence.slot + i);
  }
  void Plan() {
    for (size_t i = 0; i < tables_.size(); ++i) batch_.entries[i].block_table = tables_[i];
    planner_.Plan(batch_);
  }
  StepLayout layout() const { return StepLayout(planner_.shape()); }
  int32_t Word(int32_t at) const { return planner_.words()[at]; }
  template <typename T>
  std::vector<T> Items(int32_t at, int32_t count) const {
    std::vector<T> items(count);
    std::memcpy(items.data(), &planner_.words()[at], count * sizeof(T));
    return items;
  }

  int32_t NumUsedItems() const {
    const auto items = Items<DecodeItem>(layout().decode_items, planner_.shape().num_decode);
    return static_cast<int32_t>(std::count_if(items.begin(), items.end(), [](const DecodeItem& i) {
      return i.last_tile > i.first_tile;
    }));
  }
  StepPlanner planner_{{.num_heads = 8, .num_kv_heads = 2, .num_processors = 16}};
  llm::StepBatch batch_;
  std::vector<std::vector<int32_t>> tables_;
};

TEST_F(StepPlanTest, VirtualTokensNameTheirRowsAndAreNoDecodeStep) {
  llm::PromptEmbeddings table, plain;
  table.hidden_size = plain.hidden_size = 2;
  table.rows = {1, 2, 3, 4};
  plain.rows = {5, 6};
  table.extra_ids = {0, 0};
  plain.extra_ids = {0};
  table.row_of = {-1, -1, 1, 0, -1, 1};
  plain.row_of = {0};
  plain.is_table = false;
  Add(1, 100, true);
  Plan();
  EXPECT_FALSE(planner_.shape().has_prompt_rows);
  EXPECT_TRUE(planner_.is_decode());
  Add(3, 1, false);
  Add(1, 0, true);
  Add(1, 4, true);  // of this one, the newest token is none
  batch_.entries[1].prompt_embeddings = batch_.entries[3].prompt_embeddings = &table;
  batch_.entries[2].prompt_embeddings = &plain;
  Plan();
  ASSERT_TRUE(planner_.shape().has_prompt_rows);
  EXPECT_FALSE(planner_.is_decode());
  EXPECT_EQ(Items<int32_t>(layout().prompt_rows, 6), (std::vector<int32_t>{-1, -1, 0, 2, 5, -1}));
  ASSERT_EQ(planner_.prompt_rows().size(), 3u);
  EXPECT_EQ(planner_.prompt_rows()[0][0], 3);
  EXPECT_EQ(planner_.prompt_rows()[1][1], 2);
  EXPECT_EQ(planner_.prompt_rows()[2][0], 5);
  batch_.entries.erase(batch_.entries.begin() + 1, batch_.entries.begin() + 3);
  tables_.erase(tables_.begin() + 1, tables_.begin() + 3);
  batch_.token_ids.resize(2);
  batch_.entries[1].first_token = 1;
  Plan();
  EXPECT_FALSE(planner_.shape().has_prompt_rows);
  EXPECT_TRUE(planner_.is_decode());
}

TEST_F(StepPlanTest, FusedStepsSplitContextsIntoFewerItems) {
  Add(1, 64 * 24 - 1, true);
  Add(1, 64 * 5, true);
  Plan();
  EXPECT_EQ(NumUsedItems(), 12 + 3);  // two KV blocks each
  planner_ = StepPlanner({.num_heads = 8,
                          .num_kv_heads = 2,
                          .num_processors = 16,
                          .fused = {2},
                          .fused_item_units = 2});
  Plan();
  EXPECT_EQ(NumUsedItems(), 4 + 1);  // six
  planner_ = StepPlanner({.num_heads = 32,
                          .num_kv_heads = 2,
                          .num_processors = 16,
                          .fused = {2},
                          .fused_item_units = 4});
  Plan();
  EXPECT_EQ(NumUsedItems(), 3 + 1);  // eight, so that the units of four items fill the processors
  Add(1, 0, true);
  Plan();
  EXPECT_EQ(NumUsedItems(), 12 + 3 + 1);
  planner_ = StepPlanner({.num_heads = 8,
                          .num_kv_heads = 2,
                          .num_processors = 80,
                          .fused = {4},
                          .fused_item_blocks = 2,
                          .fused_item_units = 2});
  Add(1, 64 * 2, true);
  Plan();
  EXPECT_EQ(NumUsedItems(), 12 + 3 + 1 + 2);  // two, also where a context has three blocks
}

TEST_F(StepPlanTest, ItemsFillTheProcessorsOnceWhereABlockIsAlone) {
  for (int32_t i = 0; i < 4; ++i) Add(1, 64 * 10 - 1, true);
  Plan();
  EXPECT_EQ(NumUsedItems(), 16);
  planner_ =
      StepPlanner({.num_heads = 8, .num_kv_heads = 2, .num_processors = 16, .attention_blocks = 1});
  Plan();
  EXPECT_EQ(NumUsedItems(), 8);  // for each of two heads: 16 blocks of threads
}

TEST_F(StepPlanTest, RowsOfADecodeStepArePaddedAndWriteNothing) {
  for (int32_t i = 0; i < 5; ++i) Add(1, 60 + i, true);
  Plan();
  EXPECT_TRUE(planner_.is_decode());
  EXPECT_EQ(planner_.shape().num_tokens, 8);
  EXPECT_EQ(planner_.shape().num_logits, 8);
  for (int32_t row = 0; row < 8; ++row) {
    EXPECT_EQ(Word(layout().token_ids + row), row < 5 ? 7 * row : 0);
    EXPECT_EQ(Word(layout().positions + row), row < 5 ? 60 + row : 0);
    // Token 64 is the first of its sequence's second block.
    const int32_t slot = row == 4 ? 501 * kBlockTokens : 100 * (row + 1) * kBlockTokens + 60 + row;
    EXPECT_EQ(Word(layout().cache_slots + row), row < 5 ? slot : -1);
    EXPECT_EQ(Word(layout().logit_rows + row), row < 5 ? row : 0);
  }
}

TEST_F(StepPlanTest, EqualShapesHaveEqualLayouts) {
  Add(1, 10, true);
  Plan();
  const StepShape shape = planner_.shape();
  batch_.Clear();
  tables_.clear();
  Add(1, 5000, true);
  Plan();
  EXPECT_EQ(planner_.shape(), shape);
}

TEST_F(StepPlanTest, SplitsOfAContextCoverItOnce) {
  Add(1, 40 * kBlockTokens - 1, true);
  Add(1, 3, true);
  Add(1, 7 * kBlockTokens, true);
  Plan();
  const auto items = Items<DecodeItem>(layout().decode_items, planner_.shape().num_decode);
  std::vector<int32_t> next_tile(3, 0), num_items(3, 0), first_item(3, -1);
  const int32_t tiles[] = {40, 1, 8};
  for (int32_t i = 0; i < planner_.shape().num_decode; ++i) {
    const DecodeItem& item = items[i];
    if (item.first_tile == item.last_tile) continue;
    EXPECT_EQ(item.first_tile, next_tile[item.row]);
    next_tile[item.row] = item.last_tile;
    if (num_items[item.row]++ == 0) first_item[item.row] = i;
    EXPECT_EQ(item.first_item, first_item[item.row]);
    EXPECT_EQ(Word(item.table_offset), 100 * (item.row + 1));
    EXPECT_EQ(item.sequence, item.row);
  }
  for (int32_t row = 0; row < 3; ++row) {
    EXPECT_EQ(next_tile[row], tiles[row]);
    for (const DecodeItem& item : items) {
      if (item.row != row || item.first_tile == item.last_tile) continue;
      EXPECT_EQ(item.num_items, num_items[row]);
    }
  }
  EXPECT_GT(num_items[0], 1);
}

TEST_F(StepPlanTest, ShortContextsAreNotSplit) {
  Add(1, 4 * kBlockTokens - 1, true);
  Add(1, 4 * kBlockTokens, true);
  Plan();
  const auto items = Items<DecodeItem>(layout().decode_items, planner_.shape().num_decode);
  EXPECT_EQ(items[0].num_items, 1);
  EXPECT_EQ(items[0].last_tile, 4);
  EXPECT_GT(items[1].num_items, 1);
}

TEST(BatchInvariantStepPlanTest, ContextsAreSplitByTheirOwnLength) {
  StepPlannerOptions options;
  options.num_heads = 8;
  options.num_kv_heads = 2;
  options.is_batch_invariant = true;
  const llm::SamplingParams greedy;
  std::vector<int32_t> table(2000), tokens = {1, 2};
  int32_t last_num_items = 0;
  const auto plan = [&](const std::vector<int32_t>& lengths) {
    llm::StepBatch batch;
    for (const int32_t length : lengths) {
      llm::BatchEntry& sequence = batch.entries.emplace_back();
      sequence.first_token = static_cast<int32_t>(batch.token_ids.size());
      sequence.num_tokens = 1;
      sequence.num_cached = length - 1;
      sequence.block_table = table;
      sequence.num_logits = 1;
      sequence.samples = true;
      sequence.sampling = {&greedy, tokens, 1, {}};
      batch.token_ids.push_back(0);
    }
    StepPlanner planner(options);
    planner.Plan(batch);
    last_num_items = planner.shape().num_decode;
    const StepLayout layout(planner.shape());
    std::vector<std::vector<std::pair<int32_t, int32_t>>> cuts(lengths.size());
    EXPECT_LE(
        planner.shape().num_decode,
        planner.MaxDecodeItems(StepPlanner::PaddedBatch(static_cast<int32_t>(lengths.size()))));
    for (int32_t i = 0; i < planner.shape().num_decode; ++i) {
      DecodeItem item;
      std::memcpy(&item, &planner.words()[layout.decode_items + i * (sizeof(item) / 4)],
                  sizeof(item));
      if (item.last_tile > item.first_tile)
        cuts[item.row].push_back({item.first_tile, item.last_tile});
    }
    return cuts;
  };
  const auto num_items = [&](const std::vector<int32_t>& lengths) {
    plan(lengths);
    return last_num_items;
  };
  const std::vector<int32_t> lengths = {1, 64, 65, 513, 4000, 40000, 120000};
  const auto together = plan(lengths);
  for (size_t i = 0; i < lengths.size(); ++i) EXPECT_EQ(plan({lengths[i]})[0], together[i]);
  EXPECT_EQ(together[3].size(), 2u);
  EXPECT_LE(together[6].size(), 32u);
  // The items are a power of two for each row, and as few as the contexts allow.
  EXPECT_EQ(num_items(std::vector<int32_t>(64, 500)), 64);
  EXPECT_EQ(num_items(std::vector<int32_t>(64, 640)), 128);
  EXPECT_EQ(num_items(std::vector<int32_t>(64, 1100)), 256);
  EXPECT_EQ(num_items({640, 120000}), 64);
}

// 4 query heads a group: at most 4 tokens share an item.
TEST_F(StepPlanTest, DraftsAreRowsOfADecodeStep) {
  Add(1, 10, true);
  Add(6, 62, true);
  batch_.entries[1].num_draft_tokens = 5;
  batch_.entries[1].num_logits = 6;
  Add(1, 30, true);
  Plan();
  EXPECT_TRUE(planner_.is_decode());
  EXPECT_TRUE(planner_.shape().has_chains);
  EXPECT_EQ(planner_.shape().num_tokens, 8);
  EXPECT_EQ(planner_.shape().num_sampled, 8);
  const auto items = Items<DecodeItem>(layout().decode_items, planner_.shape().num_decode);
  const struct {
    int32_t row, num_tokens, length, first_new;
  } expected[] = {{0, 1, 11, 10}, {1, 3, 65, 62}, {4, 3, 68, 62}, {7, 1, 31, 30}};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(items[i].row, expected[i].row) << i;
    EXPECT_EQ(items[i].num_tokens, expected[i].num_tokens) << i;
    EXPECT_EQ(items[i].length, expected[i].length) << i;
    EXPECT_EQ(items[i].first_new, expected[i].first_new) << i;
    EXPECT_EQ(items[i].sequence, static_cast<int32_t>(i)) << i;
  }
  EXPECT_EQ(items[4].first_tile, items[4].last_tile);
  for (int32_t row = 0; row < 8; ++row) {
    const int32_t sequence = row == 0 ? 0 : row < 7 ? 1 : 2;
    EXPECT_EQ(planner_.logit_rows()[row].sequence, sequence);
    EXPECT_EQ(planner_.logit_rows()[row].index, sequence == 1 ? row - 1 : 0);
    EXPECT_EQ(Word(layout().logit_rows + row), row);
    // No later step may read a token of a row whose drafts may be rejected.
    EXPECT_EQ(Word(layout().logit_slots + row), sequence == 1 ? -1 : sequence) << row;
    EXPECT_EQ(Word(layout().positions + row), row == 0 ? 10 : row < 7 ? 61 + row : 30);
  }
  batch_.Clear();
  tables_.clear();
  for (int i = 0; i < 8; ++i) Add(1, 10, true);
  const StepShape chained = planner_.shape();
  Plan();
  EXPECT_EQ(planner_.shape().num_decode, chained.num_decode);
  EXPECT_FALSE(planner_.shape().has_chains);
}

// Rows of a draft chain, whose plans are uploaded before the first of them runs.
TEST_F(StepPlanTest, TokensThatMayStillBeComputedAreNew) {
  planner_ =
      StepPlanner({.num_heads = 8, .num_kv_heads = 2, .num_processors = 16, .num_unsettled = 7});
  for (const int32_t num_cached : {64, 70, 3}) Add(1, num_cached, true);
  Plan();
  const auto items = Items<DecodeItem>(layout().decode_items, 3);
  EXPECT_EQ(items[0].first_new, 57);
  EXPECT_EQ(items[1].first_new, 63);
  EXPECT_EQ(items[2].first_new, 0);
  EXPECT_EQ(items[0].length, 65);
  // A fused step begins when the rows before are in the cache.
  planner_ = StepPlanner({.num_heads = 8,
                          .num_kv_heads = 2,
                          .num_processors = 16,
                          .fused = {8},
                          .fused_item_units = 2,
                          .num_unsettled = 7});
  Plan();
  EXPECT_EQ(Items<DecodeItem>(layout().decode_items, 3)[0].first_new, 64);
}

TEST_F(StepPlanTest, DraftsBesidePromptsAreDecoded) {
  Add(3, 62, true);
  batch_.entries[0].num_draft_tokens = 2;
  batch_.entries[0].num_logits = 3;
  Add(40, 0, true);
  Plan();
  EXPECT_FALSE(planner_.is_decode());
  EXPECT_EQ(planner_.shape().num_sampled, 4);
  EXPECT_EQ(planner_.shape().num_prefill, 2);
  EXPECT_EQ(Word(layout().logit_rows + 2), 2);
  EXPECT_EQ(Word(layout().logit_rows + 3), 42);
  EXPECT_EQ(Word(layout().logit_slots + 3), 1);
}

// As without drafts: every token alone, and the prompt's last token as one of the prompt.
TEST(BatchInvariantStepPlanTest, DraftsAreComputedAsInStepsOfTheirOwn) {
  StepPlannerOptions options;
  options.num_heads = 8;
  options.num_kv_heads = 2;
  options.is_batch_invariant = true;
  const llm::SamplingParams greedy;
  const std::vector<int32_t> table(2), tokens(61);
  for (const int32_t num_prompt : {61, 60}) {
    llm::StepBatch batch;
    llm::BatchEntry& sequence = batch.entries.emplace_back();
    sequence.num_tokens = sequence.num_logits = 6;
    sequence.num_draft_tokens = 5;
    sequence.num_cached = 60;
    sequence.block_table = table;
    sequence.samples = true;
    sequence.sampling = {&greedy, tokens, num_prompt, {}};
    batch.token_ids.assign(6, 0);
    StepPlanner planner(options);
    planner.Plan(batch);
    const bool has_prompt = num_prompt == 61;
    EXPECT_EQ(planner.is_decode(), !has_prompt);
    EXPECT_FALSE(planner.shape().has_chains);
    EXPECT_EQ(planner.shape().num_prefill, has_prompt ? 1 : 0);
    const StepLayout layout(planner.shape());
    const int32_t first = has_prompt ? 1 : 0;
    for (int32_t i = 0; i < 6 - first; ++i) {
      DecodeItem item;
      std::memcpy(&item, &planner.words()[layout.decode_items + i * (sizeof(item) / 4)],
                  sizeof(item));
      EXPECT_EQ(item.row, first + i);
      EXPECT_EQ(item.num_tokens, 1);
      EXPECT_EQ(item.length, 61 + first + i);
      EXPECT_EQ(item.first_new, 60);
    }
    if (has_prompt) {
      PrefillTile tile;
      std::memcpy(&tile, &planner.words()[layout.prefill_tiles], sizeof(tile));
      EXPECT_EQ(tile.num_tokens, 1);
      EXPECT_EQ(tile.num_cached, 60);
    }
  }
}

TEST_F(StepPlanTest, RowsOfATreeHaveThePositionsOfTheirDepthAndTheMasksOfTheirPath) {
  std::vector<int32_t> parents = {-1, -1, 0, 0, 2};
  for (int32_t i = 5; i < 40; ++i) parents.push_back(i - 1);
  Add(3, 20, true);
  Add(1 + 40, 61, true);
  batch_.entries[1].num_draft_tokens = 40;
  batch_.entries[1].draft_parents = parents;
  Plan();
  const StepShape shape = planner_.shape();
  EXPECT_TRUE(shape.has_trees);
  EXPECT_FALSE(shape.gathers_trees);
  const std::vector<int32_t> depths = {0, 1, 1, 2, 2, 3};
  for (int32_t i = 0; i < 41; ++i) {
    const int32_t depth = i < 6 ? depths[i] : i - 2;
    EXPECT_EQ(Word(layout().positions + 3 + i), 61 + depth) << i;
    EXPECT_EQ(Word(layout().cache_slots + 3 + i) % kBlockTokens, (61 + i) % kBlockTokens) << i;
  }
  const auto mask = [&](int32_t row) {
    const auto words = Items<uint32_t>(layout().tree_masks + kTreeMaskWords * row, kTreeMaskWords);
    return uint64_t{words[1]} << 32 | words[0];
  };
  EXPECT_EQ(mask(3), 1u);
  EXPECT_EQ(mask(3 + 1), 0b11u);
  EXPECT_EQ(mask(3 + 2), 0b101u);
  EXPECT_EQ(mask(3 + 3), 0b1011u);
  EXPECT_EQ(mask(3 + 5), 0b101011u);
  EXPECT_EQ(mask(3 + 40), (uint64_t{1} << 41) - 1 - 0b10100);
  int32_t rows = 0;
  const auto items = Items<DecodeItem>(layout().decode_items, shape.num_decode);
  for (int32_t i = 0; i < shape.num_decode; ++i) {
    if (items[i].last_tile == items[i].first_tile) continue;
    EXPECT_EQ(Word(layout().tree_roots + i), 61);
    EXPECT_EQ(items[i].length, 61 - 3 + items[i].row + items[i].num_tokens);
    if (items[i].first_tile == 0) rows += items[i].num_tokens;
  }
  EXPECT_EQ(rows, 41);
}

// A row's context is as long as in a step of its own.
TEST_F(StepPlanTest, RowsOfATreeAreItemsOfTheirOwnWithBatchInvariance) {
  StepPlannerOptions options;
  options.num_heads = 8;
  options.num_kv_heads = 2;
  options.is_batch_invariant = true;
  const llm::SamplingParams greedy;
  const std::vector<int32_t> tokens(61), parents = {-1, -1, 0, 2, 0};
  for (const int32_t num_prompt : {61, 60}) {  // the newest token is of the prompt, or not
    batch_.Clear();
    tables_.clear();
    Add(6, 60, true);
    llm::BatchEntry& sequence = batch_.entries.back();
    sequence.num_logits = 6;
    sequence.num_draft_tokens = 5;
    sequence.draft_parents = parents;
    sequence.sampling = {&greedy, tokens, num_prompt, {}};
    planner_ = StepPlanner(options);
    Plan();
    EXPECT_TRUE(planner_.shape().gathers_trees);
    const bool has_prompt = num_prompt == 61;
    EXPECT_EQ(planner_.shape().num_prefill, has_prompt ? 1 : 0);
    const std::vector<int32_t> lengths = {61, 62, 62, 63, 64, 63};
    const auto items = Items<DecodeItem>(layout().decode_items, planner_.shape().num_decode);
    for (int32_t row = has_prompt ? 1 : 0, i = 0; row < 6; ++row, ++i) {
      EXPECT_EQ(items[i].row, row);
      EXPECT_EQ(items[i].num_tokens, 1);
      EXPECT_EQ(items[i].length, lengths[row]);
      EXPECT_EQ(Word(layout().tree_roots + i), 60);
    }
  }
}

// A prompt's chunk with a tree behind it: the prompt has tiles, the tree items.
TEST_F(StepPlanTest, ATreeBehindAPromptIsDecoded) {
  const std::vector<int32_t> parents = {-1, -1, 1};
  Add(10 + 3, 5, true);
  batch_.entries[0].num_draft_tokens = 3;
  batch_.entries[0].num_logits = 4;
  batch_.entries[0].draft_parents = parents;
  Plan();
  EXPECT_EQ(planner_.shape().num_prefill, 1);
  const auto tiles = Items<PrefillTile>(layout().prefill_tiles, 1);
  EXPECT_EQ(tiles[0].num_tokens, 9);
  const auto items = Items<DecodeItem>(layout().decode_items, 1);
  EXPECT_EQ(items[0].row, 9);
  EXPECT_EQ(items[0].num_tokens, 4);
  EXPECT_EQ(Word(layout().tree_roots), 14);
  EXPECT_EQ(Word(layout().positions + 12), 16);
}

TEST_F(StepPlanTest, SampledRowsComeFirst) {
  Add(5, 0, true);
  Add(3, 10, true);
  Add(4, 20, false);
  const std::vector<int32_t> next = {71, 72};
  batch_.entries[1].num_logits = 3;
  batch_.entries[1].next_ids = next;
  batch_.entries[2].num_logits = 2;
  Plan();
  EXPECT_EQ(planner_.shape().num_logits, 6);
  EXPECT_EQ(planner_.shape().num_sampled, 2);
  const std::vector<std::pair<int32_t, int32_t>> rows = {{0, 0}, {1, 2}, {1, 0},
                                                         {1, 1}, {2, 0}, {2, 1}};
  const std::vector<int32_t> tokens = {4, 7, 5, 6, 10, 11}, ids = {-1, -1, 71, 72, -1, -1};
  ASSERT_EQ(planner_.logit_rows().size(), rows.size());
  for (int32_t i = 0; i < 6; ++i) {
    EXPECT_EQ(planner_.logit_rows()[i].sequence, rows[i].first) << i;
    EXPECT_EQ(planner_.logit_rows()[i].index, rows[i].second) << i;
    EXPECT_EQ(Word(layout().logit_rows + i), tokens[i]) << i;
    EXPECT_EQ(Word(layout().next_ids + i), ids[i]) << i;
    EXPECT_EQ(Word(layout().logit_slots + i) >= 0, i < 2) << i;
  }
}

TEST_F(StepPlanTest, TilesOfAChunkCoverItsQueriesLongestFirst) {
  Add(1, 90, true);
  Add(100, 0, false);   // 4 query heads a group: 400 rows, 4 tiles
  Add(33, 1000, true);  // 132 rows, 2 tiles
  Plan();
  EXPECT_FALSE(planner_.is_decode());
  EXPECT_EQ(planner_.shape().num_tokens, 134);
  EXPECT_EQ(planner_.shape().num_logits, 2);
  EXPECT_EQ(Word(layout().logit_rows), 0);
  EXPECT_EQ(Word(layout().logit_rows + 1), 133);
  const auto tiles = Items<PrefillTile>(layout().prefill_tiles, planner_.shape().num_prefill);
  ASSERT_EQ(tiles.size(), 6u);
  EXPECT_EQ(tiles[0].num_cached, 1000);
  EXPECT_EQ(tiles[0].tile, 1);
  EXPECT_EQ(tiles[1].tile, 0);
  for (int32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(tiles[2 + i].tile, 3 - i);
    EXPECT_EQ(tiles[2 + i].first_row, 1);
    EXPECT_EQ(tiles[2 + i].num_tokens, 100);
    EXPECT_EQ(Word(tiles[2 + i].table_offset), 200);
  }
}

TEST(StepPlannerTest, TheCapacityCoversAllSmallerSizes) {
  const StepPlanner planner({.num_heads = 32, .num_kv_heads = 8, .num_processors = 132});
  int32_t last = 0;
  for (int32_t n = 1; n <= 600; ++n) {
    const int32_t padded = StepPlanner::PaddedBatch(n);
    EXPECT_GE(padded, n);
    EXPECT_GE(padded, last);
    EXPECT_EQ(StepPlanner::PaddedBatch(padded), padded);
    last = padded;
  }
}

TEST(StepPlannerTest, StepsWithDraftsHaveFewSizes) {
  constexpr int32_t kMost = 200;  // a size of steps without drafts alone
  std::set<int32_t> sizes;
  for (int32_t n = 1; n <= 576; ++n) {
    const int32_t padded = StepPlanner::PaddedDrafts(n, 576);
    EXPECT_GE(padded, n);
    EXPECT_LT(padded, n + 64);
    EXPECT_EQ(StepPlanner::PaddedDrafts(padded, 576), padded);
    sizes.insert(padded);
    if (n > kMost) continue;
    EXPECT_GE(StepPlanner::PaddedDrafts(n, kMost), n);
    EXPECT_LE(StepPlanner::PaddedDrafts(n, kMost), kMost);
  }
  EXPECT_EQ(sizes.size(), 23u);  // each chooses algorithms and is recorded
  llm::StepBatch batch;
  const std::vector<int32_t> table(4, 0);
  const llm::SamplingParams greedy;
  for (int32_t i = 0; i < 33; ++i) {
    llm::BatchEntry& entry = batch.entries.emplace_back();
    entry.slot = i;
    entry.first_token = 2 * i;
    entry.num_tokens = entry.num_logits = 2;
    entry.num_draft_tokens = 1;
    entry.num_cached = 5;
    entry.block_table = table;
    entry.samples = true;
    entry.sampling = {&greedy, table, 1, {}};
    batch.token_ids.insert(batch.token_ids.end(), {3, 4});
  }
  StepPlanner planner({.num_heads = 32, .num_kv_heads = 8, .max_decode_rows = 576});
  planner.Plan(batch);
  EXPECT_EQ(planner.shape().num_tokens, 96);
}

TEST_F(StepPlanTest, FindsTheBlocksOfPrompts) {
  Add(1, 200, true);
  Add(130, 64, true);
  Add(1, 70, true);
  Add(40, 0, true);
  Plan();
  const StepShape& shape = planner_.shape();
  EXPECT_EQ(shape.first_prompt_block, 4);
  ASSERT_EQ(shape.num_prompt_blocks, 4 + 2 + 1);  // with those of the decoding sequence between
  std::vector<int32_t> between;
  for (size_t i = 1; i < tables_.size(); ++i)
    between.insert(between.end(), tables_[i].begin(), tables_[i].end());
  EXPECT_EQ(Items<int32_t>(layout().block_tables + shape.first_prompt_block, 7), between);
  batch_ = {};
  tables_.clear();
  Add(1, 200, true);
  Plan();
  EXPECT_EQ(planner_.shape().num_prompt_blocks, 0);
}

}  // namespace
}  // namespace nereid::gpu
