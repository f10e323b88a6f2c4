// Steps with draft trees give the tokens, log probabilities and logits of steps without drafts:
// with batch invariance bit by bit, whatever the trees are, and also in the steps that follow.
#include <numeric>

#include "tests/backends/gpu_llm/engine_fixture.h"

namespace nereid::gpu {
namespace {

using testing::RelativeError;

struct Tree {
  std::vector<int32_t> drafts, parents;
};

// A running sequence, and what it was told to draft.
struct Running {
  llm::TokenIds tokens;
  int32_t num_prompt = 0, num_cached = 0;
  llm::SamplingParams sampling;
  std::vector<float> log_probs;  // of the sampled tokens
  std::vector<int32_t> table;
  Tree tree;
};

class TreeStepsTest : public testing::GpuEngineTest {
 protected:
  // Sequences of `count` kinds of parameters, in blocks of their own.
  std::vector<Running> DrawSequences(int count, int max_prompt) {
    std::mt19937 random(17);
    std::vector<Running> all(count);
    for (int i = 0; i < count; ++i) {
      Running& one = all[i];
      one.tokens.resize(1 + random() % max_prompt);
      for (int32_t& id : one.tokens) id = static_cast<int32_t>(random() % vocab_size_);
      one.num_prompt = static_cast<int32_t>(one.tokens.size());
      one.table.resize(kBlocksEach);
      std::iota(one.table.begin(), one.table.end(), i * kBlocksEach);
      one.sampling.returns_log_probs = true;
      if (i % 2 == 1) {
        one.sampling.temperature = 0.8f;
        one.sampling.top_p = 0.9f;
        one.sampling.seed = random();
      }
      if (i % 3 == 1) one.sampling.frequency_penalty = 0.5f;
      if (i % 4 == 2) one.sampling.allowed_ids = {1, 2, 3, 50, 51, 52, 90, 91};
      if (i % 5 == 3) one.sampling.no_repeat_ngram_size = 2;
    }
    return all;
  }

  // Runs what is not cached of each sequence, with its tree, and appends what is accepted.
  llm::StepResult Run(GpuExecutor& executor, std::vector<Running>& all, bool returns_logits) {
    llm::StepBatch batch;
    for (size_t i = 0; i < all.size(); ++i) {
      Running& one = all[i];
      const auto num_drafts = static_cast<int32_t>(one.tree.drafts.size());
      llm::BatchEntry& entry = batch.entries.emplace_back();
      entry.slot = static_cast<int32_t>(i);
      entry.first_token = static_cast<int32_t>(batch.token_ids.size());
      entry.num_cached = one.num_cached;
      entry.num_tokens = static_cast<int32_t>(one.tokens.size()) - one.num_cached + num_drafts;
      entry.num_prompt = one.num_prompt;
      entry.block_table = one.table;
      entry.samples = true;
      entry.num_logits = 1 + num_drafts;
      entry.num_draft_tokens = num_drafts;
      entry.draft_parents = one.tree.parents;
      entry.returns_row_tokens = num_drafts > 0;
      entry.returns_logits = returns_logits;
      entry.sampling = {&one.sampling, one.tokens, one.num_prompt, {}};
      batch.token_ids.insert(batch.token_ids.end(), one.tokens.begin() + one.num_cached,
                             one.tokens.end());
      batch.token_ids.insert(batch.token_ids.end(), one.tree.drafts.begin(), one.tree.drafts.end());
    }
    const Status submitted = executor.Submit(batch);
    EXPECT_TRUE(submitted.ok()) << submitted.message();
    auto collected = executor.Collect();
    EXPECT_TRUE(collected.ok()) << collected.status().message();
    if (!collected.ok()) return {};
    for (size_t i = 0; i < all.size(); ++i) {
      Running& one = all[i];
      one.num_cached = static_cast<int32_t>(one.tokens.size());
      const auto append = [&](const llm::SampledToken& token) {
        one.tokens.push_back(token.id);
        one.log_probs.push_back(token.log_prob);
      };
      if (!one.tree.drafts.empty()) {
        for (const llm::SampledToken& token : collected->accepted[i]) append(token);
        one.num_cached += static_cast<int32_t>(collected->accepted[i].size());
      }
      append(collected->tokens[i]);
    }
    return std::move(*collected);
  }

