// Draft tokens on two GPUs change no answer: with batch invariance, requests with random parameters
// get the same ids, log probabilities and likely tokens with and without drafts, bit for bit. And a
// drafter with weights runs on the first of them.
#include <numeric>

#include "backends/gpu_llm/model/eagle3_layer.h"
#include "backends/gpu_llm/sharded_executor.h"
#include "backends/llm_core/speculation/eagle3_drafter.h"
#include "backends/llm_core/speculation/model_drafter.h"
#include "tests/backends/cpu_reference/random_eagle3_head.h"
#include "tests/backends/gpu_llm/adapter_parts.h"
#include "tests/backends/gpu_llm/speculation_fixture.h"

namespace nereid::gpu {
namespace {

using llm::testing::CarelessShape;
using testing::FullAnswer;
using testing::RelativeError;
using testing::Work;

class ShardedSpeculationTest : public testing::GpuSpeculationTest {
 protected:
  void SetUp() override {
    testing::GpuSpeculationTest::SetUp();
    if (IsSkipped()) return;
    if (!testing::HasPair()) GTEST_SKIP() << "no two GPUs that reach each other's memory";
    options_.is_batch_invariant = true;
    ASSERT_NE(MakeTarget(), nullptr);  // sets vocab_size_
  }
  std::unique_ptr<llm::Executor> MakeTarget() override { return MakeCapturing(); }
  std::unique_ptr<ShardedExecutor> MakeCapturing() {
    std::unique_ptr<ShardedExecutor> executor = MakeSharded();
    if (executor != nullptr && !captured_.empty()) {
      const Status status =
          executor->CaptureHiddenStates(captured_, llm::HiddenStatePlace::kDevice);
      EXPECT_TRUE(status.ok()) << status.message();
    }
    return executor;
  }

