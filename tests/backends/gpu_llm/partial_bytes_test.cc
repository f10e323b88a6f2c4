// The room for the partial results of attention.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "backends/gpu_llm/step_plan.h"

namespace nereid::gpu {
namespace {

// 4 query heads a group: 4 tokens share an item, with batch invariance none do.
TEST(PartialBytesTest, PartialResultsTakeTheRoomThatPlansUse) {
  for (const bool is_batch_invariant : {false, true}) {
    StepPlannerOptions options;
    options.num_heads = 8;
    options.num_kv_heads = 2;
    options.is_batch_invariant = is_batch_invariant;
    StepPlanner planner(options);
    EXPECT_EQ(planner.item_tokens(), is_batch_invariant ? 1 : 4);
    const llm::SamplingParams greedy;
    std::vector<int32_t> table(2000), tokens = {1, 2, 3, 4, 5, 6, 7, 8};
    llm::StepBatch batch;
    for (int32_t i = 0; i < 3; ++i) {  // each of one token of the prompt and 7 drafts
      llm::BatchEntry& sequence = batch.entries.emplace_back();
      sequence.first_token = 8 * i;
      sequence.num_tokens = sequence.num_logits = 8;
      sequence.num_draft_tokens = 7;
      sequence.num_cached = 40000 * i + 100;
      sequence.block_table = table;
      sequence.samples = true;
      sequence.sampling = {&greedy, tokens, 1, {}};
      batch.token_ids.resize(batch.token_ids.size() + 8);
    }
    planner.Plan(batch);
    const StepShape shape = planner.shape();
    const StepLayout layout(shape);
    int32_t most_tokens = 0, num_split = 0;
    for (int32_t i = 0; i < shape.num_decode; ++i) {
      DecodeItem item;
      std::memcpy(&item, &planner.words()[layout.decode_items + i * (sizeof(item) / 4)],
                  sizeof(item));
      most_tokens = std::max(most_tokens, item.num_tokens);
      num_split += item.num_items > 1 ? 1 : 0;
    }
    EXPECT_EQ(most_tokens, planner.item_tokens());
    EXPECT_GT(num_split, 0);
    EXPECT_EQ(planner.PartialBytes(shape.num_decode, 128),
              int64_t{shape.num_decode} * most_tokens * 8 * (128 + 2) * 4);
  }
  // Llama 3 8B with 512 sequences.
  StepPlannerOptions options;
  options.num_heads = 32;
  options.num_kv_heads = 8;
  options.is_batch_invariant = true;
  const StepPlanner planner(options);
  EXPECT_EQ(planner.PartialBytes(planner.MaxDecodeItems(512), 128), 272'629'760);
}

}  // namespace
}  // namespace nereid::gpu
