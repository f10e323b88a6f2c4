// Fixture of engines on the GPU that speculate, for tests that compare whole answers.
#pragma once

#include "backends/gpu_llm/model/device_medusa_heads.h"
#include "backends/gpu_llm/model/eagle3_layer.h"
#include "backends/llm_core/grammar/grammar.h"
#include "backends/llm_core/speculation/lookahead_drafter.h"
#include "backends/llm_core/speculation/medusa_drafter.h"
#include "tests/backends/cpu_reference/random_medusa_heads.h"
#include "tests/backends/gpu_llm/engine_fixture.h"
#include "tests/backends/llm_core/careless_drafter.h"

namespace nereid::gpu::testing {

struct FullAnswer {
  llm::TokenIds ids;
  std::vector<float> log_probs;
  std::vector<int32_t> top_ids;
  llm::FinishReason finish = llm::FinishReason::kNone;
  std::string error;
  bool operator==(const FullAnswer&) const = default;
};

class FullAnswerSink : public llm::OutputSink {
 public:
  FullAnswerSink(std::promise<FullAnswer> promise, int32_t cancel_after)
      : promise_(std::move(promise)), cancel_after_(cancel_after) {}
  bool IsCancelled() const override { return cancel_after_ > 0 && seen_ >= cancel_after_; }
  void OnOutput(const llm::SequenceOutput& output) override {
    seen_ = static_cast<int32_t>(output.ids.size());
    if (output.finish == llm::FinishReason::kNone) return;
    FullAnswer answer;
    answer.ids.assign(output.ids.begin(), output.ids.end());
    answer.log_probs.assign(output.log_probs.begin(), output.log_probs.end());
    for (const llm::SampledToken& token : output.top_tokens) answer.top_ids.push_back(token.id);
    answer.finish = output.finish;
    promise_.set_value(std::move(answer));
  }
  void OnError(const Status& status) override {
    FullAnswer answer;
    answer.error = status.message();
    promise_.set_value(std::move(answer));
  }

