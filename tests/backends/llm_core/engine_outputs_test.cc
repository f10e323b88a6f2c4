// Requests of several sequences, with beam search and with logits, while the engine also runs
// others and the cache is too small for all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <map>
#include <random>

#include "backends/llm_core/engine/engine.h"
#include "tests/backends/llm_core/sequential_model.h"

namespace nereid::llm {
namespace {

using testing::ContinueAlone;
using testing::FakeExecutor;
using ::testing::HasSubstr;
using testing::LogitsAfter;
using testing::SearchAlone;
using testing::SeedAlone;

ExecutorLimits OutputsLimits() {
  return {.vocab_size = 40,
          .max_positions = 128,
          .max_num_sequences = 8,
          .max_num_tokens = 12,
          .block_size = 4,
          .num_blocks = 48};
}

struct OutputsAnswer {
  std::map<int32_t, TokenIds> ids;  // by sequence
  std::map<int32_t, FinishReason> finish;
  std::map<int32_t, std::vector<float>> generation_logits;
  std::vector<float> log_probs, prompt_log_probs, context_logits;
  std::map<int32_t, std::vector<SampledToken>> top_tokens;
  std::vector<SampledToken> prompt_top_tokens;
  int32_t num_cached_tokens = 0;
  int32_t end_id = -1;
  float cum_log_prob = 0.0f;
  Status error;
};

class OutputsSink : public OutputSink {
 public:
  OutputsSink(int32_t num_sequences, int patience, std::promise<OutputsAnswer> promise)
      : num_open_(num_sequences), patience_(patience), promise_(std::move(promise)) {}

  bool IsCancelled() const override { return patience_ > 0 && ++num_asked_ >= patience_; }
  void OnOutput(const SequenceOutput& output) override {
    const int32_t index = output.sequence_index;
    answer_.ids[index].assign(output.ids.begin(), output.ids.end());
    const auto keep = [](std::vector<float>& to, std::span<const float> from) {
      if (!from.empty()) to.assign(from.begin(), from.end());
    };
    keep(answer_.generation_logits[index], output.generation_logits);
    answer_.top_tokens[index].assign(output.top_tokens.begin(), output.top_tokens.end());
    answer_.num_cached_tokens = output.num_cached_tokens;
    answer_.end_id = output.end_id;
    if (index == 0) {
      answer_.log_probs.assign(output.log_probs.begin(), output.log_probs.end());
      answer_.cum_log_prob = output.cum_log_prob;
      keep(answer_.prompt_log_probs, output.prompt_log_probs);
      keep(answer_.context_logits, output.context_logits);
      if (!output.prompt_top_tokens.empty()) {
        answer_.prompt_top_tokens.assign(output.prompt_top_tokens.begin(),
                                         output.prompt_top_tokens.end());
      }
    }
    if (output.finish == FinishReason::kNone) return;
    answer_.finish[index] = output.finish;
    if (--num_open_ == 0) promise_.set_value(std::move(answer_));
  }
  void OnError(const Status& status) override {
    answer_.error = status;
    promise_.set_value(std::move(answer_));
  }

 private:
  int32_t num_open_;
  const int patience_;
  mutable int num_asked_ = 0;
  std::promise<OutputsAnswer> promise_;
  OutputsAnswer answer_;
};

std::unique_ptr<GenerationRequest> MakeRequest(const TokenIds& prompt, int32_t max_tokens) {
  auto request = std::make_unique<GenerationRequest>();
  request->prompt = prompt;
  request->stop.max_tokens = max_tokens;
  return request;
}

// `patience`: the request is cancelled when the engine polls it for this many times; 0: never.
std::future<OutputsAnswer> Send(Engine& engine, std::unique_ptr<GenerationRequest> request,
                                int patience = 0) {
  std::promise<OutputsAnswer> promise;
  std::future<OutputsAnswer> answer = promise.get_future();
  request->sink =
      std::make_unique<OutputsSink>(request->num_sequences, patience, std::move(promise));
  const Status queued = engine.Enqueue(request);
  EXPECT_TRUE(queued.ok()) << queued.message();
  return answer;
}

struct OutputsMode {
  const char* name;
  CapacityPolicy policy = CapacityPolicy::kGuaranteedNoEvict;
  bool prefix_cache = false;
  bool copies = true;
  int32_t window = 0;
  bool overlap = false;
};

class EngineOutputsTest : public ::testing::TestWithParam<OutputsMode> {
 protected:
  EngineOutputsTest() {
    limits_.attention_window = GetParam().window;
    EngineOptions options;
    options.scheduler.policy = GetParam().policy;
    options.scheduler.prefix_cache = GetParam().prefix_cache;
    options.on_check = [this](const Status& status) {
      ++num_checks_;
      EXPECT_TRUE(status.ok()) << status.message();
    };
    const ExecutorFeatures features = {.block_copies = GetParam().copies,
                                       .candidates = true,
                                       .logits = true,
                                       .prompt_log_probs = true,
                                       .top_tokens = true,
                                       .overlap = GetParam().overlap};
    engine_ = std::make_unique<Engine>(std::move(options),
                                       std::make_unique<FakeExecutor>(limits_, features));
  }
  // The invariant checker runs after each step of every test.
  void TearDown() override {
    // All blocks are released.
    while (engine_->stats().num_used_blocks > 0) std::this_thread::yield();
    EXPECT_TRUE(engine_->health().ok()) << engine_->health().message();
    engine_.reset();
    EXPECT_GT(num_checks_, 0);
  }

