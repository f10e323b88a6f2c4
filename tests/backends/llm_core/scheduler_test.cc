// The scheduler compared with a sequential model. The tokens must be the same whatever arrives, is
// cancelled or is preempted. No block may be lost, and no request may starve.
#include "backends/llm_core/engine/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <random>

#include "backends/llm_core/lora/lora_adapter.h"
#include "tests/backends/llm_core/fake_executor.h"
#include "tests/backends/llm_core/scheduled_work.h"
#include "tests/support/sanitizer.h"

namespace nereid::llm {
namespace {

using testing::ExpectSequentialTokens;
using testing::FakeExecutor;
using ::testing::HasSubstr;
using testing::MakeSequence;
using testing::NextToken;
using testing::SmallLimits;
using testing::Step;
using testing::Work;

struct SchedulerMode {
  const char* name;
  CapacityPolicy policy = CapacityPolicy::kGuaranteedNoEvict;
  bool chunked = true;
  bool prefix_cache = false;
  int32_t window = 0;
  int32_t sinks = 0;
  bool copies = true;
  int32_t long_rope_positions = 0;
  int32_t mixed = 0;
  int32_t dynamic_rope_positions = 0;
};

class SchedulerPropertyTest : public ::testing::TestWithParam<SchedulerMode> {
 protected:
  int Pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

  // Prompts often share a prefix.
  Work RandomWork() {
    Work work;
    const int shared = Pick(0, 2) == 0 ? 0 : Pick(1, 30);
    const int family = Pick(0, 2);
    for (int i = 0; i < shared; ++i) work.prompt.push_back(family * 100 + i);
    for (int own = Pick(shared > 0 ? 0 : 1, 12); own > 0; --own)
      work.prompt.push_back(Pick(0, 999));
    work.max_tokens = Pick(1, 24);
    work.num_sequences = Pick(0, 4) == 0 ? Pick(2, 4) : 1;
    if (GetParam().long_rope_positions > 0) work.num_sequences = 1;
    work.priority = Pick(0, 2);
    work.salt = static_cast<uint64_t>(Pick(0, 1));
    return work;
  }

  void Run(uint32_t seed) {
    random_.seed(seed);
    ExecutorLimits limits = SmallLimits();
    limits.num_blocks = Pick(4, 60);
    limits.attention_window = GetParam().window;
    limits.num_sink_tokens = GetParam().sinks;
    limits.long_rope_positions = GetParam().long_rope_positions;
    limits.dynamic_rope_positions = GetParam().dynamic_rope_positions;
    const ExecutorFeatures features = {.block_copies = GetParam().copies};
    SchedulerOptions options;
    options.policy = GetParam().policy;
    options.chunked_prefill = GetParam().chunked;
    options.mixed_step_tokens = GetParam().mixed;
    options.prefix_cache = GetParam().prefix_cache;
    options.steps_per_priority = 50;
    Scheduler scheduler(options, limits, features);
    FakeExecutor executor(limits, features);
    std::vector<std::unique_ptr<Sequence>> done;
    int to_come = 40, accepted = 0, cancelled = 0, steps = 0;
    while (to_come > 0 || !scheduler.is_empty()) {
      for (int n = Pick(0, 3); n > 0 && to_come > 0; --n, --to_come) {
        const Work work = RandomWork();
        const auto num_prompt = static_cast<int64_t>(work.prompt.size());
        if (!scheduler.CheckFits(num_prompt, work.max_tokens, work.num_sequences).ok()) continue;
        scheduler.Add(MakeSequence(work));
        accepted += work.num_sequences;
      }
      if (Pick(0, 19) == 0) {
        const uint64_t key = static_cast<uint64_t>(Pick(0, 5));
        const auto removed = scheduler.Remove([&](const Sequence& sequence) {
          // Selects all sequences of a request at once.
          return sequence.request->prompt.size() % 6 == key;
        });
        for (const auto& sequence : removed) {
          cancelled += 1 + static_cast<int>(sequence->siblings.size());
        }
      }
      if (scheduler.is_empty()) continue;
      Step(scheduler, executor, done);
      if (HasFatalFailure()) return;
      ASSERT_LT(++steps, 20000) << "starves";
    }
    EXPECT_EQ(static_cast<int>(done.size()) + cancelled, accepted);
    for (const auto& sequence : done) ExpectSequentialTokens(*sequence, limits);
    EXPECT_EQ(scheduler.blocks().num_used(), 0);
    EXPECT_TRUE(scheduler.CheckInvariants().ok());
    if (GetParam().policy == CapacityPolicy::kGuaranteedNoEvict &&
        GetParam().long_rope_positions == 0) {
      EXPECT_EQ(scheduler.counts().num_preemptions, 0);
    }
    EXPECT_EQ(scheduler.counts().num_paused, 0);
    num_reused_ += scheduler.counts().num_reused_blocks;
    num_preemptions_ += scheduler.counts().num_preemptions;
  }