 private:
  std::promise<FullAnswer> promise_;
  const int32_t cancel_after_;
  int32_t seen_ = 0;
};

using Work = std::vector<std::unique_ptr<llm::GenerationRequest>>;

class GpuSpeculationTest : public GpuEngineTest {
 protected:
  void StartWith(std::shared_ptr<llm::Drafter> drafter, bool adapts_length = false) {
    std::unique_ptr<llm::Executor> executor = MakeTarget();
    ASSERT_NE(executor, nullptr);
    StartOn(std::move(executor), std::move(drafter), adapts_length);
  }
  void StartOn(std::unique_ptr<llm::Executor> executor, std::shared_ptr<llm::Drafter> drafter,
               bool adapts_length = false) {
    llm::EngineOptions options;
    options.scheduler = scheduler_;
    options.speculation.drafter = std::move(drafter);
    options.speculation.adapts_length = adapts_length;
    options.speculation.max_draft_tokens = max_draft_tokens_;
    options.on_check = [](const Status& status) { EXPECT_TRUE(status.ok()) << status.message(); };
    engine_ = std::make_unique<llm::Engine>(std::move(options), std::move(executor));
  }
  std::future<FullAnswer> SendFull(const llm::GenerationRequest& work, int32_t cancel_after = 0) {
    auto request = std::make_unique<llm::GenerationRequest>();
    request->prompt = work.prompt;
    request->sampling = work.sampling;
    request->stop = work.stop;
    request->grammar = work.grammar;
    request->speculates = work.speculates;
    request->adapter = work.adapter;
    request->draft_ids = work.draft_ids;
    request->draft_logits = work.draft_logits;
    std::promise<FullAnswer> promise;
    std::future<FullAnswer> answer = promise.get_future();
    request->sink = std::make_unique<FullAnswerSink>(std::move(promise), cancel_after);
    const Status queued = engine_->Enqueue(request);
    EXPECT_TRUE(queued.ok()) << queued.message();
    return answer;
  }
  // Requests of all kinds, many of which have a prefix in common.
  Work DrawWork(int count) {
    std::mt19937 random(29);
    Work work;
    for (int i = 0; i < count; ++i) {
      auto request = RandomRequest(random);
      if (i % 3 == 0) {
        for (size_t t = 0; t < std::min<size_t>(request->prompt.size(), 100); ++t)
          request->prompt[t] = static_cast<int32_t>(t);
      }
      llm::SamplingParams& sampling = request->sampling;
      sampling.returns_log_probs = true;
      if (i % 4 == 1) sampling.repetition_penalty = 1.2f;
      if (i % 5 == 2) sampling.num_top_log_probs = 3;
      if (i % 6 == 3) sampling.no_repeat_ngram_size = 3;
      if (i % 7 == 4) sampling.bad_words = {{5}, {11, 7}, {20, 21}};
      if (i % 8 == 5) sampling.logit_bias = {{3, 2.0f}, {40, -3.0f}};
      if (i % 9 == 6) sampling.allowed_ids = {1, 2, 3, 50, 51, 52, 90, 91};
      if (i % 4 == 3) request->stop.min_tokens = std::min(10, request->stop.max_tokens);
      work.push_back(std::move(request));
    }
    return work;
  }
  // Drawn work whose requests are all greedy.
  Work DrawGreedyWork(int count) {
    Work work = DrawWork(count);
    for (const auto& request : work) request->sampling = {};
    return work;
  }
  // Drawn work, three quarters of which has grammars. Nothing of it speculates.
  Work DrawGrammarWork(int count) {
    std::vector<std::string> tokens(vocab_size_);
    constexpr int kLetters = 26;
    for (int i = 0; i < kLetters; ++i) tokens[i] = std::string(1, static_cast<char>('a' + i));
    for (int i = 0; i < 10; ++i) tokens[kLetters + i] = std::string(1, static_cast<char>('0' + i));
    for (int i = 40; i < 300; ++i)
      tokens[i] = {static_cast<char>('a' + i % kLetters), static_cast<char>('a' + i / kLetters)};
    const int32_t end = vocab_size_ - 1;
    const auto vocabulary = llm::grammar::Vocabulary::Make(std::move(tokens), {end}).value();
    std::vector<std::shared_ptr<const llm::grammar::Grammar>> grammars;
    for (const char* regex :
         {"([a-f]{1,3}[0-9]{2}){1,8}", "(name[a-z]{2,5}0value[0-9]+x)+", "[ab]*"})
      grammars.push_back(llm::grammar::Grammar::FromRegex(regex, vocabulary).value());
    auto work = DrawWork(count);
    for (size_t i = 0; i < work.size(); ++i) {
      work[i]->stop.end_ids = {end};
      work[i]->stop.min_tokens = 0;
      work[i]->sampling.allowed_ids.clear();
      if (i % 4 < 3) work[i]->grammar = grammars[i % 4];
      work[i]->speculates = false;
    }
    return work;
  }
  // Answers of one request at a time, and a drafter that knows them but errs.
  std::vector<FullAnswer> AnswerAlone(const Work& work) {
    StartWith(nullptr);
    std::vector<FullAnswer> answers;
    if (HasFatalFailure()) return answers;
    auto known = std::make_shared<std::vector<llm::TokenIds>>();
    for (const auto& request : work) {
      answers.push_back(SendFull(*request).get());
      llm::TokenIds& tokens = known->emplace_back(request->prompt);
      tokens.insert(tokens.end(), answers.back().ids.begin(), answers.back().ids.end());
    }
    EXPECT_EQ(engine_->stats().speculation.num_drafted, 0);
    engine_.reset();
    next_ = [known](std::span<const int32_t> tokens) {
      for (const llm::TokenIds& all : *known) {
        if (all.size() > tokens.size() && std::equal(tokens.begin(), tokens.end(), all.begin()))
          return all[tokens.size()];
      }
      return 0;
    };
    drafter_ = MakeDrafter(llm::testing::CarelessShape::kChains);
    return answers;
  }
  // After AnswerAlone().
  std::shared_ptr<llm::testing::CarelessDrafter> MakeDrafter(llm::testing::CarelessShape shape) {
    return std::make_shared<llm::testing::CarelessDrafter>(7, vocab_size_, 6, next_, shape);
  }

