// Requests with grammars, while the engine also runs others and the cache is too small for all:
// every output is the one that the grammar and the executor's logits give alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <map>
#include <random>

#include "backends/llm_core/engine/engine.h"
#include "backends/llm_core/grammar/grammar.h"
#include "backends/llm_core/grammar/matcher.h"
#include "backends/llm_core/sampling/philox.h"
#include "tests/backends/llm_core/careless_drafter.h"
#include "tests/backends/llm_core/fake_executor.h"

namespace nereid::llm {
namespace {

using grammar::Grammar;
using grammar::Matcher;
using grammar::Vocabulary;
using testing::FakeExecutor;
using ::testing::HasSubstr;
using testing::LogitsAfter;

constexpr int32_t kGrammarVocab = 40;
constexpr int32_t kEnd = 39;  // ends a generation
constexpr int32_t kTokenB = 1, kTokenOne = 3;

ExecutorLimits GrammarLimits() {
  return {.vocab_size = kGrammarVocab,
          .max_positions = 128,
          .max_num_sequences = 8,
          .max_num_tokens = 12,
          .block_size = 4,
          .num_blocks = 40};
}

std::shared_ptr<const Vocabulary> SmallVocabulary() {
  std::vector<std::string> tokens = {"a", "b",  "ab", "1",  "2",   "12",  "{", "}", "\"", ":", ",",
                                     " ", "ba", "a1", "b2", "\"a", "\":", "c", "-", ".",  "0", "3",
                                     "4", "5",  "6",  "7",  "8",   "9",   "e", "E", "+"};
  tokens.resize(kGrammarVocab);
  return Vocabulary::Make(tokens, {kEnd}).value();
}

std::shared_ptr<const Grammar> Regex(std::string_view regex) {
  return Grammar::FromRegex(regex, SmallVocabulary()).value();
}

std::shared_ptr<const Grammar> Schema(std::string_view schema) {
  return Grammar::FromJsonSchema(schema, SmallVocabulary()).value();
}

struct GuidedAnswer {
  std::map<int32_t, TokenIds> ids;  // by sequence
  std::map<int32_t, FinishReason> finish;
  std::map<int32_t, std::vector<float>> log_probs;
  int32_t end_id = -1;
  Status error;
};

class GuidedSink : public OutputSink {
 public:
  GuidedSink(int32_t num_sequences, std::promise<GuidedAnswer> promise)
      : num_open_(num_sequences), promise_(std::move(promise)) {}

  bool IsCancelled() const override { return false; }
  void OnOutput(const SequenceOutput& output) override {
    answer_.ids[output.sequence_index].assign(output.ids.begin(), output.ids.end());
    answer_.log_probs[output.sequence_index].assign(output.log_probs.begin(),
                                                    output.log_probs.end());
    if (output.finish == FinishReason::kNone) return;
    answer_.finish[output.sequence_index] = output.finish;
    answer_.end_id = output.end_id;
    if (--num_open_ == 0) promise_.set_value(std::move(answer_));
  }
  void OnError(const Status& status) override {
    answer_.error = status;
    promise_.set_value(std::move(answer_));
  }

