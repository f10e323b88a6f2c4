// The memory that a model leaves to its drafter.
#include "backends/gpu_llm/companion_memory.h"

#include <gtest/gtest.h>

namespace nereid::gpu {
namespace {

llm::DecoderModel SmallModel(std::span<const uint8_t> bytes) {
  llm::DecoderModel model;
  model.spec.vocab_size = 1000;
  model.spec.hidden_size = 64;
  model.spec.intermediate_size = 128;
  model.spec.num_heads = model.spec.num_kv_heads = 4;
  model.spec.head_dim = 16;
  model.spec.layers.resize(2);
  for (const llm::WeightKind kind : {llm::WeightKind::kQ, llm::WeightKind::kK}) {
    llm::ResolvedWeight& weight = model.weights[{0, kind, llm::kNoExpert}];
    weight.tensor.bytes = bytes;
  }
  return model;
}

TEST(CompanionMemoryTest, ADraftModelNeedsItsWeightsBuffersAndBlocks) {
  const std::vector<uint8_t> bytes(5000);
  const llm::DecoderModel model = SmallModel(bytes);
  const CompanionMemory none = MemoryOfDraftModel(SmallModel({}), 300, 512, 200);
  const CompanionMemory memory = MemoryOfDraftModel(model, 300, 512, 200);
  EXPECT_EQ(memory.block_bytes, 300);
  EXPECT_EQ(memory.fixed_bytes - none.fixed_bytes, 2 * 5000);
  EXPECT_GE(none.fixed_bytes, 200 * 1000 * 4 + 512 * 2 * (2 * 64 + 4 * 64 + 3 * 128));
}

TEST(CompanionMemoryTest, AHeadAlsoNeedsTheHiddenStatesOfItsTarget) {
  llm::Eagle3Head head;
  head.model = SmallModel({});
  head.aux_layers = {1, 2, 3};
  llm::DecoderSpec target;
  target.hidden_size = 64;
  const CompanionMemory alone = MemoryOfDraftModel(head.model, 10, 512, 200);
  const CompanionMemory memory = MemoryOfHead(head, target, 10, 512, 200);
  EXPECT_GE(memory.fixed_bytes - alone.fixed_bytes, 2 * 512 * 3 * 64);
}

// Heads of hidden size 64 with LM heads for 1000 tokens, of which some are the same.
llm::MedusaWeights MakeMedusaHeads(int32_t num_heads, int32_t num_blocks, int32_t num_lm_heads) {
  static const uint8_t kBytes[8] = {};
  llm::MedusaWeights heads;
  heads.model.spec.hidden_size = 64;
  heads.draft_vocab_size = 1000;
  heads.num_heads = num_heads;
  heads.num_blocks = num_blocks;
  heads.shares_lm_head = num_lm_heads == 0;
  for (int32_t head = 0; head < num_heads && num_lm_heads > 0; ++head) {
    llm::ResolvedWeight weight;
    weight.tensor.bytes = std::span(kBytes).subspan(static_cast<size_t>(head % num_lm_heads));
    heads.model.weights[{heads.OutputLayer(head), llm::WeightKind::kLmHead, llm::kNoExpert}] =
        weight;
  }
  return heads;
}

TEST(CompanionMemoryTest, MedusaHeadsNeedTheirWeightsAndTheHiddenStatesOfTheirTarget) {
  const auto fixed_bytes = [](const llm::MedusaWeights& heads) {
    return MemoryOfMedusaHeads(heads, 512, 200).fixed_bytes;
  };
  const llm::MedusaWeights three = MakeMedusaHeads(3, 1, 3);
  EXPECT_EQ(MemoryOfMedusaHeads(three, 512, 200).block_bytes, 0);
  EXPECT_EQ(MemoryOfMedusaHeads(three, 612, 300).fixed_bytes - fixed_bytes(three), 2 * 64 * 200);
  EXPECT_EQ(fixed_bytes(MakeMedusaHeads(3, 2, 3)) - fixed_bytes(three), 3 * 2 * (64 * 64 + 64));
  EXPECT_EQ(fixed_bytes(MakeMedusaHeads(4, 1, 4)) - fixed_bytes(three),
            2 * (64 * 64 + 64 + 1000 * 64) + 2 * 64 * 64 * 2);
  EXPECT_EQ(fixed_bytes(three) - fixed_bytes(MakeMedusaHeads(3, 1, 1)), 2 * 2 * 1000 * 64);
  EXPECT_EQ(fixed_bytes(three) - fixed_bytes(MakeMedusaHeads(3, 1, 0)), 3 * 2 * 1000 * 64);
}

}  // namespace
}  // namespace nereid::gpu