  // Under load, in chunks, behind cached prefixes, and with cancellations.
  void AnswerTogether(const Work& work, std::vector<FullAnswer>& answers) {
    std::vector<std::future<FullAnswer>> together, disturbing;
    for (size_t i = 0; i < work.size(); ++i) {
      together.push_back(SendFull(*work[i]));
      if (i % 4 == 0) disturbing.push_back(SendFull(*work[work.size() - 1 - i], 3));
      if (i % 8 == 7) together[i - 4].wait();
    }
    for (auto& answer : together) answers.push_back(answer.get());
    for (auto& each : disturbing) each.wait();
  }
  void ExpectTheSameAnswers(const Work& work, const std::vector<FullAnswer>& alone) {
    std::vector<FullAnswer> answers;
    AnswerTogether(work, answers);
    for (size_t i = 0; i < work.size(); ++i) {
      SCOPED_TRACE(i);
      EXPECT_EQ(answers[i].ids, alone[i].ids);
      EXPECT_EQ(answers[i].log_probs, alone[i].log_probs);
      EXPECT_EQ(answers[i].top_ids, alone[i].top_ids);
      EXPECT_EQ(answers[i].finish, alone[i].finish);
      EXPECT_EQ(answers[i].error, alone[i].error);
    }
    const llm::SpeculationCounts counts = engine_->stats().speculation;
    EXPECT_GT(counts.num_drafted, 0);
    std::printf("  drafted %lld, accepted %lld\n", static_cast<long long>(counts.num_drafted),
                static_cast<long long>(counts.num_accepted));
  }
  // Under load the answers with this drafter, which may be null, are those without. The engine goes
  // on. After AnswerAlone().
  void ExpectTheSameAnswersWith(std::shared_ptr<llm::Drafter> drafter, const Work& work,
                                const std::vector<FullAnswer>& alone, bool adapts_length = false) {
    UseLoad();
    StartWith(std::move(drafter), adapts_length);
    if (HasFatalFailure()) return;
    ExpectTheSameAnswers(work, alone);
  }
  void ExpectThatLookaheadDecodingChangesNoAnswer() {
    const Work work = DrawWork(40);
    const std::vector<FullAnswer> alone = AnswerAlone(work);
    if (HasFatalFailure()) return;
    ExpectTheSameAnswersWith(std::make_shared<llm::LookaheadDrafter>(llm::LookaheadSizes{2, 3, 2}),
                             work, alone);
  }
  // Every draft position has a mask of its own, and forced text is drafted without a drafter.
  void ExpectThatDraftsUnderGrammarsChangeNoAnswer() {
    const Work work = DrawGrammarWork(40);
    const std::vector<FullAnswer> alone = AnswerAlone(work);
    if (HasFatalFailure()) return;
    for (const auto& request : work) request->speculates = true;
    for (const bool has_drafter : {true, false}) {
      ExpectTheSameAnswersWith(has_drafter ? drafter_ : nullptr, work, alone);
      if (HasFatalFailure()) return;
      EXPECT_GT(engine_->stats().speculation.num_accepted, 0);
      engine_.reset();
    }
  }
  // Without batch invariance greedy answers are those without drafts but for near ties, which are
  // frequent in a small model. And some steps are recorded.
  void ExpectMostlyTheSame(const std::vector<FullAnswer>& answers,
                           const std::vector<FullAnswer>& alone) const {
    EXPECT_GE(NumEqual(answers, alone), alone.size() / 3);
    EXPECT_GT(engine_->stats().speculation.num_drafted, 0);
    EXPECT_GT(executor_->num_graph_steps(), 0);
  }
  void ExpectMostlyTheSameTogether(const Work& work, const std::vector<FullAnswer>& alone) {
    std::vector<FullAnswer> answers;
    AnswerTogether(work, answers);
    ExpectMostlyTheSame(answers, alone);
  }
  static size_t NumEqual(const std::vector<FullAnswer>& answers,
                         const std::vector<FullAnswer>& alone) {
    size_t num_equal = 0;
    for (size_t i = 0; i < alone.size(); ++i) num_equal += answers[i].ids == alone[i].ids ? 1 : 0;
    return num_equal;
  }
  // The executor of a draft model, beside that of the model.
  std::unique_ptr<GpuExecutor> MakeDraftExecutor(std::string directory) {
    std::swap(directory_, directory);
    std::unique_ptr<GpuExecutor> executor = MakeExecutor();
    std::swap(directory_, directory);
    return executor;
  }
  // Of an EAGLE-3 head on the GPU of `target`.
  static Eagle3LayerOptions HeadOptions(const GpuExecutor& target, int32_t max_num_entries) {
    Eagle3LayerOptions options;
    options.form = target.form();
    options.num_blocks = 80;
    options.max_num_entries = max_num_entries;
    options.token_embedding = target.token_embedding();
    options.target = &target.decoder();
    options.stream = target.stream();
    options.num_kept_rows = 512;
    return options;
  }
  // Medusa heads on the GPU of `first`, the executor of a model or of its first GPU. `executor`
  // keeps the hidden states that they read from now on.
  std::shared_ptr<llm::Drafter> MakeMedusaDrafter(const cpu::testing::RandomMedusaHeads& random,
                                                  GpuExecutor& first, llm::Executor& executor) {
    const llm::Checkpoint target = std::move(*llm::Checkpoint::Open(directory_));
    const llm::DecoderModel model = ReadModel(target);
    const auto checkpoint = random.checkpoint();
    auto heads = llm::ReadMedusaWeights(*checkpoint, model.spec);
    EXPECT_TRUE(heads.ok()) << heads.status().message();
    if (!heads.ok()) return nullptr;
    if (first.num_gpus() > 1) {
      EXPECT_TRUE(TakeLmHead(model, *heads).ok());
    }
    MedusaOptions options;
    options.num_kept_rows = first.limits().max_num_sequences;
    options.norm = model.spec.norm;
    options.final_norm = first.weights().final_norm;
    options.lm_head = &first.weights().lm_head;
    options.lm_head_bias = first.weights().lm_head_bias;
    options.captured = [&decoder = first.decoder()] { return decoder.captured(); };
    options.stream = first.stream();
    auto made = DeviceMedusaHeads::Create(*heads, options);
    EXPECT_TRUE(made.ok()) << made.status().message();
    const int32_t last = model.spec.num_layers();
    EXPECT_TRUE(
        executor.CaptureHiddenStates(std::span(&last, 1), llm::HiddenStatePlace::kDevice).ok());
    if (!made.ok()) return nullptr;
    return std::make_shared<llm::MedusaDrafter>(std::move(*made));
  }
  // Every size of steps with drafts that `form` allows was prepared: it is replayed when it comes
  // for the first time.
  static void ExpectReplays(llm::Executor& executor, const llm::DraftStepForm& form) {
    const llm::SamplingParams greedy;
    const std::vector<int32_t> tokens = {3, 1, 4}, table = {0};
    std::vector<int32_t> parents(static_cast<size_t>(form.max_drafts));
    for (int32_t i = 0; i < form.max_drafts; ++i) parents[i] = i / 2 - 1;
    for (const int32_t num_sequences : {1, 2, 3, 7, 16}) {
      for (int32_t num_drafts = 1; num_drafts <= form.max_drafts; ++num_drafts) {
        SCOPED_TRACE(::testing::Message() << num_sequences << " with " << num_drafts);
        llm::StepBatch batch;
        for (int32_t i = 0; i < num_sequences; ++i) {
          llm::BatchEntry& entry = batch.entries.emplace_back();
          entry.slot = i;
          entry.first_token = static_cast<int32_t>(batch.token_ids.size());
          entry.num_tokens = entry.num_logits = 1 + num_drafts;
          entry.num_draft_tokens = num_drafts;
          entry.num_cached = 2;
          entry.block_table = table;
          entry.samples = true;
          entry.sampling = {&greedy, tokens, 1, {}};
          entry.returns_hidden_states = form.returns_hidden_states;
          if (form.are_trees) entry.draft_parents = std::span(parents).first(num_drafts);
          for (int32_t t = 0; t <= num_drafts; ++t) batch.token_ids.push_back(t);
        }
        const int64_t num_recorded = executor.counts().num_recorded_steps;
        ASSERT_TRUE(executor.Submit(batch).ok());
        const auto result = executor.Collect();
        ASSERT_TRUE(result.ok()) << result.status().message();
        EXPECT_TRUE(result->is_typical);
        EXPECT_EQ(executor.counts().num_recorded_steps, num_recorded + 1);
      }
    }
  }
  void UseLoad() {
    scheduler_ = {};
    scheduler_.prefix_cache = true;
    scheduler_.mixed_step_tokens = 32;
  }

  int32_t max_draft_tokens_ = 8;
  std::function<int32_t(std::span<const int32_t>)> next_;
  std::shared_ptr<llm::Drafter> drafter_;
};

}  // namespace nereid::gpu::testing