 private:
  int32_t num_open_;
  std::promise<GuidedAnswer> promise_;
  GuidedAnswer answer_;
};

std::unique_ptr<GenerationRequest> MakeRequest(std::shared_ptr<const Grammar> grammar,
                                               int32_t max_tokens, const TokenIds& prompt = {5}) {
  auto request = std::make_unique<GenerationRequest>();
  request->prompt = prompt;
  request->grammar = std::move(grammar);
  request->stop.max_tokens = max_tokens;
  request->stop.end_ids = {kEnd};
  return request;
}

// The outputs and finish reasons of a request, computed without an engine.
GuidedAnswer Alone(const GenerationRequest& request) {
  GuidedAnswer answer;
  for (int32_t index = 0; index < request.num_sequences; ++index) {
    SamplingParams params = request.sampling;
    if (index > 0) params.seed = SequenceSeed(params.seed, static_cast<uint32_t>(index));
    Matcher matcher(request.grammar);
    TokenIds tokens = request.prompt;
    std::vector<uint32_t> mask(TokenMaskWords(kGrammarVocab));
    FinishReason finish = FinishReason::kNone;
    const auto num_prompt = static_cast<int32_t>(tokens.size());
    while (finish == FinishReason::kNone) {
      matcher.ComputeMask(mask);
      mask[kEnd / 32] &= ~(1u << (kEnd % 32));
      const auto num_output = static_cast<int32_t>(tokens.size()) - num_prompt;
      if (matcher.CanEnd() && num_output >= request.stop.min_tokens) {
        for (const int32_t id : request.stop.end_ids) mask[id / 32] |= 1u << (id % 32);
      }
      std::vector<float> logits = LogitsAfter(tokens, GrammarLimits());
      const SampledToken token = Sampler().Sample(logits, {&params, tokens, num_prompt, {}, mask});
      if (token.id == kNoToken || token.id == kEnd) {
        finish = FinishReason::kStop;
        break;
      }
      EXPECT_TRUE(matcher.AcceptToken(token.id));
      tokens.push_back(token.id);
      answer.log_probs[index].push_back(token.log_prob);
      if (matcher.MustEnd()) {
        finish = FinishReason::kStop;
      } else if (num_output + 1 == request.stop.max_tokens) {
        finish = FinishReason::kLength;
      }
    }
    answer.finish[index] = finish;
    answer.ids[index].assign(tokens.begin() + num_prompt, tokens.end());
  }
  return answer;
}

struct GrammarMode {
  const char* name;
  CapacityPolicy policy = CapacityPolicy::kGuaranteedNoEvict;
  bool prefix_cache = false;
  bool overlap = false;
  bool speculates = false, has_drafter = false;
  testing::CarelessShape shape = testing::CarelessShape::kChains;
};

class EngineGrammarTest : public ::testing::TestWithParam<GrammarMode> {
 protected:
  void Start(ExecutorFeatures features, const ExecutorLimits& limits = GrammarLimits()) {
    EngineOptions options;
    options.scheduler.policy = GetParam().policy;
    options.scheduler.prefix_cache = GetParam().prefix_cache;
    options.on_check = [](const Status& status) { EXPECT_TRUE(status.ok()) << status.message(); };
    if (GetParam().has_drafter) {
      options.speculation.drafter = std::make_shared<testing::CarelessDrafter>(
          5, kGrammarVocab, 3,
          [](std::span<const int32_t> tokens) {
            return testing::NextToken(tokens, GrammarLimits(), 0);
          },
          GetParam().shape);
      if (GetParam().shape != testing::CarelessShape::kChains) {
        options.speculation.max_draft_tokens = 20;
      }
      options.speculation.adapts_length = false;
    }
    engine_ = std::make_unique<Engine>(std::move(options),
                                       std::make_unique<FakeExecutor>(limits, features));
  }
  void SetUp() override {
    Start({.block_copies = true,
           .candidates = true,
           .token_masks = true,
           .draft_tokens = GetParam().speculates,
           .draft_masks = GetParam().speculates,
           .draft_trees = GetParam().speculates,
           .overlap = GetParam().overlap});
  }

  std::future<GuidedAnswer> Send(std::unique_ptr<GenerationRequest> request) {
    std::promise<GuidedAnswer> promise;
    std::future<GuidedAnswer> answer = promise.get_future();
    request->sink = std::make_unique<GuidedSink>(request->num_sequences, std::move(promise));
    const Status queued = engine_->Enqueue(request);
    EXPECT_TRUE(queued.ok()) << queued.message();
    return answer;
  }
  GuidedAnswer Complete(std::unique_ptr<GenerationRequest> request) {
    return Send(std::move(request)).get();
  }

