// Draft tokens on the GPU change no answer: with batch invariance, requests with random parameters
// get the same ids, log probabilities and likely tokens, bit for bit, with and without speculation,
// whatever the drafts are, in chunks, behind cached prefixes, and with cancellations.
#include "tests/backends/gpu_llm/speculation_fixture.h"

namespace nereid::gpu {
namespace {

using llm::testing::CarelessShape;
using testing::FullAnswer;
using testing::GpuSpeculationTest;

class DraftShapeTest : public GpuSpeculationTest,
                       public ::testing::WithParamInterface<CarelessShape> {};

TEST_P(DraftShapeTest, RequestsGetTheAnswersThatTheyGetWithoutDrafts) {
  options_.is_batch_invariant = true;
  for (const CacheFormat format : {CacheFormat::kBf16, CacheFormat::kFp8}) {
    options_.cache_format = format;
    scheduler_ = {};
    const auto work = ([&] {
      if (vocab_size_ == 0) (void)MakeExecutor();  // sets vocab_size_
      return DrawWork(60);
    })();
    const std::vector<FullAnswer> alone = AnswerAlone(work);
    if (HasFatalFailure()) return;
    for (const bool adapts_length : {false, true}) {
      scheduler_ = {};
      scheduler_.prefix_cache = true;
      scheduler_.mixed_step_tokens = 32;
      const auto drafter = MakeDrafter(GetParam());
      StartWith(drafter, adapts_length);
      if (HasFatalFailure()) return;
      std::vector<std::future<FullAnswer>> answers, disturbing;
      for (size_t i = 0; i < work.size(); ++i) {
        answers.push_back(SendFull(*work[i]));
        if (i % 4 == 0) disturbing.push_back(SendFull(*work[work.size() - 1 - i], 3));
        if (i % 8 == 7) answers[i - 4].wait();  // later requests arrive while others run
      }
      for (size_t i = 0; i < work.size(); ++i) {
        SCOPED_TRACE(i);
        const FullAnswer answer = answers[i].get();
        EXPECT_EQ(answer.ids, alone[i].ids);
        EXPECT_EQ(answer.log_probs, alone[i].log_probs);
        EXPECT_EQ(answer.top_ids, alone[i].top_ids);
        EXPECT_EQ(answer.finish, alone[i].finish);
        EXPECT_EQ(answer.error, alone[i].error);
      }
      for (auto& other : disturbing) other.wait();
      const llm::SpeculationCounts counts = engine_->stats().speculation;
      EXPECT_GT(counts.num_accepted, 0);
      if (GetParam() == CarelessShape::kTreesWithRows) {
        EXPECT_GT(drafter->num_observed(), 0);
      }
      if (!adapts_length) {
        EXPECT_GT(counts.num_drafted, counts.num_accepted);
      }
      engine_.reset();
      if (HasFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, DraftShapeTest,
                         ::testing::Values(CarelessShape::kChains, CarelessShape::kTrees,
                                           CarelessShape::kTreesWithRows),
                         [](const auto& info) {
                           return info.param == CarelessShape::kChains  ? "Chains"
                                  : info.param == CarelessShape::kTrees ? "Trees"
                                                                        : "TreesWithRows";
                         });

// A preempted sequence computes its output again as a prompt, whose values differ in their last
// bits. So some answers take another of two nearly equal tokens.
TEST_P(DraftShapeTest, PreemptedSequencesSpeculate) {
  options_.is_batch_invariant = true;
  (void)MakeExecutor();
  const auto work = DrawWork(60);
  const std::vector<FullAnswer> alone = AnswerAlone(work);
  if (HasFatalFailure()) return;
  scheduler_.policy = llm::CapacityPolicy::kMaxUtilization;
  max_cache_tokens_ = 12 * 64;
  StartWith(MakeDrafter(GetParam()));
  if (HasFatalFailure()) return;
  std::vector<std::future<FullAnswer>> answers;
  for (const auto& request : work) answers.push_back(SendFull(*request));
  size_t num_equal = 0;
  for (size_t i = 0; i < work.size(); ++i) {
    const FullAnswer answer = answers[i].get();
    EXPECT_EQ(answer.error, alone[i].error);
    num_equal += answer.ids == alone[i].ids ? 1 : 0;
  }
  EXPECT_GE(num_equal, work.size() * 3 / 4);
  EXPECT_GT(engine_->stats().counts.num_preemptions, 0);
  EXPECT_GT(engine_->stats().speculation.num_accepted, 0);
}

// Fused steps, graphs and items of several tokens: greedy answers are those without drafts but for
// near ties.
TEST_P(DraftShapeTest, AnswersStayTheSameWithoutBatchInvariance) {
  for (const bool fuses : {true, false}) {
    options_.fuses_decode = fuses;
    options_.steps_before_recording = 1;
    max_cache_tokens_ = 4096;
    (void)MakeExecutor();
    auto work = DrawWork(40);
    for (auto& request : work) request->sampling = {};
    const std::vector<FullAnswer> alone = AnswerAlone(work);
    if (HasFatalFailure()) return;
    StartWith(MakeDrafter(GetParam()));
    if (HasFatalFailure()) return;
    size_t num_equal = 0;
    std::vector<std::future<FullAnswer>> answers;
    for (size_t i = 0; i < work.size(); ++i) {
      answers.push_back(SendFull(*work[i]));
      if (i < work.size() / 2) answers.back().wait();  // alone, then together
    }
    for (size_t i = 0; i < work.size(); ++i)
      num_equal += answers[i].get().ids == alone[i].ids ? 1 : 0;
    EXPECT_GE(num_equal, work.size() / 3);  // the model is small, and near ties are frequent
    EXPECT_GT(engine_->stats().speculation.num_accepted, 0);
    EXPECT_GT(executor_->num_graph_steps(), 0);
    engine_.reset();
  }
}

}  // namespace
}  // namespace nereid::gpu