  TokenIds RandomPrompt() {
    TokenIds prompt(random_() % 20 + 1);
    // Prompts often share a prefix.
    for (int32_t& id : prompt) id = static_cast<int32_t>(random_() % 3);
    return prompt;
  }

  ExecutorLimits limits_ = OutputsLimits();
  std::mt19937 random_{11};
  std::atomic<int> num_checks_{0};
  std::unique_ptr<Engine> engine_;
};

// Some requests are cancelled at random times, which must not affect the others.
TEST_P(EngineOutputsTest, AnyMixOfRequestsGivesTheResultsOfEachAlone) {
  struct Sent {
    std::unique_ptr<GenerationRequest> copy;
    std::future<OutputsAnswer> answer;
  };
  std::vector<Sent> all;
  for (int i = 0; i < 90; ++i) {
    const int patience = i % 4 == 0 ? static_cast<int>(random_() % 60 + 1) : 0;
    auto request = MakeRequest(RandomPrompt(), static_cast<int32_t>(random_() % 16 + 1));
    request->stop.end_ids = {static_cast<int32_t>(random_() % 40)};
    const auto several = static_cast<int32_t>(random_() % 3 + 2);
    if (i % 3 == 1) {
      request->num_sequences = several;
      request->sampling.top_k = 5;
      request->sampling.seed = random_() + 1;
    } else if (i % 3 == 2) {
      request->beams.width = several;
      request->num_sequences = several;
      request->beams.early_stopping = random_() % 2 == 0;
      request->beams.length_penalty = static_cast<float>(random_() % 3) - 1.0f;
    }
    auto copy = MakeRequest(request->prompt, request->stop.max_tokens);
    copy->stop = request->stop;
    copy->beams = request->beams;
    copy->sampling = request->sampling;
    copy->num_sequences = several;
    all.push_back({std::move(copy), Send(*engine_, std::move(request), patience)});
  }
  for (size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(i);
    const GenerationRequest& request = *all[i].copy;
    OutputsAnswer answer = all[i].answer.get();
    const auto is_cancelled = [&](int32_t index) {
      return answer.finish.at(index) == FinishReason::kCancelled;
    };
    if (request.uses_beams()) {
      if (is_cancelled(0)) continue;
      const std::vector<BeamHypothesis> expected = SearchAlone(request, limits_);
      ASSERT_EQ(answer.ids.size(), static_cast<size_t>(request.num_sequences));
      for (size_t j = 0; j < expected.size(); ++j) {
        EXPECT_EQ(answer.ids[static_cast<int32_t>(j)], expected[j].ids) << j;
      }
      continue;
    }
    for (const auto& [index, ids] : answer.ids) {
      TokenIds expected = ContinueAlone(request.prompt, request.stop.max_tokens, limits_,
                                        SeedAlone(request, index));
      const auto end = std::find(expected.begin(), expected.end(), request.stop.end_ids[0]);
      expected.erase(end, expected.end());
      if (is_cancelled(index)) expected.resize(std::min(ids.size(), expected.size()));
      EXPECT_EQ(ids, expected) << index;
    }
  }
}

TEST_P(EngineOutputsTest, ReturnsLogitsAndLogProbsOfEachPosition) {
  std::vector<std::future<OutputsAnswer>> others;
  for (int i = 0; i < 10; ++i) others.push_back(Send(*engine_, MakeRequest(RandomPrompt(), 12)));
  const TokenIds prompt = {1, 2, 0, 1, 2, 0, 1, 1, 1, 2, 0, 0, 1, 2, 2, 1, 0, 2};
  std::vector<std::future<OutputsAnswer>> answers;
  for (int i = 0; i < 3; ++i) {
    auto request = MakeRequest(prompt, 5);
    request->returns_context_logits = true;
    request->returns_generation_logits = true;
    request->returns_prompt_log_probs = true;
    answers.push_back(Send(*engine_, std::move(request)));
  }
  for (auto& future : answers) {
    const OutputsAnswer answer = future.get();
    TokenIds tokens = prompt;
    const TokenIds output = ContinueAlone(prompt, 5, limits_, 0);
    tokens.insert(tokens.end(), output.begin(), output.end());
    ASSERT_EQ(answer.ids.at(0), output);
    ASSERT_EQ(answer.context_logits.size(), prompt.size() * 40);
    ASSERT_EQ(answer.generation_logits.at(0).size(), output.size() * 40);
    ASSERT_EQ(answer.prompt_log_probs.size(), prompt.size() - 1);
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      const auto logits = LogitsAfter(std::span<const int32_t>(tokens).first(i + 1), limits_);
      if (i < prompt.size()) {
        EXPECT_TRUE(std::equal(logits.begin(), logits.end(),
                               answer.context_logits.begin() + static_cast<ptrdiff_t>(i * 40)));
      }
      if (i + 1 < prompt.size()) {
        EXPECT_FLOAT_EQ(answer.prompt_log_probs[i], LogProb(logits, tokens[i + 1]));
      } else {
        const auto row = static_cast<ptrdiff_t>((i + 1 - prompt.size()) * 40);
        EXPECT_TRUE(
            std::equal(logits.begin(), logits.end(), answer.generation_logits.at(0).begin() + row));
      }
    }
  }
  for (auto& other : others) other.wait();
}

TEST_P(EngineOutputsTest, ReturnsTheLikeliestTokensOfEachPosition) {
  const TokenIds prompt = {1, 2, 0, 1, 1};
  std::vector<std::future<OutputsAnswer>> answers;
  for (int32_t num_sequences : {1, 3}) {
    auto request = MakeRequest(prompt, 6);
    request->num_sequences = num_sequences;
    request->sampling.top_k = 5;
    request->sampling.num_top_log_probs = 4;
    answers.push_back(Send(*engine_, std::move(request)));
    answers.push_back(Send(*engine_, MakeRequest(RandomPrompt(), 12)));
  }
  for (const size_t i : {0, 2}) {
    const OutputsAnswer answer = answers[i].get();
    ASSERT_EQ(answer.ids.size(), i == 0 ? 1u : 3u);
    for (const auto& [index, ids] : answer.ids) {
      ASSERT_EQ(answer.top_tokens.at(index).size(), ids.size() * 4);
      TokenIds tokens = prompt;
      for (size_t j = 0; j < ids.size(); tokens.push_back(ids[j++])) {
        std::vector<SampledToken> expected;
        FindTopTokens(LogitsAfter(tokens, limits_), 4, expected);
        for (size_t k = 0; k < 4; ++k) {
          EXPECT_EQ(answer.top_tokens.at(index)[j * 4 + k].id, expected[k].id);
          EXPECT_FLOAT_EQ(answer.top_tokens.at(index)[j * 4 + k].log_prob, expected[k].log_prob);
        }
      }
    }
  }
  answers[1].wait();
  answers[3].wait();
}

TEST_P(EngineOutputsTest, ReturnsTheLikeliestTokensOfEachPositionOfThePrompt) {
  const TokenIds prompt = {1, 2, 0, 1, 2, 0, 1, 1, 1, 2, 0, 0, 1, 2, 2, 1, 0, 2};
  std::vector<std::future<OutputsAnswer>> answers;
  for (const int32_t num_sequences : {1, 2}) {
    auto request = MakeRequest(prompt, 4);
    request->num_sequences = num_sequences;
    request->returns_prompt_log_probs = true;
    request->num_prompt_top_log_probs = 3;
    answers.push_back(Send(*engine_, std::move(request)));
    answers.push_back(Send(*engine_, MakeRequest(RandomPrompt(), 12)));
  }
  for (const size_t i : {0, 2}) {
    const OutputsAnswer answer = answers[i].get();
    ASSERT_EQ(answer.prompt_top_tokens.size(), (prompt.size() - 1) * 3);
    EXPECT_EQ(answer.prompt_log_probs.size(), prompt.size() - 1);
    EXPECT_TRUE(answer.context_logits.empty());
    for (size_t at = 1; at < prompt.size(); ++at) {
      std::vector<SampledToken> expected;
      FindTopTokens(LogitsAfter(std::span(prompt).first(at), limits_), 3, expected);
      for (size_t k = 0; k < 3; ++k) {
        EXPECT_EQ(answer.prompt_top_tokens[(at - 1) * 3 + k].id, expected[k].id) << at;
      }
    }
  }
  answers[1].wait();
  answers[3].wait();
}

TEST_P(EngineOutputsTest, AReasoningBudgetIsHeldWhateverElseRuns) {
  const ReasoningLimit limits[] = {{0, {}, {7}}, {1, {}, {7, 8, 9}}, {6, {}, {7}}, {30, {}, {7}}};
  std::vector<std::future<OutputsAnswer>> answers, others;
  std::vector<TokenIds> prompts;
  for (int i = 0; i < 16; ++i) {
    prompts.push_back(RandomPrompt());
    auto request = MakeRequest(prompts.back(), 14);
    request->reasoning = limits[i % 4];
    answers.push_back(Send(*engine_, std::move(request)));
    others.push_back(Send(*engine_, MakeRequest(RandomPrompt(), 12)));
  }
  for (size_t i = 0; i < answers.size(); ++i) {
    TokenIds tokens = prompts[i], expected;
    ReasoningBudget budget(limits[i % 4]);
    while (expected.size() < 14) {
      expected.push_back(budget.Apply(ContinueAlone(tokens, 1, limits_, 0)[0]));
      tokens.push_back(expected.back());
    }
    EXPECT_EQ(answers[i].get().ids.at(0), expected) << i;
  }
  for (auto& other : others) other.wait();
}

TEST_P(EngineOutputsTest, CountsThePromptTokensThatWereCached) {
  const TokenIds prompt = {1, 2, 0, 1, 1, 5, 6, 7, 8, 9};  // two blocks of four, and the rest
  EXPECT_EQ(Send(*engine_, MakeRequest(prompt, 2)).get().num_cached_tokens, 0);
  auto several = MakeRequest(prompt, 2);
  several->num_sequences = 2;
  const int32_t cached = GetParam().prefix_cache ? 8 : 0;
  EXPECT_EQ(Send(*engine_, std::move(several)).get().num_cached_tokens, cached);
}

TEST_P(EngineOutputsTest, NamesTheEndId) {
  const TokenIds prompt = {2, 1};
  auto request = MakeRequest(prompt, 3);
  const int32_t end_id = ContinueAlone(prompt, 3, limits_, 0)[1];
  request->stop.end_ids = {end_id};
  request->stop.min_tokens = 1;
  request->stop.includes_stop = true;
  const OutputsAnswer answer = Send(*engine_, std::move(request)).get();
  EXPECT_EQ(answer.end_id, end_id);
  EXPECT_EQ(answer.ids.at(0).back(), end_id);
}

TEST_P(EngineOutputsTest, EveryBeamHasTheLogitsOfItsOwnTokens) {
  std::vector<std::future<OutputsAnswer>> answers;
  std::vector<TokenIds> prompts;
  for (int i = 0; i < 12; ++i) {
    prompts.push_back(RandomPrompt());
    auto request = MakeRequest(prompts.back(), 9);
    request->stop.end_ids = {7};
    request->stop.stop_words = {{11, 3}};
    request->beams.width = 3;
    request->num_sequences = 3;
    request->beams.early_stopping = false;
    request->returns_generation_logits = true;
    request->returns_context_logits = i % 2 == 0;
    answers.push_back(Send(*engine_, std::move(request)));
  }
  for (size_t i = 0; i < answers.size(); ++i) {
    const OutputsAnswer answer = answers[i].get();
    ASSERT_EQ(answer.ids.size(), 3u);
    EXPECT_EQ(answer.context_logits.size(), i % 2 == 0 ? prompts[i].size() * 40 : 0);
    for (const auto& [index, ids] : answer.ids) {
      const std::vector<float>& rows = answer.generation_logits.at(index);
      ASSERT_EQ(rows.size(), ids.size() * 40) << index;
      TokenIds tokens = prompts[i];
      for (size_t j = 0; j < ids.size(); tokens.push_back(ids[j++])) {
        const std::vector<float> logits = LogitsAfter(tokens, limits_);
        EXPECT_TRUE(
            std::equal(logits.begin(), logits.end(), rows.begin() + static_cast<ptrdiff_t>(j * 40)))
            << "beam " << index << ", token " << j;
      }
    }
  }
}

constexpr auto kOutputsEvict = CapacityPolicy::kMaxUtilization;

INSTANTIATE_TEST_SUITE_P(
    Modes, EngineOutputsTest,
    ::testing::Values(
        OutputsMode{.name = "NoEvict"}, OutputsMode{.name = "Prefix", .prefix_cache = true},
        OutputsMode{.name = "NoCopies", .copies = false},
        OutputsMode{.name = "Window", .window = 9},
        OutputsMode{.name = "WindowNoCopies", .copies = false, .window = 9},
        OutputsMode{.name = "EvictPrefix", .policy = kOutputsEvict, .prefix_cache = true},
        OutputsMode{.name = "Overlap", .overlap = true},
        OutputsMode{.name = "OverlapPrefix", .prefix_cache = true, .overlap = true},
        OutputsMode{.name = "OverlapWindowNoCopies", .copies = false, .window = 9, .overlap = true},
        OutputsMode{.name = "OverlapNarrowWindowPrefix",
                    .prefix_cache = true,
                    .window = 1,
                    .overlap = true},
        OutputsMode{.name = "OverlapEvict", .policy = kOutputsEvict, .overlap = true},
        OutputsMode{.name = "OverlapEvictPrefix",
                    .policy = kOutputsEvict,
                    .prefix_cache = true,
                    .overlap = true},
        OutputsMode{
            .name = "OverlapEvictWindow", .policy = kOutputsEvict, .window = 9, .overlap = true}),
    [](const auto& info) { return info.param.name; });

TEST(EngineFeaturesTest, RejectsRequestsThatNeedAMissingFeature) {
  Engine engine({}, std::make_unique<FakeExecutor>(OutputsLimits()));
  const auto refusal = [&](auto change) {
    auto request = MakeRequest({1}, 2);
    change(*request);
    const Status status = engine.Enqueue(request);
    EXPECT_NE(request, nullptr);
    return status.message();
  };
  EXPECT_THAT(refusal([](auto& r) { r.beams.width = 2; }), HasSubstr("'beam_width'"));
  EXPECT_THAT(refusal([](auto& r) { r.returns_context_logits = true; }),
              HasSubstr("'return_context_logits'"));
  EXPECT_THAT(refusal([](auto& r) { r.returns_generation_logits = true; }),
              HasSubstr("'return_generation_logits'"));
  EXPECT_THAT(refusal([](auto& r) { r.returns_prompt_log_probs = true; }),
              HasSubstr("'return_prompt_log_probs'"));
  EXPECT_THAT(refusal([](auto& r) { r.sampling.num_top_log_probs = 2; }),
              HasSubstr("'num_top_logprobs'"));
}

TEST(EngineFeaturesTest, NamesTheFieldAndItsRange) {
  Engine engine(
      {}, std::make_unique<FakeExecutor>(OutputsLimits(), ExecutorFeatures{.candidates = true}));
  const auto refusal = [&](auto change) {
    auto request = MakeRequest({1}, 2);
    change(*request);
    return engine.Enqueue(request).message();
  };
  EXPECT_THAT(refusal([](auto& r) { r.beams.width = 0; }),
              HasSubstr("'beam_width' is 0, expected 1 or more"));
  EXPECT_THAT(refusal([](auto& r) { r.beams.width = 9; }),
              HasSubstr("9 sequences: at most 8 can run at a time"));
  EXPECT_THAT(refusal([](auto& r) { r.num_sequences = 0; }),
              HasSubstr("'num_return_sequences' is 0, expected 1 or more"));
  EXPECT_THAT(refusal([](auto& r) {
                r.beams.width = 2;
                r.num_sequences = 3;
              }),
              HasSubstr("'num_return_sequences' is 3, expected at most the beam_width, 2"));
  EXPECT_THAT(refusal([](auto& r) { r.beams.length_penalty = NAN; }),
              HasSubstr("'len_penalty' is nan, expected -100 to 100"));
  EXPECT_THAT(refusal([](auto& r) { r.beams.diversity_rate = -1.0f; }),
              HasSubstr("'beam_search_diversity_rate' is -1, expected 0 to 1e6"));
  EXPECT_THAT(refusal([](auto& r) { r.sampling.no_repeat_ngram_size = -2; }),
              HasSubstr("'no_repeat_ngram_size' is -2, expected 0 (none) or more"));
  EXPECT_THAT(refusal([](auto& r) { r.sampling.top_p_reset_id = 40; }),
              HasSubstr("'runtime_top_p_reset_ids' is 40, expected -1 (none) to 39"));
  EXPECT_THAT(refusal([](auto& r) { r.stop.end_ids = {40}; }),
              HasSubstr("'end_id': token id 40 at index 0, expected 0 to 39"));
  EXPECT_THAT(refusal([](auto& r) { r.priority = 2000; }),
              HasSubstr("'priority' is 2000, expected -1000 to 1000"));
}

}  // namespace
}  // namespace nereid::llm
