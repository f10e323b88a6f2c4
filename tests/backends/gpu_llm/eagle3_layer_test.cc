// The EAGLE-3 head on the GPU against that on the CPU.
#include "backends/gpu_llm/model/eagle3_layer.h"

#include <algorithm>
#include <initializer_list>
#include <random>
#include <ranges>
#include <utility>

#include "backends/cpu_reference/model/eagle3_layer.h"
#include "backends/gpu_llm/gpu_executor.h"
#include "backends/llm_core/speculation/eagle3_drafter.h"
#include "tests/backends/cpu_reference/golden.h"
#include "tests/backends/cpu_reference/random_eagle3_head.h"
#include "tests/backends/gpu_llm/gpu_test.h"

namespace nereid::gpu {
namespace {

using testing::RelativeError;

// One sequence in both heads.
struct Chain {
  std::unique_ptr<llm::HeadCache> caches[2];
  std::vector<int32_t> tokens;
  std::vector<float> hidden[2];
  int32_t first_position = 0;
};

class Eagle3LayerTest : public testing::GpuTest<::testing::Test> {
 protected:
  void SetUp() override {
    testing::GpuTest<::testing::Test>::SetUp();
    if (IsSkipped()) return;
    const std::string directory = cpu::testing::FindTiny("llama");
    if (directory.empty()) GTEST_SKIP() << "no test data for llama";
    target_ = std::make_shared<const llm::Checkpoint>(std::move(*llm::Checkpoint::Open(directory)));
    model_ = std::move(*llm::ReadDecoder(*target_));
    GpuExecutorOptions options;
    options.max_num_sequences = 8;
    options.max_num_tokens = 64;
    options.max_cache_tokens = 1024;
    executor_ = std::move(*GpuExecutor::Create(std::move(*llm::ReadDecoder(*target_)), options));
  }
  llm::Eagle3Head ReadHead() const {
    return std::move(*llm::ReadEagle3Head(*random_head_.checkpoint(), model_.spec));
  }
  std::unique_ptr<Eagle3Layer> MakeLayer(llm::Eagle3Head head, int32_t max_num_entries = 8,
                                         int32_t num_blocks = 64) const {
    Eagle3LayerOptions options;
    options.form = executor_->form();
    options.num_blocks = num_blocks;
    options.max_num_entries = max_num_entries;
    options.token_embedding = executor_->token_embedding();
    options.embedding_scale = model_.spec.embedding_scale;
    options.target = &executor_->decoder();
    options.stream = executor_->stream();
    options.num_kept_rows = 300;
    auto layer = Eagle3Layer::Create(std::move(head), options);
    EXPECT_TRUE(layer.ok()) << layer.status().message();
    return layer.ok() ? std::move(*layer) : nullptr;
  }