  std::unique_ptr<Engine> engine_;
};

TEST_P(EngineGrammarTest, EveryOutputFollowsItsGrammar) {
  const std::vector<std::shared_ptr<const Grammar>> grammars = {
      Regex("(ab|a1)*b[12]{3}"),
      Regex("[ab]+"),
      Schema(R"({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"],
                 "additionalProperties": false})"),
      Schema(R"({"enum": ["a", "ab", 12, -1.2, {}]})"),
  };
  std::mt19937 random(3);
  std::vector<GuidedAnswer> expected;
  std::vector<std::future<GuidedAnswer>> answers;
  const TokenIds shared = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  for (int i = 0; i < 60; ++i) {
    TokenIds prompt = shared;
    prompt.resize(1 + random() % 9);
    while (random() % 8 > 0) prompt.push_back(static_cast<int32_t>(random() % kGrammarVocab));
    auto request = MakeRequest(grammars[random() % grammars.size()],
                               static_cast<int32_t>(1 + random() % 20), prompt);
    request->num_sequences = static_cast<int32_t>(1 + random() % 3);
    request->stop.min_tokens = static_cast<int32_t>(random() % 4);
    if (random() % 2 == 0) {
      request->sampling.top_p = 1.0f;
      request->sampling.temperature = 2.0f;
      request->sampling.seed = random();
    }
    if (random() % 4 == 0) request->sampling.repetition_penalty = 1.5f;
    request->sampling.returns_log_probs = true;
    expected.push_back(Alone(*request));
    answers.push_back(Send(std::move(request)));
    if (random() % 2 == 0) {  // another one without a grammar
      auto plain = MakeRequest(nullptr, static_cast<int32_t>(1 + random() % 20));
      plain->stop.end_ids.clear();
      (void)Send(std::move(plain));
    }
  }
  for (size_t i = 0; i < answers.size(); ++i) {
    const GuidedAnswer answer = answers[i].get();
    ASSERT_TRUE(answer.error.ok()) << answer.error.message();
    EXPECT_EQ(answer.ids, expected[i].ids) << i;
    EXPECT_EQ(answer.finish, expected[i].finish) << i;
    EXPECT_EQ(answer.log_probs, expected[i].log_probs) << i;
  }
  // Text that a grammar forces was verified, and so were a drafter's drafts that it allows.
  EXPECT_EQ(engine_->stats().speculation.num_accepted > 0, GetParam().speculates);
}

// A row of a large step takes time of its own, so that forced text is not proposed there.
TEST_P(EngineGrammarTest, ForcedTextIsProposedInSmallStepsOnly) {
  if (!GetParam().speculates || GetParam().has_drafter) GTEST_SKIP();
  for (const int32_t num_sequences : {1, 32}) {
    ExecutorLimits limits = GrammarLimits();
    limits.max_num_sequences = 32;
    limits.max_num_tokens = 128;
    limits.num_blocks = 400;
    Start({.block_copies = true, .token_masks = true, .draft_tokens = true, .draft_masks = true},
          limits);
    auto request = MakeRequest(Regex("b{20}"), 30);
    request->num_sequences = num_sequences;
    const GuidedAnswer answer = Complete(std::move(request));
    ASSERT_TRUE(answer.error.ok()) << answer.error.message();
    EXPECT_EQ(answer.ids.size(), static_cast<size_t>(num_sequences));
    EXPECT_EQ(engine_->stats().speculation.num_accepted > 0, num_sequences == 1);
  }
}

TEST_P(EngineGrammarTest, ACompleteTextEndsWithTheStopReason) {
  const GuidedAnswer answer = Complete(MakeRequest(Regex("bb1"), 3));
  EXPECT_EQ(answer.ids.at(0), (TokenIds{kTokenB, kTokenB, kTokenOne}));
  EXPECT_EQ(answer.finish.at(0), FinishReason::kStop);
  EXPECT_EQ(answer.end_id, -1);
  EXPECT_EQ(Complete(MakeRequest(Regex("bb1"), 2)).finish.at(0), FinishReason::kLength);
}

TEST_P(EngineGrammarTest, ACompleteTextEndsBeforeMinTokensAndWithoutEndIds) {
  auto early = MakeRequest(Regex("bb1"), 10);
  early->stop.min_tokens = 5;
  EXPECT_EQ(Complete(std::move(early)).finish.at(0), FinishReason::kStop);
  // The text may end, and no token has the bytes with which it could go on.
  auto endless = MakeRequest(Regex("b(é1)?"), 10);
  endless->stop.end_ids.clear();
  const GuidedAnswer answer = Complete(std::move(endless));
  ASSERT_TRUE(answer.error.ok()) << answer.error.message();
  EXPECT_EQ(answer.ids.at(0), TokenIds{kTokenB});
  EXPECT_EQ(answer.finish.at(0), FinishReason::kStop);
}

