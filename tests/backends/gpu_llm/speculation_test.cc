// Draft tokens on the GPU change no answer: with batch invariance, requests with random parameters
// get the same ids, log probabilities and likely tokens, bit for bit, with and without speculation,
// whatever the drafts are, in chunks, behind cached prefixes, and with cancellations.
#include "tests/backends/gpu_llm/speculation_fixture.h"

namespace nereid::gpu {
namespace {

using llm::testing::CarelessShape;
using testing::FullAnswer;
using testing::GpuSpeculationTest;
using testing::Work;

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
      const auto drafter = MakeDrafter(GetParam());
      ExpectTheSameAnswersWith(drafter, work, alone, adapts_length);
      if (HasFatalFailure()) return;
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
  std::vector<std::future<FullAnswer>> sent;
  for (const auto& request : work) sent.push_back(SendFull(*request));
  std::vector<FullAnswer> answers;
  for (size_t i = 0; i < work.size(); ++i) {
    answers.push_back(sent[i].get());
    EXPECT_EQ(answers[i].error, alone[i].error);
  }
  EXPECT_GE(NumEqual(answers, alone), work.size() * 3 / 4);
  EXPECT_GT(engine_->stats().counts.num_preemptions, 0);
  EXPECT_GT(engine_->stats().speculation.num_accepted, 0);
}

// Fused steps, graphs and items of several tokens.
TEST_P(DraftShapeTest, AnswersStayTheSameWithoutBatchInvariance) {
  for (const bool fuses : {true, false}) {
    options_.fuses_decode = fuses;
    options_.steps_before_recording = 1;
    max_cache_tokens_ = 4096;
    (void)MakeExecutor();
    const Work work = DrawGreedyWork(40);
    const std::vector<FullAnswer> alone = AnswerAlone(work);
    if (HasFatalFailure()) return;
    StartWith(MakeDrafter(GetParam()));
    if (HasFatalFailure()) return;
    std::vector<std::future<FullAnswer>> sent;
    for (size_t i = 0; i < work.size(); ++i) {
      sent.push_back(SendFull(*work[i]));
      if (i < work.size() / 2) sent.back().wait();  // alone, then together
    }
    std::vector<FullAnswer> answers;
    for (auto& answer : sent) answers.push_back(answer.get());
    ExpectMostlyTheSame(answers, alone);
    EXPECT_GT(engine_->stats().speculation.num_accepted, 0);
    engine_.reset();
  }
}

}  // namespace
}  // namespace nereid::gpu