  const cpu::testing::RandomEagle3Head random_head_{11};
  std::shared_ptr<const llm::Checkpoint> target_;
  llm::DecoderModel model_;
  std::unique_ptr<GpuExecutor> executor_;
};

TEST_F(Eagle3LayerTest, LogitsAreThoseOfTheCpu) {
  for (const bool norms_residual : {false, true}) {
    llm::Eagle3Head head = ReadHead();
    head.norm_before_residual = norms_residual;
    const std::unique_ptr<Eagle3Layer> gpu = MakeLayer(head, norms_residual ? 2 : 8);
    ASSERT_NE(gpu, nullptr);
    auto cpu = std::move(
        *cpu::Eagle3Layer::Create(random_head_.checkpoint(), std::move(head), target_, model_, 2));
    llm::DraftHead* const heads[] = {gpu.get(), cpu.get()};
    EXPECT_EQ(gpu->feature_size(), cpu->feature_size());
    EXPECT_EQ(gpu->vocab_size(), cpu->vocab_size());
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    std::vector<Chain> chains(5);
    for (size_t c = 0; c < chains.size(); ++c) {
      chains[c].first_position = static_cast<int32_t>(40 * c);  // behind a cached prefix
      for (int h = 0; h < 2; ++h) chains[c].caches[h] = heads[h]->MakeCache();
    }
    // Rows of the target (some sequences have one, some many), then twice the head's own; again,
    // without the own rows.
    for (int round = 0; round < 6; ++round) {
      const bool is_own = round % 3 != 0;
      std::vector<llm::HeadEntry> entries[2];
      for (size_t c = 0; c < chains.size(); ++c) {
        Chain& chain = chains[c];
        const size_t rows =
            is_own ? 1 : (round == 0 ? std::vector<size_t>{1, 70, 3, 130, 12}[c] : 1 + c % 3);
        chain.tokens.resize(rows);
        for (int32_t& token : chain.tokens) token = static_cast<int32_t>(random() % 512);
        if (!is_own) {
          chain.hidden[0].resize(rows * gpu->feature_size());
          for (float& value : chain.hidden[0])
            value = testing::FromBf16(testing::Bf16Bits(normal(random)));
          chain.hidden[1] = chain.hidden[0];
        }
        for (int h = 0; h < 2; ++h) {
          llm::HeadCache& cache = *chain.caches[h];
          ASSERT_TRUE(cache.Reserve(cache.num_rows() + static_cast<int32_t>(rows)));
          llm::HeadEntry& entry = entries[h].emplace_back();
          entry.tokens = chain.tokens;
          entry.hidden = chain.hidden[h];
          entry.is_own = is_own;
          entry.first_position = chain.first_position + cache.num_rows();
          entry.cache = &cache;
        }
      }
      for (int h = 0; h < 2; ++h) {
        const Status status = heads[h]->Run(entries[h]);
        ASSERT_TRUE(status.ok()) << status.message();
      }
      for (size_t c = 0; c < chains.size(); ++c) {
        SCOPED_TRACE(StrCat("round ", round, ", chain ", c));
        EXPECT_LT(RelativeError(entries[0][c].logits, entries[1][c].logits), 8e-2);
        EXPECT_LT(RelativeError(entries[0][c].next_hidden, entries[1][c].next_hidden), 8e-2);
        EXPECT_EQ(chains[c].caches[0]->num_rows(), chains[c].caches[1]->num_rows());
        for (int h = 0; h < 2; ++h) {
          chains[c].hidden[h] = entries[h][c].next_hidden;
          llm::HeadCache& cache = *chains[c].caches[h];
          if (round % 3 == 2) cache.Truncate(cache.num_rows() - 2);
        }
      }
      if (HasFailure()) return;
    }
  }
}

// Two implementations of DraftChains draw the same chains: for sequences of several lengths, twice.
// The second time the sequences continue behind the first rows of the chains drawn before.
class Eagle3ChainsTest : public Eagle3LayerTest {
 protected:
  using Drafts = std::vector<std::vector<int32_t>>;