  std::vector<int32_t> captured_;  // layers whose hidden states are kept
};

TEST_F(ShardedSpeculationTest, RequestsGetTheAnswersThatTheyGetWithoutDrafts) {
  const Work work = DrawWork(60);
  const std::vector<FullAnswer> alone = AnswerAlone(work);
  if (HasFatalFailure()) return;
  for (const bool adapts_length : {false, true}) {
    ExpectTheSameAnswersWith(drafter_, work, alone, adapts_length);
    if (HasFatalFailure()) return;
    EXPECT_GT(engine_->stats().speculation.num_accepted, 0);
    engine_.reset();
  }
}

// Each GPU moves the keys and values of the accepted drafts of its heads.
TEST_F(ShardedSpeculationTest, TreesChangeNoAnswer) {
  for (const CacheFormat format : {CacheFormat::kBf16, CacheFormat::kFp8}) {
    options_.cache_format = format;
    const Work work = DrawWork(60);
    const std::vector<FullAnswer> alone = AnswerAlone(work);
    if (HasFatalFailure()) return;
    for (const CarelessShape shape : {CarelessShape::kTrees, CarelessShape::kTreesWithRows}) {
      ExpectTheSameAnswersWith(MakeDrafter(shape), work, alone);
      if (HasFatalFailure()) return;
      EXPECT_GT(engine_->stats().speculation.num_accepted, 0);
      engine_.reset();
    }
  }
}

TEST_F(ShardedSpeculationTest, LookaheadDecodingChangesNoAnswer) {
  ExpectThatLookaheadDecodingChangesNoAnswer();
}

// Also heads that share the model's LM head, of which the first GPU has only a part. A model whose
// output is kept norms its input of the final norm by another kernel, as below.
TEST_F(ShardedSpeculationTest, MedusaHeadsOnTheFirstGpuDraft) {
  for (const bool shares_lm_head : {false, true}) {
    SCOPED_TRACE(shares_lm_head);
    const cpu::testing::RandomMedusaHeads random(3, shares_lm_head);
    captured_ = {ReadModel(*llm::Checkpoint::Open(directory_)).spec.num_layers()};
    const Work work = DrawWork(40);
    const std::vector<FullAnswer> alone = AnswerAlone(work);
    if (HasFatalFailure()) return;
    captured_.clear();
    std::unique_ptr<ShardedExecutor> executor = MakeCapturing();
    ASSERT_NE(executor, nullptr);
    auto drafter = MakeMedusaDrafter(random, executor->rank(0), *executor);
    ASSERT_NE(drafter, nullptr);
    UseLoad();
    StartOn(std::move(executor), std::move(drafter));
    ExpectTheSameAnswers(work, alone);
    engine_.reset();
    if (HasFailure()) return;
  }
}

TEST_F(ShardedSpeculationTest, PreparedSizesAreReplayedWhenTheyFirstCome) {
  options_.is_batch_invariant = false;
  for (const bool are_trees : {false, true}) {
    SCOPED_TRACE(are_trees);
    const std::unique_ptr<ShardedExecutor> executor = MakeCapturing();
    ASSERT_NE(executor, nullptr);
    const llm::DraftStepForm form = {7, are_trees, false};
    ASSERT_TRUE(executor->PrepareDraftSteps(form).ok());
    ExpectReplays(*executor, form);
    if (HasFailure()) return;
  }
}

TEST_F(ShardedSpeculationTest, TreesWorkWithoutBatchInvariance) {
  options_.is_batch_invariant = false;
  options_.steps_before_recording = 1;
  const Work work = DrawGreedyWork(40);
  const std::vector<FullAnswer> alone = AnswerAlone(work);
  if (HasFatalFailure()) return;
  StartWith(MakeDrafter(CarelessShape::kTrees));
  if (HasFatalFailure()) return;
  ExpectMostlyTheSameTogether(work, alone);
  EXPECT_GT(engine_->stats().speculation.num_accepted, 0);
}

TEST_F(ShardedSpeculationTest, DraftsChangeNoAnswerOfRequestsWithAdapters) {
  const llm::Checkpoint checkpoint = std::move(*llm::Checkpoint::Open(directory_));
  const llm::DecoderModel model = ReadModel(checkpoint);
  std::vector<testing::AdapterPointer> adapters = {nullptr};
  for (uint32_t i = 1; i <= 3; ++i)
    adapters.push_back(testing::MakeAdapter(model, 4 * i, false, 500 * i));
  options_.adapter_memory_bytes = int64_t{1} << 20;
  const Work work = DrawWork(40);
  for (size_t i = 0; i < work.size(); ++i) work[i]->adapter = adapters[i % adapters.size()];
  const std::vector<FullAnswer> alone = AnswerAlone(work);
  if (HasFatalFailure()) return;
  ExpectTheSameAnswersWith(drafter_, work, alone);
  if (HasFatalFailure()) return;
  EXPECT_GT(engine_->stats().speculation.num_accepted, 0);
}

TEST_F(ShardedSpeculationTest, DraftsUnderGrammarsChangeNoAnswer) {
  ExpectThatDraftsUnderGrammarsChangeNoAnswer();
}

// Recorded steps with attention of several tokens an item.
TEST_F(ShardedSpeculationTest, AnswersStayTheSameWithoutBatchInvariance) {
  options_.is_batch_invariant = false;
  options_.steps_before_recording = 1;
  const Work work = DrawGreedyWork(40);
  const std::vector<FullAnswer> alone = AnswerAlone(work);
  if (HasFatalFailure()) return;
  StartWith(drafter_);
  if (HasFatalFailure()) return;
  ExpectMostlyTheSameTogether(work, alone);
  EXPECT_GT(engine_->stats().speculation.num_accepted, 0);
}

// Greedy requests take the most likely token, whatever the client's logits; sampling ones accept or
// replace drafts by them, each time in the same way.
TEST_F(ShardedSpeculationTest, DraftsOfClientsWithLogits) {
  const Work work = DrawWork(24);
  for (size_t i = 0; i < work.size(); ++i) {
    work[i]->sampling.bad_words.clear();
    if (i % 2 == 0) work[i]->sampling.temperature = 0.0f;
  }
  const std::vector<FullAnswer> alone = AnswerAlone(work);
  if (HasFatalFailure()) return;
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0.0f, 3.0f);
  for (size_t i = 0; i < work.size(); ++i) {
    work[i]->draft_ids = alone[i].ids;
    for (size_t k = 4; k < work[i]->draft_ids.size(); k += 5)
      work[i]->draft_ids[k] = static_cast<int32_t>(random() % vocab_size_);
    work[i]->draft_logits.resize(work[i]->draft_ids.size() * vocab_size_);
    for (float& logit : work[i]->draft_logits) logit = normal(random);
  }
  std::vector<FullAnswer> answers[2];
  for (std::vector<FullAnswer>& own : answers) {
    StartWith(nullptr);
    if (HasFatalFailure()) return;
    for (const auto& request : work) own.push_back(SendFull(*request).get());
    const llm::SpeculationCounts counts = engine_->stats().client_drafts;
    EXPECT_GT(counts.num_accepted, 0);
    EXPECT_LT(counts.num_accepted, counts.num_drafted);
    engine_.reset();
  }
  for (size_t i = 0; i < work.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(answers[0][i].error, "");
    EXPECT_EQ(answers[0][i], answers[1][i]);
    if (work[i]->sampling.is_greedy()) {
      EXPECT_EQ(answers[0][i].ids, alone[i].ids);
    }
  }
}

TEST_F(ShardedSpeculationTest, AModelOnTheFirstGpuDrafts) {
  const std::string other = cpu::testing::FindTiny("mistral-swa");
  if (other.empty()) GTEST_SKIP() << "no test data for mistral-swa";
  const Work work = DrawWork(40);
  const std::vector<FullAnswer> alone = AnswerAlone(work);
  if (HasFatalFailure()) return;
  for (const std::string& folder : {directory_, other}) {
    SCOPED_TRACE(folder);
    std::unique_ptr<GpuExecutor> draft_executor = MakeDraftExecutor(folder);
    ASSERT_NE(draft_executor, nullptr);
    ExpectTheSameAnswersWith(std::make_shared<llm::ModelDrafter>(std::move(draft_executor), 0.0f),
                             work, alone);
    if (HasFatalFailure()) return;
    if (folder == directory_) {  // the model itself
      EXPECT_GT(engine_->stats().speculation.num_accepted, 0);
    }
    engine_.reset();
  }
}

// A model whose hidden states are kept norms the inputs of these layers by another kernel, so that
// its answers are compared with those of such a model.
TEST_F(ShardedSpeculationTest, AnEagle3HeadOnTheFirstGpuDrafts) {
  const cpu::testing::RandomEagle3Head random_head(3);
  const llm::Checkpoint target = std::move(*llm::Checkpoint::Open(directory_));
  const auto read_head = [&] {
    return llm::ReadEagle3Head(*random_head.checkpoint(), llm::ReadDecoder(target)->spec);
  };
  ASSERT_TRUE(read_head().ok()) << read_head().status().message();
  captured_ = read_head()->aux_layers;
  const Work work = DrawWork(40);
  const std::vector<FullAnswer> alone = AnswerAlone(work);
  if (HasFatalFailure()) return;
  UseLoad();
  for (const bool makes_trees : {false, true}) {
    SCOPED_TRACE(makes_trees);
    std::unique_ptr<ShardedExecutor> executor = MakeCapturing();
    ASSERT_NE(executor, nullptr);
    auto layer = Eagle3Layer::Create(std::move(*read_head()), HeadOptions(executor->rank(0), 16));
    ASSERT_TRUE(layer.ok()) << layer.status().message();
    auto drafter = std::make_shared<llm::Eagle3Drafter>(std::move(*layer), 0.0f);
    if (makes_trees) drafter->DraftTrees({}, 0.0f);
    max_draft_tokens_ = drafter->default_max_drafts();
    StartOn(std::move(executor), std::move(drafter));
    ExpectTheSameAnswers(work, alone);
    engine_.reset();
    if (HasFailure()) return;
  }
}

// More than 128 rows: an all-reduce with a norm would leave each GPU only its share of the
// residual.
TEST_F(ShardedSpeculationTest, HiddenStatesAreThoseOfOneGpu) {
  constexpr int32_t kRows = 300;
  options_.is_batch_invariant = false;
  const llm::Checkpoint checkpoint = std::move(*llm::Checkpoint::Open(directory_));
  GpuExecutorOptions options = Options(checkpoint);
  options.max_num_tokens = kRows;
  auto one = GpuExecutor::Create(ReadModel(checkpoint), options);
  ASSERT_TRUE(one.ok()) << one.status().message();
  auto two = ShardedExecutor::Create(ReadModel(checkpoint), options, testing::kPair);
  ASSERT_TRUE(two.ok()) << two.status().message();
  std::vector<int32_t> table((*one)->limits().num_blocks), tokens(kRows);
  std::iota(table.begin(), table.end(), 0);
  for (int32_t i = 0; i < kRows; ++i) tokens[i] = i * 37 % 509;
  const llm::SamplingParams greedy;
  std::vector<std::vector<float>> hidden;
  for (llm::Executor* executor :
       {static_cast<llm::Executor*>(one->get()), static_cast<llm::Executor*>(two->get())}) {
    const std::vector<int32_t> layers = {3, 0, 1, 2};
    const Status captured = executor->CaptureHiddenStates(layers, llm::HiddenStatePlace::kHost);
    ASSERT_TRUE(captured.ok()) << captured.message();
    for (const int32_t num_tokens : {kRows - 1, 1}) {  // a prompt, then a decode step
      llm::StepBatch batch;
      batch.token_ids.assign(tokens.begin(), tokens.begin() + num_tokens);
      llm::BatchEntry& entry = batch.entries.emplace_back();
      entry.num_tokens = num_tokens;
      entry.num_cached = num_tokens == 1 ? kRows - 1 : 0;
      entry.num_logits = 1;
      entry.samples = true;
      entry.sampling = {&greedy, tokens, 0, {}};
      entry.block_table = table;
      entry.returns_hidden_states = true;
      ASSERT_TRUE(executor->Submit(batch).ok());
      auto result = executor->Collect();
      ASSERT_TRUE(result.ok()) << result.status().message();
      ASSERT_EQ(result->hidden_states.size(), 1u);
      hidden.push_back(std::move(result->hidden_states[0]));
    }
  }
  for (size_t i = 0; i < 2; ++i) {
    ASSERT_EQ(hidden[2 + i].size(), hidden[i].size());
    EXPECT_LT(RelativeError(hidden[2 + i], hidden[i]), 4e-2) << i;
  }
}

}  // namespace
}  // namespace nereid::gpu
