// Drafters with weights, drafts under grammars and drafts with logits on the GPU: the answers are
// those without drafts, or have their distribution.
#include <numeric>

#include "backends/cpu_reference/cpu_executor.h"
#include "backends/gpu_llm/model/eagle3_layer.h"
#include "backends/llm_core/speculation/eagle3_drafter.h"
#include "backends/llm_core/speculation/model_drafter.h"
#include "tests/backends/cpu_reference/random_eagle3_head.h"
#include "tests/backends/gpu_llm/single_sequence.h"
#include "tests/backends/gpu_llm/speculation_fixture.h"

namespace nereid::gpu {
namespace {

using testing::FullAnswer;
using testing::RelativeError;
using testing::Work;

class GpuDrafterTest : public testing::GpuSpeculationTest {
 protected:
  void SetUp() override {
    testing::GpuSpeculationTest::SetUp();
    if (IsSkipped()) return;
    ASSERT_NE(MakeExecutor(), nullptr);  // sets vocab_size_
  }
  enum class HeadShape : uint8_t { kChains, kTrees, kChoices };

  // An engine whose drafter is an EAGLE-3 head with random weights.
  void StartWithHead(HeadShape shape = HeadShape::kChains) {
    const auto target =
        std::make_shared<const llm::Checkpoint>(std::move(*llm::Checkpoint::Open(directory_)));
    const auto model = llm::ReadDecoder(*target);
    auto head = llm::ReadEagle3Head(*random_head_.checkpoint(), model->spec);
    ASSERT_TRUE(head.ok()) << head.status().message();
    const std::vector<int32_t> layers = head->aux_layers;
    std::unique_ptr<GpuExecutor> executor = MakeExecutor();
    ASSERT_NE(executor, nullptr);
    // Half of the sequences: two launches.
    auto layer = Eagle3Layer::Create(std::move(*head), HeadOptions(*executor, 8));
    ASSERT_TRUE(layer.ok()) << layer.status().message();
    const Status captured = executor->CaptureHiddenStates(layers, (*layer)->place());
    ASSERT_TRUE(captured.ok()) << captured.message();
    auto drafter = std::make_shared<llm::Eagle3Drafter>(std::move(*layer), 0.0f);
    if (shape == HeadShape::kTrees) {
      drafter->DraftTrees({}, 0.0f);
    } else if (shape == HeadShape::kChoices) {
      // Many tokens for the next place: more of them are right.
      auto choices = llm::ParseCombChoices(
          "{0},{1},{2},{3},{4},{5},{6},{7},{8},{9},{15},{0,0},{0,1},{0,0,2}", 16, 16);
      ASSERT_TRUE(choices.ok()) << choices.status().message();
      drafter->DraftTrees(std::move(*choices));
    }
    max_draft_tokens_ = drafter->default_max_drafts();
    ASSERT_TRUE(
        executor->PrepareDraftSteps({max_draft_tokens_, drafter->proposes_trees(), true}).ok());
    StartOn(std::move(executor), std::move(drafter));
  }
  void StartWithMedusaHeads() {
    std::unique_ptr<GpuExecutor> executor = MakeExecutor();
    ASSERT_NE(executor, nullptr);
    auto drafter = MakeMedusaDrafter(random_medusa_, *executor, *executor);
    ASSERT_NE(drafter, nullptr);
    ASSERT_TRUE(executor->PrepareDraftSteps({8, true, true}).ok());
    StartOn(std::move(executor), std::move(drafter));
  }