TEST_P(EngineGrammarTest, TheEndIdsOfTheRequestEndWhereTheTextMayEnd) {
  auto request = MakeRequest(Regex("b{2,9}"), 20);
  request->stop.end_ids = {35};  // not the vocabulary's
  request->sampling.logit_bias = {{35, 100.0f}, {kEnd, 200.0f}};
  const GuidedAnswer answer = Complete(std::move(request));
  EXPECT_EQ(answer.ids.at(0), (TokenIds{kTokenB, kTokenB}));
  EXPECT_EQ(answer.finish.at(0), FinishReason::kStop);
  EXPECT_EQ(answer.end_id, 35);
}

TEST_P(EngineGrammarTest, StopWordsEndATextThatIsNotComplete) {
  auto request = MakeRequest(Regex("bb1b"), 20);
  request->stop.stop_words = {{kTokenOne}};
  const GuidedAnswer answer = Complete(std::move(request));
  EXPECT_EQ(answer.ids.at(0), (TokenIds{kTokenB, kTokenB}));
  EXPECT_EQ(answer.finish.at(0), FinishReason::kStop);
}

TEST_P(EngineGrammarTest, RulesThatBanWhatTheGrammarNeedsAreAnError) {
  auto request = MakeRequest(Regex("bb1"), 20);
  request->sampling.bad_words = {{kTokenOne}};
  const GuidedAnswer answer = Complete(std::move(request));
  EXPECT_EQ(answer.error.code(), StatusCode::kInvalidArg);
  EXPECT_THAT(std::string(answer.error.message()),
              HasSubstr("output token 3: the request's rules ban"));
  EXPECT_THAT(std::string(answer.error.message()), HasSubstr("guided_decoding_guide"));
}

TEST_P(EngineGrammarTest, AGrammarThatNoTokenFitsIsAnErrorOfItsRequestAlone) {
  auto other = Send(MakeRequest(Regex("b{9}"), 9));
  // No token has the first byte of é, at once or after some text.
  for (const auto& [regex, message] :
       {std::pair("\xc3\xa9", "output token 1: "), std::pair("b1\xc3\xa9", "output token 3: ")}) {
    const GuidedAnswer answer = Complete(MakeRequest(Regex(regex), 9));
    EXPECT_EQ(answer.error.code(), StatusCode::kInvalidArg);
    EXPECT_THAT(std::string(answer.error.message()), HasSubstr(message));
    EXPECT_THAT(std::string(answer.error.message()), HasSubstr("guided_decoding_guide"));
  }
  EXPECT_EQ(other.get().ids.at(0), TokenIds(9, kTokenB));
}

TEST_P(EngineGrammarTest, BeamsAndExecutorsWithoutMasksAreRefusedByName) {
  auto request = MakeRequest(Regex("b"), 5);
  request->beams.width = 2;
  EXPECT_THAT(std::string(engine_->Enqueue(request).message()),
              HasSubstr("'beam_width' is 2 and 'guided_decoding_guide' is given"));
  Start({.candidates = true, .overlap = GetParam().overlap});
  request->beams.width = 1;
  EXPECT_THAT(std::string(engine_->Enqueue(request).message()),
              HasSubstr("'guided_decoding_guide': this backend's executor does not support it"));
}

INSTANTIATE_TEST_SUITE_P(
    Modes, EngineGrammarTest,
    ::testing::Values(GrammarMode{.name = "Plain"},
                      GrammarMode{.name = "Preempting",
                                  .policy = CapacityPolicy::kMaxUtilization,
                                  .prefix_cache = true},
                      GrammarMode{.name = "Overlap", .prefix_cache = true, .overlap = true},
                      GrammarMode{.name = "OverlapPreempting",
                                  .policy = CapacityPolicy::kMaxUtilization,
                                  .overlap = true},
                      GrammarMode{.name = "ForcedText", .speculates = true},
                      GrammarMode{.name = "Drafts",
                                  .policy = CapacityPolicy::kMaxUtilization,
                                  .prefix_cache = true,
                                  .overlap = true,
                                  .speculates = true,
                                  .has_drafter = true},
                      GrammarMode{.name = "Trees",
                                  .policy = CapacityPolicy::kMaxUtilization,
                                  .prefix_cache = true,
                                  .overlap = true,
                                  .speculates = true,
                                  .has_drafter = true,
                                  .shape = testing::CarelessShape::kTrees},
                      GrammarMode{.name = "TreesWithRows",
                                  .speculates = true,
                                  .has_drafter = true,
                                  .shape = testing::CarelessShape::kTreesWithRows}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace nereid::llm