  std::mt19937 random_;
  int64_t num_reused_ = 0;
  int64_t num_preemptions_ = 0;
};

TEST_P(SchedulerPropertyTest, GivesTheTokensOfASequentialRun) {
  for (uint32_t seed = 0; seed < (kHasSanitizer ? 12 : 60); ++seed) {
    SCOPED_TRACE(seed);
    Run(seed);
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(num_reused_ > 0, GetParam().prefix_cache);
  EXPECT_EQ(num_preemptions_ > 0, GetParam().policy == CapacityPolicy::kMaxUtilization ||
                                      GetParam().long_rope_positions > 0);
}

constexpr auto kSchedulerEvict = CapacityPolicy::kMaxUtilization;

INSTANTIATE_TEST_SUITE_P(
    Modes, SchedulerPropertyTest,
    ::testing::Values(
        SchedulerMode{.name = "NoEvict"}, SchedulerMode{.name = "NoEvictWhole", .chunked = false},
        SchedulerMode{.name = "NoEvictPrefix", .prefix_cache = true},
        SchedulerMode{.name = "NoEvictMixed", .mixed = 3},
        SchedulerMode{.name = "EvictPrefixMixed",
                      .policy = kSchedulerEvict,
                      .prefix_cache = true,
                      .mixed = 3},
        SchedulerMode{.name = "NoEvictPrefixNoCopies", .prefix_cache = true, .copies = false},
        SchedulerMode{.name = "NoEvictWindow", .window = 10},
        SchedulerMode{.name = "NoEvictWindowSinks", .window = 13, .sinks = 5},
        SchedulerMode{.name = "NoEvictWindowPrefix", .prefix_cache = true, .window = 10},
        SchedulerMode{.name = "NoEvictLong", .long_rope_positions = 20},
        SchedulerMode{.name = "NoEvictLongPrefix", .prefix_cache = true, .long_rope_positions = 20},
        SchedulerMode{.name = "EvictLongPrefixWindow",
                      .policy = kSchedulerEvict,
                      .prefix_cache = true,
                      .window = 13,
                      .long_rope_positions = 17},
        SchedulerMode{
            .name = "NoEvictDynamicPrefix", .prefix_cache = true, .dynamic_rope_positions = 16},
        SchedulerMode{.name = "EvictDynamicPrefix",
                      .policy = kSchedulerEvict,
                      .prefix_cache = true,
                      .dynamic_rope_positions = 16},
        SchedulerMode{.name = "Evict", .policy = kSchedulerEvict},
        SchedulerMode{.name = "EvictWhole", .policy = kSchedulerEvict, .chunked = false},
        SchedulerMode{.name = "EvictPrefix", .policy = kSchedulerEvict, .prefix_cache = true},
        SchedulerMode{.name = "EvictPrefixNoCopies",
                      .policy = kSchedulerEvict,
                      .prefix_cache = true,
                      .copies = false},
        SchedulerMode{.name = "EvictWindow", .policy = kSchedulerEvict, .window = 10},
        SchedulerMode{.name = "EvictWindowPrefixSinks",
                      .policy = kSchedulerEvict,
                      .prefix_cache = true,
                      .window = 13,
                      .sinks = 5}),
    [](const auto& info) { return info.param.name; });

TEST(SchedulerTest, MaxUtilizationPreemptsAndRecomputes) {
  ExecutorLimits limits = SmallLimits();
  limits.num_blocks = 8;
  Scheduler scheduler({.policy = kSchedulerEvict}, limits);
  FakeExecutor executor(limits);
  std::vector<std::unique_ptr<Sequence>> done;
  for (int i = 0; i < 3; ++i) scheduler.Add(MakeSequence({i, 1, 2, 3}, 20));
  while (!scheduler.is_empty()) Step(scheduler, executor, done);
  EXPECT_GT(scheduler.counts().num_preemptions, 0);
  ASSERT_EQ(done.size(), 3u);
  for (const auto& sequence : done) ExpectSequentialTokens(*sequence, limits);
}

TEST(SchedulerTest, ASequenceThatOutgrowsTheShortRopeIsRecomputedOnce) {
  ExecutorLimits limits = SmallLimits();
  limits.long_rope_positions = 8;
  Scheduler scheduler({}, limits);
  FakeExecutor executor(limits);
  std::vector<std::unique_ptr<Sequence>> done;
  scheduler.Add(MakeSequence(TokenIds(5, 1), 8));
  scheduler.Add(MakeSequence(TokenIds(9, 2), 3));  // exceeds the limit from its first token on
  while (!scheduler.is_empty()) Step(scheduler, executor, done);
  EXPECT_EQ(scheduler.counts().num_preemptions, 1);
  // The first request: 5 prompt tokens and 3 decoded ones, then 9 recomputed at once and 3 more.
  EXPECT_EQ(executor.num_tokens, 5 + 3 + 9 + 3 + 9 + 2);
  for (const auto& sequence : done) ExpectSequentialTokens(*sequence, limits);
}

TEST(SchedulerTest, DecodesContinueWhileALongPromptIsComputedInChunks) {
  Scheduler scheduler({}, SmallLimits());
  FakeExecutor executor(SmallLimits());
  std::vector<std::unique_ptr<Sequence>> done;
  scheduler.Add(MakeSequence({1, 2}, 20));
  Step(scheduler, executor, done);
  scheduler.Add(MakeSequence(TokenIds(40, 7), 2));
  for (int step = 0; step < 3; ++step) {
    StepBatch batch;
    scheduler.Schedule(batch);
    ASSERT_EQ(batch.entries.size(), 2u);
    EXPECT_EQ(batch.entries[0].num_tokens, 1);
    EXPECT_EQ(batch.entries[1].num_tokens, step < 2 ? 15 : 10);
    EXPECT_EQ(batch.entries[1].samples, step == 2);
    ASSERT_TRUE(executor.Submit(batch).ok());
    ASSERT_TRUE(executor.Collect().ok());
    scheduler.MarkComputed();
    for (size_t i = 0; i < batch.entries.size(); ++i) {
      if (batch.entries[i].samples) scheduler.scheduled()[i]->token_ids.push_back(1);
    }
  }
}

// Prompt tokens in each step: beside a decoding sequence, and without it once it ended.
TEST(SchedulerTest, PromptChunksAreSmallerBesideDecodingSequences) {
  ExecutorLimits limits = SmallLimits();
  limits.num_blocks = 200;
  limits.max_positions = 400;
  limits.max_num_tokens = 64;
  const auto chunks = [&](int32_t num_prompt) {
    Scheduler scheduler({.mixed_step_tokens = 9}, limits);
    FakeExecutor executor(limits);
    std::vector<std::unique_ptr<Sequence>> done;
    scheduler.Add(MakeSequence({1, 2}, 5));  // one token with its prompt, four beside the other's
    Step(scheduler, executor, done);
    scheduler.Add(MakeSequence(TokenIds(num_prompt, 7), 1));
    std::vector<int32_t> sizes;
    while (!scheduler.is_empty()) {
      Step(scheduler, executor, done);
      if (scheduler.counts().num_prefill_tokens > 0)
        sizes.push_back(scheduler.counts().num_prefill_tokens);
    }
    EXPECT_TRUE(scheduler.CheckInvariants().ok());
    return sizes;
  };
  EXPECT_THAT(chunks(20), ::testing::ElementsAre(8, 8, 4));
  // An eighth of the waiting tokens as long as that exceeds nine; the last two steps have no
  // decoding sequence.
  EXPECT_THAT(chunks(200), ::testing::ElementsAre(24, 21, 18, 16, 64, 57));
}

// The number of prompt tokens beside `num_decode` sequences, with mixed_step_tokens `mixed`.
int32_t PromptTokensBeside(int32_t num_decode, int32_t mixed) {
  ExecutorLimits limits = SmallLimits();
  limits.num_blocks = 200;
  Scheduler scheduler({.mixed_step_tokens = mixed}, limits);
  FakeExecutor executor(limits);
  std::vector<std::unique_ptr<Sequence>> done;
  for (int32_t i = 0; i < num_decode; ++i) scheduler.Add(MakeSequence({1, i}, 20));
  Step(scheduler, executor, done);
  scheduler.Add(MakeSequence(TokenIds(10, 7), 2));
  Step(scheduler, executor, done);
  EXPECT_EQ(scheduler.counts().num_decode_sequences, num_decode);
  return scheduler.counts().num_prefill_tokens;
}

TEST(SchedulerTest, PromptsGetAtLeastHalfOfAStep) {
  EXPECT_EQ(PromptTokensBeside(2, 6), 4);  // the rest of the step
  EXPECT_EQ(PromptTokensBeside(4, 6), 4);
  EXPECT_EQ(PromptTokensBeside(2, 3), 2);
}

// A step with many decoding sequences takes long in any case.
TEST(SchedulerTest, PromptsGetAsManyTokensAsSequencesDecode) {
  EXPECT_EQ(PromptTokensBeside(5, 6), 5);
  EXPECT_EQ(PromptTokensBeside(4, 2), 4);
}

TEST(SchedulerTest, PromptsThatMayNotBeSplitAreNotDelayed) {
  ExecutorLimits limits = SmallLimits();
  Scheduler scheduler({.chunked_prefill = false, .mixed_step_tokens = 4}, limits);
  FakeExecutor executor(limits);
  std::vector<std::unique_ptr<Sequence>> done;
  scheduler.Add(MakeSequence({1, 2}, 20));
  Step(scheduler, executor, done);
  scheduler.Add(MakeSequence(TokenIds(12, 7), 2));
  Step(scheduler, executor, done);
  EXPECT_EQ(scheduler.counts().num_prefill_tokens, 12);
}

TEST(SchedulerTest, WaitingRequestsDoNotOvertake) {
  ExecutorLimits limits = SmallLimits();
  limits.num_blocks = 10;
  Scheduler scheduler({}, limits);
  FakeExecutor executor(limits);
  std::vector<std::unique_ptr<Sequence>> done;
  scheduler.Add(MakeSequence({1, 2, 3, 4}, 16));    // 5 blocks
  scheduler.Add(MakeSequence(TokenIds(24, 1), 4));  // 7 blocks: must wait
  scheduler.Add(MakeSequence({5}, 3));              // 1 block: would fit
  Step(scheduler, executor, done);
  EXPECT_EQ(scheduler.counts().num_running, 1);
  EXPECT_EQ(scheduler.counts().num_waiting, 2);
  while (!scheduler.is_empty()) Step(scheduler, executor, done);
  EXPECT_EQ(done[0]->num_prompt, 4);
}

TEST(SchedulerTest, RejectsRequestsThatCanNeverFitAndNamesTheNumbers) {
  ExecutorLimits limits = SmallLimits();
  limits.num_blocks = 10;
  const Scheduler scheduler({.chunked_prefill = false}, limits);
  EXPECT_TRUE(scheduler.CheckFits(10, 30).ok());
  EXPECT_THAT(scheduler.CheckFits(64, 1).message(),
              HasSubstr("prompt of 64 tokens: the model's limit is 64"));
  EXPECT_THAT(scheduler.CheckFits(60, 5).message(),
              HasSubstr("make 65 tokens, over the model's limit of 64"));
  EXPECT_THAT(scheduler.CheckFits(10, 31).message(),
              HasSubstr("need 11 KV cache blocks of 4 tokens; the cache has 10"));
  EXPECT_THAT(scheduler.CheckFits(17, 1).message(), HasSubstr("over the 16 tokens of one step"));
  EXPECT_EQ(scheduler.FittingTokens(10, 5), 5);
  EXPECT_EQ(scheduler.FittingTokens(10, INT32_MAX), 30);  // the cache is smaller than the context
  EXPECT_EQ(scheduler.FittingTokens(64, INT32_MAX), 1);   // CheckFits then names the prompt
}

TEST(SchedulerTest, RejectsTooManySequencesAndNamesTheNumbers) {
  ExecutorLimits limits = SmallLimits();
  limits.num_blocks = 10;
  const Scheduler scheduler({}, limits);
  EXPECT_TRUE(scheduler.CheckFits(9, 7, 4).ok());  // 2 shared blocks, 2 per sequence
  EXPECT_EQ(scheduler.FittingTokens(9, 64, 4), 7);
  EXPECT_THAT(scheduler.CheckFits(9, 7, 5).message(),
              HasSubstr("5 sequences, need 12 KV cache blocks of 4 tokens; the cache has 10"));
  EXPECT_THAT(scheduler.CheckFits(1, 1, 7).message(),
              HasSubstr("7 sequences: at most 6 can run at a time"));
}

TEST(SchedulerTest, AWindowAdmitsRequestsThatWouldNotFitWithoutIt) {
  ExecutorLimits limits = SmallLimits();
  limits.num_blocks = 8;
  limits.max_num_tokens = 8;
  EXPECT_FALSE(Scheduler({}, limits).CheckFits(20, 40).ok());
  limits.attention_window = 8;
  Scheduler scheduler({}, limits);
  ASSERT_TRUE(scheduler.CheckFits(20, 40).ok());
  FakeExecutor executor(limits);
  std::vector<std::unique_ptr<Sequence>> done;
  scheduler.Add(MakeSequence(TokenIds(20, 3), 40));
  while (!scheduler.is_empty()) Step(scheduler, executor, done);
  ExpectSequentialTokens(*done[0], limits);
}

TEST(SchedulerTest, APrefixIsComputedOncePerSalt) {
  ExecutorLimits limits = SmallLimits();
  Scheduler scheduler({.prefix_cache = true}, limits);
  FakeExecutor executor(limits);
  std::vector<std::unique_ptr<Sequence>> done;
  TokenIds prompt(14);
  std::iota(prompt.begin(), prompt.end(), 1);
  for (const uint64_t salt : {1, 1, 2}) {
    scheduler.Add(MakeSequence(Work{.prompt = prompt, .max_tokens = 3, .salt = salt}));
    while (!scheduler.is_empty()) Step(scheduler, executor, done);
  }
  EXPECT_EQ(done[0]->num_reused_blocks, 0);
  EXPECT_EQ(done[1]->num_reused_blocks, 3);  // 12 of the 14 tokens
  EXPECT_EQ(done[2]->num_reused_blocks, 0);
  EXPECT_EQ(executor.num_tokens, 16 + 4 + 16);
  for (const auto& sequence : done) ExpectSequentialTokens(*sequence, limits);
  EXPECT_EQ(done[0]->token_ids, done[1]->token_ids);
}

TEST(SchedulerTest, APrefixIsComputedOncePerAdapter) {
  const ExecutorLimits limits = SmallLimits();
  Scheduler scheduler({.prefix_cache = true}, limits);
  FakeExecutor executor(limits);
  std::vector<std::unique_ptr<Sequence>> done;
  const auto one = LoraBuilder("one", 1).Finish();
  const auto same_name = LoraBuilder("one", 1).Finish();
  TokenIds prompt(14);
  std::iota(prompt.begin(), prompt.end(), 1);
  for (const auto& adapter : {std::shared_ptr<const LoraAdapter>(), one, same_name, one}) {
    scheduler.Add(MakeSequence(Work{.prompt = prompt, .max_tokens = 3, .adapter = adapter}));
    while (!scheduler.is_empty()) Step(scheduler, executor, done);
  }
  const auto reused = [&](size_t i) { return done[i]->num_reused_blocks; };
  EXPECT_EQ((std::vector{reused(0), reused(1), reused(2), reused(3)}), (std::vector{0, 0, 0, 3}));
}

TEST(SchedulerTest, AStepListsEachAdapterOnce) {
  Scheduler scheduler({}, SmallLimits());
  const auto one = LoraBuilder("one", 1).Finish(), two = LoraBuilder("two", 1).Finish();
  for (const auto& adapter : {two, std::shared_ptr<const LoraAdapter>(), one, two}) {
    scheduler.Add(MakeSequence(Work{.prompt = {1, 2}, .adapter = adapter}));
  }
  StepBatch batch;
  scheduler.Schedule(batch);
  ASSERT_EQ(batch.entries.size(), 4u);
  EXPECT_EQ(batch.adapters, (std::vector{two, one}));
  const auto adapter = [&](size_t i) { return batch.entries[i].adapter; };
  EXPECT_EQ((std::vector{adapter(0), adapter(1), adapter(2), adapter(3)}),
            (std::vector{0, kNoAdapter, 1, 0}));
}

// Memory for two adapters of 10 bytes: the third one waits, and sequences whose adapters run or who
// have none overtake it.
TEST(SchedulerTest, ASequenceWaitsForMemoryOfItsAdapter) {
  ExecutorLimits limits = SmallLimits();
  limits.adapter_bytes = 20;
  Scheduler scheduler({}, limits);
  FakeExecutor executor(limits);
  std::vector<std::shared_ptr<const LoraAdapter>> adapters = {nullptr};
  for (const char* name : {"one", "two", "three"})
    adapters.push_back(LoraBuilder(name, 1).Finish());
  std::vector<const GenerationRequest*> requests;
  const auto add = [&](int adapter, int32_t max_tokens) {
    auto sequence = MakeSequence(
        Work{.prompt = {1, 2}, .max_tokens = max_tokens, .adapter = adapters[adapter]});
    sequence->request->adapter_bytes = adapter == 0 ? 0 : 10;
    requests.push_back(sequence->request.get());
    scheduler.Add(std::move(sequence));
  };
  for (const auto& [adapter, max_tokens] : {std::pair{1, 3}, {2, 8}, {3, 2}, {2, 2}, {0, 2}})
    add(adapter, max_tokens);
  std::vector<std::unique_ptr<Sequence>> done;
  const auto is_running = [&](size_t i) {
    return std::any_of(scheduler.running().begin(), scheduler.running().end(),
                       [&](const auto& running) { return running->request.get() == requests[i]; });
  };
  Step(scheduler, executor, done);
  EXPECT_TRUE(is_running(0) && is_running(1) && is_running(3) && is_running(4));
  EXPECT_FALSE(is_running(2));
  while (!scheduler.is_empty()) Step(scheduler, executor, done);
  EXPECT_EQ(done.size(), 5u);
  EXPECT_TRUE(scheduler.CheckInvariants().ok());
}

// Requests of the adapters that run keep coming. They do not keep another one from its turn.
TEST(SchedulerTest, ASequenceIsNotOvertakenForEver) {
  ExecutorLimits limits = SmallLimits();
  limits.adapter_bytes = 10;
  Scheduler scheduler({}, limits);
  FakeExecutor executor(limits);
  const auto one = LoraBuilder("one", 1).Finish(), two = LoraBuilder("two", 1).Finish();
  const auto add = [&](const auto& adapter) {
    auto sequence = MakeSequence(Work{.prompt = {1, 2}, .max_tokens = 3, .adapter = adapter});
    sequence->request->adapter_bytes = 10;
    scheduler.Add(std::move(sequence));
  };
  std::vector<std::unique_ptr<Sequence>> done;
  add(one);
  Step(scheduler, executor, done);
  add(two);
  const auto has_ended = [&] {
    return std::any_of(done.begin(), done.end(),
                       [&](const auto& sequence) { return sequence->request->adapter == two; });
  };
  for (int step = 0; step < 1000 && !has_ended(); ++step) {
    add(one);
    Step(scheduler, executor, done);
  }
  EXPECT_TRUE(has_ended());
}

TEST(SchedulerTest, AnExecutorWithoutAdaptersRefusesThemByName) {
  GenerationRequest request;
  request.prompt = {1};
  request.stop.max_tokens = 1;
  request.adapter = LoraBuilder("style", 1).Finish();
  EXPECT_EQ(CheckRequest(request, SmallLimits(), {}).message(),
            "LoRA adapter 'style': this backend's executor does not support LoRA adapters");
  EXPECT_TRUE(CheckRequest(request, SmallLimits(), {.adapters = true}).ok());
}

TEST(SchedulerTest, APrefixIsReusedWhileItsFirstSequenceStillRuns) {
  ExecutorLimits limits = SmallLimits();
  limits.num_blocks = 8;
  Scheduler scheduler({.prefix_cache = true}, limits);
  FakeExecutor executor(limits);
  std::vector<std::unique_ptr<Sequence>> done;
  const TokenIds prompt(13, 9);
  scheduler.Add(MakeSequence(prompt, 7));  // 5 blocks
  Step(scheduler, executor, done);
  scheduler.Add(MakeSequence(prompt, 7));  // 5 more would not fit; 2 beside 3 shared ones do
  Step(scheduler, executor, done);
  EXPECT_EQ(scheduler.counts().num_running, 2);
  while (!scheduler.is_empty()) Step(scheduler, executor, done);
  for (const auto& sequence : done) ExpectSequentialTokens(*sequence, limits);
}

TEST(SchedulerTest, SequencesOfOneRequestShareItsPrompt) {
  for (const bool copies : {true, false}) {
    ExecutorLimits limits = SmallLimits();
    limits.num_blocks = 3 + 3 * 2;
    Scheduler scheduler({}, limits, {.block_copies = copies});
    FakeExecutor executor(limits);
    std::vector<std::unique_ptr<Sequence>> done;
    // Each: 3 shared blocks, 2 of its own.
    scheduler.Add(MakeSequence(Work{TokenIds(14, 4), 6, 3}));
    while (!scheduler.is_empty()) Step(scheduler, executor, done);
    ASSERT_EQ(done.size(), 3u);
    for (const auto& sequence : done) ExpectSequentialTokens(*sequence, limits);
    EXPECT_NE(done[0]->token_ids, done[1]->token_ids);
    // Without block copies, the siblings recompute the last, partial block of the prompt.
    EXPECT_EQ(executor.num_tokens, copies ? 14 + 5 + 2 * 6 : 14 + 5 + 2 * (2 + 5));
  }
}

TEST(SchedulerTest, AHigherPriorityOvertakesWithoutStarvation) {
  ExecutorLimits limits = SmallLimits();
  limits.max_num_sequences = 1;
  Scheduler scheduler({.steps_per_priority = 20}, limits);
  FakeExecutor executor(limits);
  std::vector<std::unique_ptr<Sequence>> done;
  scheduler.Add(MakeSequence(Work{.prompt = {1}, .max_tokens = 2, .priority = 1}));
  int step = 0, num_before = -1;
  for (; num_before < 0 && step < 1000; ++step) {
    scheduler.Add(MakeSequence(Work{.prompt = {2}, .max_tokens = 2, .priority = 0}));
    Step(scheduler, executor, done);
    for (size_t i = 0; i < done.size(); ++i) {
      if (done[i]->token_ids[0] == 1) num_before = static_cast<int>(i);
    }
  }
  // Requests of the first 20 steps, and no later ones.
  EXPECT_GE(num_before, 19);
  EXPECT_LE(num_before, 22);
}

TEST(SchedulerTest, EndIdsAreBannedWithTheGreatestMinTokensToo) {
  for (const int32_t min_tokens : {2, std::numeric_limits<int32_t>::max()}) {
    Scheduler scheduler({}, SmallLimits());
    std::unique_ptr<Sequence> sequence = MakeSequence({1, 2, 3}, 2);
    sequence->request->stop.min_tokens = min_tokens;
    sequence->request->stop.end_ids = {7};
    scheduler.Add(std::move(sequence));
    StepBatch batch;
    scheduler.Schedule(batch);
    ASSERT_EQ(batch.entries.size(), 1u);
    EXPECT_EQ(batch.entries[0].sampling.banned_ids.size(), 1u) << min_tokens;
  }
}

}  // namespace
}  // namespace nereid::llm