  const cpu::testing::RandomEagle3Head random_head_{3};
  const cpu::testing::RandomMedusaHeads random_medusa_{3};
};

// A decode step of any number of sequences is replayed when it first comes.
TEST_F(GpuDrafterTest, PlainStepsArePreparedToo) {
  const std::unique_ptr<GpuExecutor> executor = MakeExecutor();
  ASSERT_NE(executor, nullptr);
  ASSERT_TRUE(executor->PrepareSteps().ok());
  const std::vector<int32_t> table = {0};
  const std::vector<int32_t> tokens = {3, 1, 4};
  llm::SamplingParams sampling;
  for (const int32_t num_sequences : {1, 2, 3, 7, 16}) {
    SCOPED_TRACE(num_sequences);
    llm::StepBatch batch;
    for (int32_t i = 0; i < num_sequences; ++i) {
      llm::BatchEntry& entry = batch.entries.emplace_back();
      entry.slot = i;
      entry.first_token = i;
      entry.num_tokens = entry.num_logits = 1;
      entry.num_cached = 2;
      entry.block_table = table;
      entry.samples = true;
      entry.sampling = {&sampling, tokens, 1, {}};
      batch.token_ids.push_back(i);
    }
    const int64_t num_recorded = executor->counts().num_recorded_steps;
    ASSERT_TRUE(executor->Submit(batch).ok());
    const auto result = executor->Collect();
    ASSERT_TRUE(result.ok()) << result.status().message();
    EXPECT_TRUE(result->is_typical);
    EXPECT_EQ(executor->counts().num_recorded_steps, num_recorded + 1);
  }
}

TEST_F(GpuDrafterTest, PreparedSizesAreReplayedWhenTheyFirstCome) {
  for (const llm::DraftStepForm& form :
       {llm::DraftStepForm{7, false, false}, llm::DraftStepForm{7, true, false},
        llm::DraftStepForm{7, false, true}, llm::DraftStepForm{7, true, true}}) {
    SCOPED_TRACE(::testing::Message()
                 << "trees " << form.are_trees << ", hidden states " << form.returns_hidden_states);
    const std::unique_ptr<GpuExecutor> executor = MakeExecutor();
    ASSERT_NE(executor, nullptr);
    const std::vector<int32_t> layers = {0, 1};
    if (form.returns_hidden_states) {
      ASSERT_TRUE(executor->CaptureHiddenStates(layers, llm::HiddenStatePlace::kDevice).ok());
    }
    ASSERT_TRUE(executor->PrepareDraftSteps(form).ok());
    ExpectReplays(*executor, form);
    if (HasFailure()) return;
  }
}

// Drafts are right but where the draft model computed two tokens of the output together.
TEST_F(GpuDrafterTest, AModelDraftsForItself) {
  options_.is_batch_invariant = true;
  const auto work = DrawWork(40);
  const std::vector<FullAnswer> alone = AnswerAlone(work);
  if (HasFatalFailure()) return;
  ExpectTheSameAnswersWith(std::make_shared<llm::ModelDrafter>(MakeDraftExecutor(directory_), 0.0f),
                           work, alone);
  if (HasFatalFailure()) return;
  const llm::SpeculationCounts counts = engine_->stats().speculation;
  EXPECT_GT(counts.num_accepted, counts.num_drafted * 6 / 10);
}

TEST_F(GpuDrafterTest, AnotherModelWhoseDraftsAreMostlyWrongChangesNoAnswer) {
  const std::string other = cpu::testing::FindTiny("mistral-swa");
  if (other.empty()) GTEST_SKIP() << "no test data for mistral-swa";
  options_.is_batch_invariant = true;
  const auto work = DrawWork(40);
  const std::vector<FullAnswer> alone = AnswerAlone(work);
  if (HasFatalFailure()) return;
  ExpectTheSameAnswersWith(std::make_shared<llm::ModelDrafter>(MakeDraftExecutor(other), 0.0f),
                           work, alone);
}

// Its trees have up to 7 drafts.
TEST_F(GpuDrafterTest, LookaheadDecodingChangesNoAnswer) {
  options_.is_batch_invariant = true;
  ExpectThatLookaheadDecodingChangesNoAnswer();
}

TEST_F(GpuDrafterTest, AnEagle3HeadChangesNoAnswer) {
  options_.is_batch_invariant = true;
  const auto work = DrawWork(40);
  const std::vector<FullAnswer> alone = AnswerAlone(work);
  if (HasFatalFailure()) return;
  UseLoad();
  StartWithHead();
  if (HasFatalFailure()) return;
  ExpectTheSameAnswers(work, alone);
}

// Trees of up to 15 drafts.
TEST_F(GpuDrafterTest, TreesOfAnEagle3HeadChangeNoAnswer) {
  options_.is_batch_invariant = true;
  const auto work = DrawWork(40);
  const std::vector<FullAnswer> alone = AnswerAlone(work);
  if (HasFatalFailure()) return;
  UseLoad();
  for (const HeadShape shape : {HeadShape::kTrees, HeadShape::kChoices}) {
    StartWithHead(shape);
    if (HasFatalFailure()) return;
    ExpectTheSameAnswers(work, alone);
    if (shape == HeadShape::kChoices) {
      EXPECT_GT(engine_->stats().speculation.num_accepted, 0);
    }
    engine_.reset();
    if (HasFailure()) return;
  }
}

TEST_F(GpuDrafterTest, TreesOfAnEagle3HeadUnderGrammarsChangeNoAnswer) {
  options_.is_batch_invariant = true;
  const Work work = DrawGrammarWork(40);
  const std::vector<FullAnswer> alone = AnswerAlone(work);
  if (HasFatalFailure()) return;
  for (auto& request : work) request->speculates = true;
  UseLoad();
  StartWithHead(HeadShape::kTrees);
  if (HasFatalFailure()) return;
  ExpectTheSameAnswers(work, alone);
}

TEST_F(GpuDrafterTest, MedusaHeadsChangeNoAnswer) {
  options_.is_batch_invariant = true;
  const auto work = DrawWork(40);
  const std::vector<FullAnswer> alone = AnswerAlone(work);
  if (HasFatalFailure()) return;
  UseLoad();
  StartWithMedusaHeads();
  if (HasFatalFailure()) return;
  ExpectTheSameAnswers(work, alone);
}

TEST_F(GpuDrafterTest, MedusaHeadsWorkWithoutBatchInvariance) {
  const Work work = DrawGreedyWork(40);
  const std::vector<FullAnswer> alone = AnswerAlone(work);
  if (HasFatalFailure()) return;
  StartWithMedusaHeads();
  if (HasFatalFailure()) return;
  ExpectMostlyTheSameTogether(work, alone);
}

// Recorded steps keep the hidden states, too.
TEST_F(GpuDrafterTest, AnEagle3HeadWorksWithoutBatchInvariance) {
  options_.steps_before_recording = 1;
  const Work work = DrawGreedyWork(40);
  const std::vector<FullAnswer> alone = AnswerAlone(work);
  if (HasFatalFailure()) return;
  for (const HeadShape shape : {HeadShape::kChains, HeadShape::kTrees}) {
    StartWithHead(shape);
    if (HasFatalFailure()) return;
    ExpectMostlyTheSameTogether(work, alone);
    engine_.reset();
  }
}

TEST_F(GpuDrafterTest, DraftsUnderGrammarsChangeNoAnswer) {
  options_.is_batch_invariant = true;
  ExpectThatDraftsUnderGrammarsChangeNoAnswer();
}

TEST_F(GpuDrafterTest, HiddenStatesAreThoseOfTheCpu) {
  const auto checkpoint =
      std::make_shared<const llm::Checkpoint>(std::move(*llm::Checkpoint::Open(directory_)));
  cpu::CpuExecutorOptions cpu_options;
  cpu_options.num_threads = 2;
  auto cpu = std::move(*cpu::CpuExecutor::Create(
      checkpoint, std::move(*llm::ReadDecoder(*checkpoint)), cpu_options));
  auto gpu = MakeExecutor();
  const std::vector<int32_t> layers = {3, 0, 2};
  ASSERT_TRUE(cpu->CaptureHiddenStates(layers, llm::HiddenStatePlace::kHost).ok());
  const Status captured = gpu->CaptureHiddenStates(layers, llm::HiddenStatePlace::kHost);
  ASSERT_TRUE(captured.ok()) << captured.message();
  EXPECT_FALSE(
      gpu->CaptureHiddenStates(std::vector<int32_t>{7}, llm::HiddenStatePlace::kHost).ok());
  std::vector<int32_t> prompt(70), other = {9, 8, 7};
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(i * 37 % 509);
  const llm::SamplingParams greedy;
  std::vector<llm::StepResult> results;
  for (llm::Executor* executor :
       {static_cast<llm::Executor*>(gpu.get()), static_cast<llm::Executor*>(cpu.get())}) {
    std::vector<int32_t> tables[2] = {std::vector<int32_t>(16), std::vector<int32_t>(16)};
    std::iota(tables[0].begin(), tables[0].end(), 0);
    std::iota(tables[1].begin(), tables[1].end(), 16);
    for (int step = 0; step < 3; ++step) {  // two prompts, then a token of each, twice
      llm::StepBatch batch;
      for (int i = 0; i < 2; ++i) {
        std::vector<int32_t>& tokens = i == 0 ? other : prompt;
        const std::vector<int32_t> next = {5 + step};
        const std::vector<int32_t>& run = step == 0 ? tokens : next;
        llm::BatchEntry& entry = batch.entries.emplace_back();
        entry.slot = i;
        entry.first_token = static_cast<int32_t>(batch.token_ids.size());
        entry.num_tokens = static_cast<int32_t>(run.size());
        entry.num_cached = step == 0 ? 0 : static_cast<int32_t>(tokens.size()) + step - 1;
        entry.num_logits = 1;
        entry.samples = true;
        entry.sampling = {&greedy, tokens, 0, {}};
        entry.block_table = tables[i];
        entry.returns_hidden_states = i == 1;
        batch.token_ids.insert(batch.token_ids.end(), run.begin(), run.end());
      }
      ASSERT_TRUE(executor->Submit(batch).ok());
      auto result = executor->Collect();
      ASSERT_TRUE(result.ok()) << result.status().message();
      results.push_back(std::move(*result));
    }
  }
  for (size_t step = 0; step < 3; ++step) {
    const llm::StepResult &got = results[step], &expected = results[3 + step];
    ASSERT_EQ(got.hidden_states.size(), 2u);
    EXPECT_TRUE(got.hidden_states[0].empty());
    ASSERT_EQ(got.hidden_states[1].size(), expected.hidden_states[1].size());
    EXPECT_LT(RelativeError(got.hidden_states[1], expected.hidden_states[1]), 8e-2) << step;
  }
}

// A draft that a client drew from its own logits is accepted or replaced, so that the first token
// has the distribution of the model. chi^2 of 3 degrees of freedom exceeds 16.3 once in 1,000.
TEST_F(GpuDrafterTest, VerifiedDraftsHaveTheDistributionOfTheModel) {
  auto gpu = MakeExecutor();
  constexpr int kTopK = 4, kRounds = 250, kSequences = 8;
  const std::vector<int32_t> prompt = {7, 3, 99, 4, 12, 200};
  const auto length = static_cast<int32_t>(prompt.size());
  const std::vector<float> logits = testing::RunSequence(*gpu, prompt, 0, 1);
  std::vector<llm::SampledToken> top;
  llm::FindTopTokens(logits, kTopK, top);
  constexpr float kTemperature = 1.5f;
  std::vector<double> expected;
  for (const llm::SampledToken& token : top)
    expected.push_back(std::exp(logits[token.id] / kTemperature));
  const double sum = std::accumulate(expected.begin(), expected.end(), 0.0);
  for (double& p : expected) p /= sum;
  // The client knows the first and the last of the four, and another token.
  std::vector<float> drawn_from(2 * static_cast<size_t>(vocab_size_), -30.0f);
  int32_t other = 0;  // not among the four
  while (std::any_of(top.begin(), top.end(), [&](const auto& token) { return token.id == other; }))
    ++other;
  const int32_t known[] = {top[0].id, top[3].id, other};
  const float weights[] = {0.5f, 0.3f, 0.2f};
  for (int row = 0; row < 2; ++row) {
    for (int i = 0; i < 3; ++i) drawn_from[row * vocab_size_ + known[i]] = std::log(weights[i]);
  }
  std::vector<std::vector<int32_t>> tables(kSequences);
  for (int i = 0; i < kSequences; ++i) tables[i] = {i};
  std::mt19937 random(5);
  std::discrete_distribution<int> draw(std::begin(weights), std::end(weights));
  std::map<int32_t, int> counts;
  int num_accepted = 0;
  llm::SamplingParams sampling[kSequences];
  for (int round = 0; round <= kRounds; ++round) {
    llm::StepBatch batch;
    for (int i = 0; i < kSequences; ++i) {
      llm::BatchEntry& entry = batch.entries.emplace_back();
      entry.slot = i;
      entry.first_token = static_cast<int32_t>(batch.token_ids.size());
      entry.block_table = tables[i];
      entry.samples = true;
      sampling[i] = {};
      sampling[i].temperature = kTemperature;
      sampling[i].top_k = kTopK;
      sampling[i].seed = random();
      entry.sampling = {&sampling[i], prompt, length, {}};
      if (round == 0) {  // the prompts, without the last token
        entry.num_tokens = length - 1;
        entry.num_logits = 1;
        batch.token_ids.insert(batch.token_ids.end(), prompt.begin(), prompt.end() - 1);
        continue;
      }
      entry.num_cached = length - 1;
      entry.num_tokens = entry.num_logits = 3;
      entry.num_draft_tokens = 2;
      entry.draft_logits = drawn_from;
      batch.token_ids.insert(batch.token_ids.end(),
                             {prompt.back(), known[draw(random)], known[draw(random)]});
    }
    ASSERT_TRUE(gpu->Submit(batch).ok());
    const auto result = gpu->Collect();
    ASSERT_TRUE(result.ok()) << result.status().message();
    for (int i = 0; round > 0 && i < kSequences; ++i) {
      const auto& accepted = result->accepted[i];
      num_accepted += accepted.empty() ? 0 : 1;
      ++counts[accepted.empty() ? result->tokens[i].id : accepted[0].id];
    }
  }
  double chi_squared = 0.0;
  int num_counted = 0;
  for (int i = 0; i < kTopK; ++i) {
    const double wanted = expected[i] * kRounds * kSequences;
    chi_squared += (counts[top[i].id] - wanted) * (counts[top[i].id] - wanted) / wanted;
    num_counted += counts[top[i].id];
  }
  EXPECT_EQ(num_counted, kRounds * kSequences);  // no token outside of top-k
  EXPECT_LT(chi_squared, 16.3);
  EXPECT_GT(num_accepted, kRounds * kSequences / 5);
  EXPECT_LT(num_accepted, kRounds * kSequences);
}

}  // namespace
}  // namespace nereid::gpu