  // Steps of up to kMaxRows rows: without drafts until each sequence has kNumOutput tokens.
  std::vector<Running> Plain(GpuExecutor& executor, std::vector<Running> all) {
    while (all[0].tokens.size() < all[0].num_prompt + kNumOutput) Run(executor, all, false);
    return all;
  }

  // A tree of `count` drafts, in which many are what `right` says that follows.
  Tree DrawTree(const Running& one, const llm::TokenIds& right, int count, std::mt19937& random) {
    Tree tree;
    std::vector<std::vector<int32_t>> children(count + 1);  // tokens behind node - 1
    std::vector<int32_t> depths(count + 1, -1);             // of nodes on the right path
    depths[0] = 0;
    while (static_cast<int>(tree.drafts.size()) < count) {
      const auto size = static_cast<int32_t>(tree.drafts.size());
      // Mostly a recent node, so that trees are deep.
      const int32_t node = std::max<int32_t>(0, size - static_cast<int32_t>(random() % 4));
      const size_t next = one.tokens.size() + static_cast<size_t>(std::max(0, depths[node]));
      const bool is_right = depths[node] >= 0 && next < right.size() && random() % 3 > 0;
      const int32_t token = is_right ? right[next] : static_cast<int32_t>(random() % vocab_size_);
      auto& siblings = children[node];
      if (std::find(siblings.begin(), siblings.end(), token) != siblings.end()) continue;
      siblings.push_back(token);
      if (depths[node] >= 0 && next < right.size() && token == right[next])
        depths[size + 1] = depths[node] + 1;
      tree.drafts.push_back(token);
      tree.parents.push_back(node - 1);
    }
    return tree;
  }