  void SetUp() override {
    Eagle3LayerTest::SetUp();
    if (IsSkipped()) return;
    ASSERT_TRUE(
        executor_->CaptureHiddenStates(ReadHead().aux_layers, llm::HiddenStatePlace::kDevice).ok());
    AddSequences({1, 45, 3, 8, 2});
  }
  // With so many first rows each.
  void AddSequences(std::initializer_list<size_t> lengths) {
    for (const size_t rows : lengths) {
      Sequence& sequence = sequences_.emplace_back();
      sequence.tokens.resize(rows + kSecondRows + 1);
      for (int32_t& token : sequence.tokens) token = static_cast<int32_t>(random_() % 512);
      sequence.hidden.resize((rows + kSecondRows) * kFeatures);
      for (float& value : sequence.hidden)
        value = testing::FromBf16(testing::Bf16Bits(normal_(random_)));
      sequence.sampling.returns_log_probs = true;
      sequence.sampling.seed = rows;
    }
  }
  // Makes `values` what a step of the target has left, from its row 2 on.
  void Leave(std::span<const float> values) {
    std::vector<uint16_t> bits;
    for (const float value : values) bits.push_back(testing::Bf16Bits(value));
    ASSERT_EQ(cudaMemcpy(executor_->decoder().captured()->rows() + 2 * kFeatures, bits.data(),
                         2 * bits.size(), cudaMemcpyHostToDevice),
              cudaSuccess);
    // cudaMemcpy of up to 64 KiB of pageable memory may return before the device has the bytes.
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  // Every second chain has `num_siblings` tokens beside each draft, which go to siblings_.
  Drafts Run(llm::DraftChains& runner, float least_probability, int32_t num_siblings = 0) {
    std::vector<std::unique_ptr<llm::HeadCache>> caches;
    for (size_t i = 0; i < sequences_.size(); ++i) caches.push_back(runner.MakeCache());
    Drafts drafts(2 * sequences_.size());
    siblings_.assign(drafts.size(), {});
    for (int round = 0; round < 2; ++round) {
      std::vector<std::vector<int32_t>> kept(sequences_.size());
      std::vector<llm::DraftChain> chains(sequences_.size());
      for (size_t i = 0; i < sequences_.size(); ++i) {
        const Sequence& sequence = sequences_[i];
        const size_t first = round == 0 ? 0 : sequence.tokens.size() - 1 - kSecondRows;
        const size_t rows = round == 0 ? sequence.tokens.size() - 1 - kSecondRows : kSecondRows;
        llm::DraftChain& chain = chains[i];
        chain.tokens = std::span(sequence.tokens).subspan(first + 1, rows);
        chain.first_position = static_cast<int32_t>(first);
        chain.cache = caches[i].get();
        chain.cache->Truncate(static_cast<int32_t>(first));
        chain.max_drafts = static_cast<int32_t>((3 * i + 10 * round) % 13);
        EXPECT_TRUE(chain.cache->Reserve(static_cast<int32_t>(first + rows) + 13));
        chain.sampling = &sequence.sampling;
        chain.sequence = std::span(sequence.tokens).first(first + rows + 1);
        chain.num_prompt = 1;
        chain.drafts = &drafts[2 * i + round];
        if (i % 2 == 1) {
          chain.num_siblings = num_siblings;
          chain.siblings = &siblings_[2 * i + round];
        }
        const auto hidden = std::span(sequence.hidden).subspan(first * kFeatures, rows * kFeatures);
        runner.pool()->Take(static_cast<int32_t>(rows), kept[i]);
        chain.kept = kept[i];
        llm::HiddenRows of_step = {.num_rows = static_cast<int32_t>(rows)};
        if (runner.place() == llm::HiddenStatePlace::kHost) {
          of_step.values = hidden;
        } else {
          Leave(hidden);
          of_step.first_row = 2;
        }
        runner.Keep(of_step, kept[i]);
        const Status finished = runner.FinishKeeping();
        EXPECT_TRUE(finished.ok()) << finished.message();
        EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      }
      const Status status = runner.RunChains(chains, least_probability);
      EXPECT_TRUE(status.ok()) << status.message();
      for (const auto& rows : kept) runner.pool()->Release(rows);
    }
    return drafts;
  }

  // Lists of the same tokens, or of others whose probabilities are nearly the same.
  static void ExpectSameSiblings(const llm::ChainSiblings& found,
                                 const llm::ChainSiblings& expected, int32_t num_siblings) {
    constexpr float kNear = 3e-2f;
    ASSERT_EQ(found.tokens.size(), expected.tokens.size());
    ASSERT_EQ(found.log_probs.size(), expected.log_probs.size());
    for (size_t place = 0; place < found.log_probs.size(); ++place)
      EXPECT_NEAR(found.log_probs[place], expected.log_probs[place], kNear);
    for (size_t place = 0; place < found.tokens.size(); ++place) {
      ASSERT_EQ(found.tokens[place].size(), static_cast<size_t>(num_siblings));
      ASSERT_EQ(found.tokens[place].size(), expected.tokens[place].size());
      for (size_t k = 0; k < found.tokens[place].size(); ++k) {
        const llm::SampledToken &own = found.tokens[place][k], &other = expected.tokens[place][k];
        EXPECT_NEAR(own.log_prob, other.log_prob, kNear) << own.id << " and " << other.id;
        EXPECT_EQ(own.id % 4, 0) << "the target's id";
      }
    }
  }

  struct Tree {
    std::vector<int32_t> drafts, parents;
  };
  // Trees of up to 8 drafts behind the sequences.
  std::vector<Tree> DraftTrees(llm::Eagle3Drafter& drafter, bool is_on_device) {
    std::vector<Tree> trees(sequences_.size());
    std::vector<std::unique_ptr<llm::DrafterState>> states(sequences_.size());
    std::vector<llm::DraftQuery> queries(sequences_.size());
    for (size_t i = 0; i < sequences_.size(); ++i) {
      const Sequence& sequence = sequences_[i];
      llm::HiddenRows rows = {.num_rows = static_cast<int32_t>(sequence.tokens.size()) - 1};
      if (is_on_device) {
        Leave(sequence.hidden);
        rows.first_row = 2;
      } else {
        rows.values = sequence.hidden;
      }
      drafter.Observe(states[i], 0, rows);
      drafter.FinishObserving();
      EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      llm::DraftQuery& query = queries[i];
      query.tokens = sequence.tokens;
      query.max_drafts = 8;
      query.state = &states[i];
      query.num_prompt = 1;
      query.sampling = &sequence.sampling;
      query.drafts = &trees[i].drafts;
      query.parents = &trees[i].parents;
      query.takes_trees = true;
    }
    drafter.Propose(queries);
    return trees;
  }

  static constexpr size_t kFeatures = 3 * 64, kSecondRows = 4;
  struct Sequence {
    std::vector<int32_t> tokens;
    std::vector<float> hidden;
    llm::SamplingParams sampling;
  };
  std::mt19937 random_{7};
  std::normal_distribution<float> normal_;
  std::vector<Sequence> sequences_;
  std::vector<llm::ChainSiblings> siblings_;  // of the last Run()
};

TEST_F(Eagle3ChainsTest, GreedyChainsAreThoseThatTheHostDraws) {
  for (const float least_probability : {0.0f, 0.05f}) {
    for (const bool norms_residual : {false, true}) {
      SCOPED_TRACE(StrCat(least_probability, " ", norms_residual));
      llm::Eagle3Head head = ReadHead();
      head.norm_before_residual = norms_residual;
      const std::unique_ptr<Eagle3Layer> chains = MakeLayer(head);
      std::unique_ptr<Eagle3Layer> alone = MakeLayer(head);
      ASSERT_NE(chains, nullptr);
      ASSERT_NE(alone, nullptr);
      const auto host = llm::MakeHostChains(std::move(alone));
      const Drafts drafts = Run(*chains, least_probability);
      EXPECT_EQ(drafts, Run(*host, least_probability));
      size_t num_drafts = 0;
      for (const auto& chain : drafts) num_drafts += chain.size();
      EXPECT_GT(num_drafts, 20u);
      if (least_probability > 0.0f) continue;
      EXPECT_EQ(num_drafts, 0u + 3 + 6 + 9 + 12 + 10 + 0 + 3 + 6 + 9);
    }
  }
}

// A row of a chain reads the block whose last tokens the rows before have just written.
TEST_F(Eagle3ChainsTest, ChainsThatCrossKvBlocksAreTheSameEachTime) {
  sequences_.clear();
  AddSequences({60, 62, 61, 58, 55});
  const std::unique_ptr<Eagle3Layer> chains = MakeLayer(ReadHead());
  const auto host = llm::MakeHostChains(MakeLayer(ReadHead()));
  const Drafts drafts = Run(*chains, 0.0f), expected = Run(*host, 0.0f);
  size_t num_same = 0;
  for (size_t i = 0; i < drafts.size(); ++i) num_same += drafts[i] == expected[i] ? 1 : 0;
  EXPECT_GE(num_same, 9u);
  for (int round = 0; round < 50; ++round) EXPECT_EQ(Run(*chains, 0.0f), drafts) << round;
}

// Two launches, each of chains of its own.
TEST_F(Eagle3ChainsTest, MoreChainsThanALaunchTakesAreTheSame) {
  const std::unique_ptr<Eagle3Layer> together = MakeLayer(ReadHead());
  const std::unique_ptr<Eagle3Layer> apart = MakeLayer(ReadHead(), 2);
  const Drafts drafts = Run(*together, 0.0f), others = Run(*apart, 0.0f);
  size_t num_same = 0;  // products of other numbers of rows may add in another order
  for (size_t i = 0; i < drafts.size(); ++i) num_same += drafts[i] == others[i] ? 1 : 0;
  EXPECT_GE(num_same, 8u);
}

TEST_F(Eagle3ChainsTest, SampledChainsAreThoseThatTheHostDraws) {
  for (size_t i = 0; i < sequences_.size(); ++i) {
    llm::SamplingParams& sampling = sequences_[i].sampling;
    sampling.temperature = i == 1 ? 0.0f : 0.8f;
    sampling.top_k = i == 2 ? 1 : 20;
    if (i == 3) sampling.top_p = 0.8f;
    if (i == 4) sampling.logit_bias = {{400, 3.0f}, {404, 2.0f}};
  }
  const std::unique_ptr<Eagle3Layer> chains = MakeLayer(ReadHead());
  const auto host = llm::MakeHostChains(MakeLayer(ReadHead()));
  const Drafts drafts = Run(*chains, 0.0f), expected = Run(*host, 0.0f);
  size_t num_same = 0;
  for (size_t i = 0; i < drafts.size(); ++i) {
    EXPECT_EQ(drafts[i].size(), expected[i].size());
    num_same += drafts[i] == expected[i] ? 1 : 0;
  }
  EXPECT_GE(num_same, 9u);  // a draw may fall on the border between two tokens
}

TEST_F(Eagle3ChainsTest, ChainsAreThoseOfTheCpu) {
  const std::unique_ptr<Eagle3Layer> chains = MakeLayer(ReadHead());
  auto cpu = std::move(
      *cpu::Eagle3Layer::Create(random_head_.checkpoint(), ReadHead(), target_, model_, 2));
  const auto host = llm::MakeHostChains(std::move(cpu));
  const Drafts drafts = Run(*chains, 0.0f), expected = Run(*host, 0.0f);
  // Behind the first token of a near tie, chains differ.
  size_t num_same = 0, num_first = 0, num_chains = 0;
  for (size_t i = 0; i < drafts.size(); ++i) {
    ASSERT_EQ(drafts[i].size(), expected[i].size());
    if (drafts[i].empty()) continue;
    ++num_chains;
    num_first += drafts[i][0] == expected[i][0] ? 1 : 0;
    num_same += drafts[i] == expected[i] ? 1 : 0;
  }
  EXPECT_GE(num_first + 1, num_chains);
  EXPECT_GE(num_same, num_chains / 2);
}

// Few first rows are a fused step, whose last row of each chain is drawn from.
TEST_F(Eagle3ChainsTest, ChainsOfFewRowsAreThoseOfTheCpu) {
  size_t num_first = 0, num_chains = 0;
  for (const size_t rows : {1, 2, 3, 4}) {
    for (const bool has_another : {false, true}) {
      sequences_.clear();
      AddSequences({rows});
      if (has_another) AddSequences({5 - rows});
      const std::unique_ptr<Eagle3Layer> chains = MakeLayer(ReadHead());
      const auto host = llm::MakeHostChains(std::move(
          *cpu::Eagle3Layer::Create(random_head_.checkpoint(), ReadHead(), target_, model_, 2)));
      const Drafts drafts = Run(*chains, 0.0f), expected = Run(*host, 0.0f);
      for (size_t i = 0; i < drafts.size(); ++i) {
        ASSERT_EQ(drafts[i].size(), expected[i].size());
        if (drafts[i].empty()) continue;
        ++num_chains;
        num_first += drafts[i][0] == expected[i][0] ? 1 : 0;
      }
    }
  }
  EXPECT_EQ(num_chains, 12u);
  EXPECT_GE(num_first + 1, num_chains) << "a near tie";
}

// The tokens beside each draft, as many as a kernel ranks at most among them, whatever draws the
// drafts.
TEST_F(Eagle3ChainsTest, TokensBesideTheDraftsAreThoseThatTheHostFinds) {
  const std::unique_ptr<Eagle3Layer> chains = MakeLayer(ReadHead());
  const auto host = llm::MakeHostChains(MakeLayer(ReadHead()));
  ASSERT_TRUE(chains->gives_siblings());
  for (const bool samples : {false, true}) {
    for (llm::SamplingParams& sampling : sequences_ | std::views::transform(&Sequence::sampling)) {
      sampling.temperature = samples ? 0.8f : 0.0f;
      if (samples) sampling.logit_bias = {{400, 3.0f}, {404, 2.0f}};
    }
    for (const int32_t num_siblings : {1, 3, 15}) {
      // 0.05: some chains end before an unlikely token, which is the first one beside nothing.
      for (const float least_probability : {0.0f, 0.05f}) {
        SCOPED_TRACE(StrCat(samples ? "sampled, " : "greedy, ", num_siblings, " siblings, from ",
                            least_probability));
        const Drafts drafts = Run(*chains, least_probability, num_siblings);
        const std::vector<llm::ChainSiblings> found = std::exchange(siblings_, {});
        const Drafts expected_drafts = Run(*host, least_probability, num_siblings);
        size_t num_same = 0, num_tokens = 0;
        for (size_t i = 0; i < drafts.size(); ++i) {
          EXPECT_EQ(found[i].tokens.empty(), siblings_[i].tokens.empty()) << i;
          num_same += drafts[i] == expected_drafts[i] ? 1 : 0;
          if (drafts[i] != expected_drafts[i]) continue;  // another of two nearly equal tokens
          ExpectSameSiblings(found[i], siblings_[i], num_siblings);
          for (const auto& tokens : found[i].tokens) num_tokens += tokens.size();
        }
        EXPECT_GE(num_same, 9u);
        EXPECT_GE(num_tokens, static_cast<size_t>(num_siblings) * 2);
      }
    }
  }
}

// One drafter on each engine's head: the trees are the same but for nearly equal tokens.
TEST_F(Eagle3ChainsTest, TreesAreThoseOfTheCpu) {
  for (const bool is_explicit : {true, false}) {
    SCOPED_TRACE(is_explicit ? "explicit" : "the likeliest paths");
    std::vector<Tree> trees[2];
    for (const bool is_on_gpu : {true, false}) {
      std::unique_ptr<llm::DraftChains> chains;
      if (is_on_gpu) {
        chains = MakeLayer(ReadHead());
      } else {
        chains = llm::MakeHostChains(std::move(
            *cpu::Eagle3Layer::Create(random_head_.checkpoint(), ReadHead(), target_, model_, 2)));
      }
      const bool is_on_device = chains->place() == llm::HiddenStatePlace::kDevice;
      llm::Eagle3Drafter drafter(std::move(chains), 0.0f);
      drafter.DraftTrees(is_explicit ? *llm::ParseCombChoices("{0},{0,0},{1},{2},{0,1},{0,0,0}",
                                                              llm::kMaxDraftTokens, 16)
                                     : std::vector<llm::TreeChoice>(),
                         0.0f);
      trees[is_on_gpu ? 0 : 1] = DraftTrees(drafter, is_on_device);
    }
    size_t num_same = 0, num_first = 0;
    for (size_t i = 0; i < sequences_.size(); ++i) {
      const Tree &tree = trees[0][i], &expected = trees[1][i];
      ASSERT_EQ(tree.drafts.size(), is_explicit ? 6u : 8u);
      EXPECT_EQ(tree.drafts.size(), expected.drafts.size());
      EXPECT_EQ(tree.drafts.size(), tree.parents.size());
      if (is_explicit) {
        EXPECT_EQ(tree.parents, (std::vector<int32_t>{-1, 0, -1, -1, 0, 1}));
      }
      EXPECT_TRUE(std::ranges::all_of(tree.drafts, [](int32_t id) { return id % 4 == 0; }))
          << "a draft is a token of the head's vocabulary";
      num_same += tree.drafts == expected.drafts && tree.parents == expected.parents ? 1 : 0;
      num_first += tree.drafts[0] == expected.drafts[0] ? 1 : 0;
    }
    std::printf("  %zu of %zu trees are the same\n", num_same, sequences_.size());
    EXPECT_GE(num_first + 1, sequences_.size());
    EXPECT_GE(num_same, sequences_.size() / 2);
  }
}

TEST_F(Eagle3LayerTest, CachesGetNoMoreBlocksThanThereAre) {
  const std::unique_ptr<Eagle3Layer> gpu = MakeLayer(ReadHead(), 8, 3);
  ASSERT_NE(gpu, nullptr);
  auto first = gpu->MakeCache(), second = gpu->MakeCache();
  EXPECT_TRUE(first->Reserve(2 * kBlockTokens));
  EXPECT_FALSE(second->Reserve(2 * kBlockTokens));
  first->Truncate(0);
  EXPECT_TRUE(second->Reserve(3 * kBlockTokens));
  EXPECT_FALSE(first->Reserve(1));
  second.reset();
  EXPECT_TRUE(first->Reserve(3 * kBlockTokens));
}

}  // namespace
}  // namespace nereid::gpu