  static constexpr int kBlocksEach = 4;
  static constexpr size_t kNumOutput = 50;
};

TEST_F(TreeStepsTest, TreesGiveTheBitsOfStepsWithoutDrafts) {
  options_.is_batch_invariant = true;
  options_.steps_before_recording = 2;
  for (const char* const family : {"llama", "gemma2", "mistral-swa", "gpt2"}) {
    if (const std::string found = cpu::testing::FindTiny(family); !found.empty())
      directory_ = found;
    for (const CacheFormat format : {CacheFormat::kBf16, CacheFormat::kFp8, CacheFormat::kInt8}) {
      SCOPED_TRACE(std::string(family) + " format " + std::to_string(static_cast<int>(format)));
      options_.cache_format = format;
      num_sinks_ = std::string(family) == "llama" ? 4 : 0;
      windows_ = num_sinks_ > 0 ? "40" : "";
      const std::unique_ptr<GpuExecutor> executor = MakeExecutor();
      ASSERT_NE(executor, nullptr);
      ASSERT_TRUE(executor->features().draft_trees);
      const std::vector<Running> start = DrawSequences(4, 28);
      const std::vector<Running> plain = Plain(*executor, start);
      if (HasFailure()) return;
      std::mt19937 random(23);
      std::vector<Running> all = start;
      size_t num_accepted = 0, num_moved = 0;
      while (all[0].tokens.size() < all[0].num_prompt + kNumOutput - 2) {
        const bool has_prompts = all[0].num_cached == 0;
        size_t num_rows = 0;
        for (size_t i = 0; i < all.size(); ++i) {
          // The prompts together have more rows than a step samples.
          const int most = has_prompts ? 2 : 30;
          all[i].tree =
              DrawTree(all[i], plain[i].tokens, static_cast<int>(random() % most), random);
          num_rows += all[i].tokens.size() - all[i].num_cached + all[i].tree.drafts.size();
        }
        if (num_rows > 128) {
          for (Running& one : all) one.tree = {};
        }
        const std::vector<Running> before = all;
        const llm::StepResult result = Run(*executor, all, false);
        for (size_t i = 0; i < all.size(); ++i) {
          if (before[i].tree.drafts.empty()) continue;
          num_accepted += result.accepted_drafts[i].size();
          for (size_t k = 0; k < result.accepted_drafts[i].size(); ++k)
            num_moved += result.accepted_drafts[i][k] != static_cast<int32_t>(k) ? 1 : 0;
          // What a row samples is what its own sequence would get.
          ASSERT_EQ(result.row_tokens[i].size(), 1 + before[i].tree.drafts.size());
          for (size_t k = 0; k < result.accepted_drafts[i].size(); ++k) {
            const size_t next = before[i].tokens.size() + k + 1;
            if (next < plain[i].tokens.size()) {
              EXPECT_EQ(result.row_tokens[i][result.accepted_drafts[i][k] + 1],
                        plain[i].tokens[next]);
            }
          }
        }
        for (size_t i = 0; i < all.size(); ++i) {
          const size_t count = std::min(all[i].tokens.size(), plain[i].tokens.size());
          const size_t outputs = count - plain[i].num_prompt;
          EXPECT_TRUE(std::equal(all[i].tokens.begin(), all[i].tokens.begin() + count,
                                 plain[i].tokens.begin()))
              << "sequence " << i;
          EXPECT_TRUE(std::equal(all[i].log_probs.begin(), all[i].log_probs.begin() + outputs,
                                 plain[i].log_probs.begin()))
              << "sequence " << i;
        }
        if (HasFailure()) return;
      }
      EXPECT_GT(num_accepted, 40u);
      EXPECT_GT(num_moved, 5u);
      EXPECT_GT(executor->num_graph_steps(), 0);
    }
  }
}

// Items of several rows, with masks: every row has nearly the logits of its own sequence.
TEST_F(TreeStepsTest, EveryRowHasTheLogitsOfItsPath) {
  options_.steps_before_recording = 1;
  max_cache_tokens_ = 64 * 64;
  for (const char* const family : {"llama", "gemma3", "phi3", "qwen3"}) {
    if (const std::string found = cpu::testing::FindTiny(family); !found.empty())
      directory_ = found;
    for (const CacheFormat format : {CacheFormat::kBf16, CacheFormat::kInt8}) {
      options_.cache_format = format;
      const std::unique_ptr<GpuExecutor> executor = MakeExecutor();
      ASSERT_NE(executor, nullptr);
      std::mt19937 random(31);
      for (int round = 0; round < 6; ++round) {
        std::vector<Running> all = DrawSequences(1, 60);
        all[0].sampling = {};
        Run(*executor, all, false);
        const int count = std::vector<int>{1, 7, 40, 7, 40, 100}[round];  // some are recorded
        all[0].tree = DrawTree(all[0], all[0].tokens, count, random);
        const Running before = all[0];
        const llm::StepResult result = Run(*executor, all, true);
        for (int row = 0; row <= count; row += 1 + count / 8) {
          std::vector<Running> alone = DrawSequences(1, 60);
          alone[0].sampling = {};
          alone[0].tokens = before.tokens;
          std::vector<int32_t> path;
          for (int32_t draft = row - 1; draft >= 0; draft = before.tree.parents[draft])
            path.push_back(before.tree.drafts[draft]);
          alone[0].tokens.insert(alone[0].tokens.end(), path.rbegin(), path.rend());
          for (int32_t& block : alone[0].table) block += kBlocksEach;
          const std::vector<float> expected = Run(*executor, alone, true).logits[0];
          const std::span<const float> got =
              std::span(result.logits[0]).subspan(size_t(row) * vocab_size_, vocab_size_);
          EXPECT_LT(RelativeError(got, expected), 8e-2)
              << family << " format " << static_cast<int>(format) << " row " << row << " of "
              << count;
        }
      }
      EXPECT_GT(executor->num_graph_steps(), 0);
    }
  }
}

}  // namespace
}  // namespace nereid::gpu
