// Draft tokens change no answer: requests with random parameters get the same ids, log
// probabilities, likely tokens and logits, bit for bit, with and without speculation, whatever the
// drafts are, in any batch, with a cache that is too small and with cancellations.
#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <future>
#include <map>
#include <random>

#include "backends/cpu_reference/cpu_executor.h"
#include "backends/cpu_reference/model/eagle3_layer.h"
#include "backends/cpu_reference/model/medusa_layers.h"
#include "backends/llm_core/engine/engine.h"
#include "backends/llm_core/speculation/eagle3_drafter.h"
#include "backends/llm_core/speculation/lookahead_drafter.h"
#include "backends/llm_core/speculation/medusa_drafter.h"
#include "backends/llm_core/speculation/model_drafter.h"
#include "tests/backends/cpu_reference/golden.h"
#include "tests/backends/cpu_reference/random_eagle3_head.h"
#include "tests/backends/cpu_reference/random_medusa_heads.h"
#include "tests/backends/llm_core/careless_drafter.h"
#include "tests/support/sanitizer.h"

namespace nereid::cpu {
namespace {

using llm::testing::CarelessShape;

constexpr int32_t kVocabSize = 512;

struct SequenceAnswer {
  std::vector<int32_t> ids;
  std::vector<float> log_probs;
  std::vector<float> top_log_probs;
  std::vector<int32_t> top_ids;
  std::vector<float> generation_logits;
  float cum_log_prob = 0.0f;
  llm::FinishReason finish = llm::FinishReason::kNone;
  int32_t end_id = -1;
  int32_t stop_word = -1;
  bool operator==(const SequenceAnswer&) const = default;
};

struct DraftedAnswer {
  std::map<int32_t, SequenceAnswer> sequences;
  std::string error;
  bool operator==(const DraftedAnswer&) const = default;
};

class DraftedSink : public llm::OutputSink {
 public:
  DraftedSink(int32_t num_sequences, int32_t cancel_after, std::promise<DraftedAnswer> promise)
      : num_open_(num_sequences), cancel_after_(cancel_after), promise_(std::move(promise)) {}

  bool IsCancelled() const override { return cancel_after_ >= 0 && num_calls_ >= cancel_after_; }
  void OnOutput(const llm::SequenceOutput& output) override {
    ++num_calls_;
    if (output.finish == llm::FinishReason::kNone) return;
    SequenceAnswer& sequence = answer_.sequences[output.sequence_index];
    sequence.ids.assign(output.ids.begin(), output.ids.end());
    sequence.log_probs.assign(output.log_probs.begin(), output.log_probs.end());
    for (const llm::SampledToken& token : output.top_tokens) {
      sequence.top_ids.push_back(token.id);
      sequence.top_log_probs.push_back(token.log_prob);
    }
    sequence.generation_logits.assign(output.generation_logits.begin(),
                                      output.generation_logits.end());
    sequence.cum_log_prob = output.cum_log_prob;
    sequence.finish = output.finish;
    sequence.end_id = output.end_id;
    sequence.stop_word = output.stop_word;
    if (--num_open_ == 0) promise_.set_value(std::move(answer_));
  }
  void OnError(const Status& status) override {
    answer_.error = status.message();
    promise_.set_value(std::move(answer_));
  }

 private:
  int32_t num_open_;
  const int32_t cancel_after_;
  int32_t num_calls_ = 0;
  DraftedAnswer answer_;
  std::promise<DraftedAnswer> promise_;
};

// The fields of a request that are drawn.
struct DraftedWork {
  llm::TokenIds prompt;
  llm::SamplingParams sampling;
  llm::StopCriteria stop;
  int32_t num_sequences = 1;
  int32_t beam_width = 1;
  bool returns_logits = false;
};

class WorkSource {
 public:
  explicit WorkSource(uint32_t seed) : random_(seed) {}

  DraftedWork Draw() {
    DraftedWork work;
    const int shared = Pick(0, 1) * Pick(1, 40);
    for (int32_t i = 0; i < shared; ++i) work.prompt.push_back(i);
    for (int own = Pick(1, 40); own > 0; --own) work.prompt.push_back(Pick(0, kVocabSize - 1));
    work.stop.max_tokens = Pick(1, 40);
    work.stop.min_tokens = Pick(0, 1) * Pick(0, 10);
    if (Pick(0, 1) == 0) work.stop.end_ids = {Pick(0, 63), Pick(0, 63)};
    if (Pick(0, 2) == 0) work.stop.stop_words = {{Pick(0, 63)}, {Pick(0, 63), Pick(0, 63)}};
    work.stop.includes_stop = Pick(0, 1) == 0;
    DrawSampling(work.sampling);
    const int kind = Pick(0, 5);
    if (kind == 0) {
      work.num_sequences = Pick(2, 4);
    } else if (kind == 1) {
      work.returns_logits = true;
    } else if (kind == 2 && work.sampling.num_top_log_probs == 0) {
      work.beam_width = 2;
    }
    return work;
  }

  int Pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

 private:
  void DrawSampling(llm::SamplingParams& sampling) {
    sampling.returns_log_probs = Pick(0, 1) == 0;
    sampling.num_top_log_probs = Pick(0, 2) == 0 ? Pick(1, 5) : 0;
    if (Pick(0, 1) == 0) {
      sampling.top_k = Pick(0, 1) * Pick(2, 30);
      sampling.top_p = Pick(0, 1) == 0 ? 0.9f : 1.0f;
      sampling.min_p = Pick(0, 3) == 0 ? 0.05f : 0.0f;
      sampling.temperature = Pick(0, 1) == 0 ? 0.7f : 1.3f;
      sampling.seed = random_();
      if (Pick(0, 3) == 0) {
        sampling.top_p_decay = 0.9f;
        sampling.top_p_min = 0.2f;
        sampling.top_p_reset_id = Pick(0, 63);
      }
    }
    if (Pick(0, 2) == 0) sampling.repetition_penalty = 1.3f;
    if (Pick(0, 3) == 0) sampling.presence_penalty = 0.5f;
    if (Pick(0, 3) == 0) sampling.frequency_penalty = 0.4f;
    if (Pick(0, 3) == 0) sampling.no_repeat_ngram_size = Pick(2, 4);
    if (Pick(0, 3) == 0) sampling.logit_bias = {{Pick(0, 63), 3.0f}, {Pick(0, 63), -3.0f}};
    if (Pick(0, 3) == 0) sampling.bad_words = {{Pick(0, 63)}, {Pick(0, 63), Pick(0, 63)}};
    if (Pick(0, 5) == 0) {  // few tokens: some requests run out of them
      for (int i = 0; i < 6; ++i) sampling.allowed_ids.push_back(10 * i + Pick(0, 9));
    }
  }

  std::mt19937 random_;
};

std::future<DraftedAnswer> Send(llm::Engine& engine, const DraftedWork& work,
                                int32_t cancel_after = -1) {
  auto request = std::make_unique<llm::GenerationRequest>();
  request->prompt = work.prompt;
  request->sampling = work.sampling;
  request->stop = work.stop;
  request->num_sequences = work.num_sequences;
  request->beams.width = work.beam_width;
  request->returns_generation_logits = work.returns_logits;
  request->returns_prompt_log_probs = work.returns_logits;
  std::promise<DraftedAnswer> promise;
  std::future<DraftedAnswer> answer = promise.get_future();
  request->sink =
      std::make_unique<DraftedSink>(work.num_sequences, cancel_after, std::move(promise));
  const Status queued = engine.Enqueue(request);
  EXPECT_TRUE(queued.ok()) << queued.message();
  return answer;
}

struct DraftedSetting {
  int32_t num_threads = 1;
  int32_t max_num_sequences = 16;
  int32_t max_num_tokens = 64;
  int64_t max_cache_tokens = 0;
  llm::CapacityPolicy policy = llm::CapacityPolicy::kGuaranteedNoEvict;
  bool prefix_cache = false;
  bool adapts_length = false;
  KvFormat kv_format = KvFormat::kFloat;
  llm::testing::CarelessShape shape = llm::testing::CarelessShape::kChains;
  int32_t max_draft_tokens = 0;  // 0: as the shape needs
};

std::unique_ptr<llm::Executor> OpenModel(const std::string& directory,
                                         const DraftedSetting& setting) {
  Result<llm::Checkpoint> opened = llm::Checkpoint::Open(directory);
  auto checkpoint = std::make_shared<const llm::Checkpoint>(std::move(*opened));
  CpuExecutorOptions options;
  options.num_threads = setting.num_threads;
  options.max_num_sequences = setting.max_num_sequences;
  options.max_num_tokens = setting.max_num_tokens;
  options.max_cache_tokens = setting.max_cache_tokens;
  options.kv_format = setting.kv_format;
  auto model = llm::ReadDecoder(*checkpoint);
  Result<std::unique_ptr<CpuExecutor>> executor =
      CpuExecutor::Create(std::move(checkpoint), std::move(*model), options);
  EXPECT_TRUE(executor.ok());
  return std::move(*executor);
}

std::unique_ptr<llm::Engine> StartEngine(std::unique_ptr<llm::Executor> executor,
                                         const DraftedSetting& setting,
                                         std::shared_ptr<llm::Drafter> drafter) {
  llm::EngineOptions engine_options;
  engine_options.scheduler.policy = setting.policy;
  engine_options.scheduler.prefix_cache = setting.prefix_cache;
  engine_options.speculation.drafter = std::move(drafter);
  engine_options.speculation.adapts_length = setting.adapts_length;
  if (setting.shape != llm::testing::CarelessShape::kChains) {
    engine_options.speculation.max_draft_tokens = 24;
  }
  if (setting.max_draft_tokens > 0) {
    engine_options.speculation.max_draft_tokens = setting.max_draft_tokens;
  }
  engine_options.on_check = [](const Status& status) {
    EXPECT_TRUE(status.ok()) << status.message();
  };
  return std::make_unique<llm::Engine>(std::move(engine_options), std::move(executor));
}

std::unique_ptr<llm::Engine> StartEngine(const std::string& directory,
                                         const DraftedSetting& setting,
                                         std::shared_ptr<llm::Drafter> drafter) {
  return StartEngine(OpenModel(directory, setting), setting, std::move(drafter));
}

// The tokens of earlier answers, by which a drafter knows what comes next.
class KnownAnswers {
 public:
  void Add(const llm::TokenIds& prompt, const DraftedAnswer& answer) {
    for (const auto& [index, sequence] : answer.sequences) {
      llm::TokenIds& tokens = all_.emplace_back(prompt);
      tokens.insert(tokens.end(), sequence.ids.begin(), sequence.ids.end());
    }
  }
  int32_t Next(std::span<const int32_t> tokens) const {
    for (const llm::TokenIds& known : all_) {
      if (known.size() > tokens.size() && std::equal(tokens.begin(), tokens.end(), known.begin())) {
        return known[tokens.size()];
      }
    }
    return 0;
  }

 private:
  std::vector<llm::TokenIds> all_;
};

class SpeculationTest : public ::testing::TestWithParam<const char*> {};

TEST_P(SpeculationTest, RandomRequestsGetTheAnswersThatTheyGetWithoutDrafts) {
  const std::string directory = testing::FindTiny(GetParam());
  if (directory.empty()) GTEST_SKIP() << "no test data for " << GetParam();
  WorkSource source(23);
  std::vector<DraftedWork> work;
  for (int i = 0; i < (kHasSanitizer ? 12 : 60); ++i) work.push_back(source.Draw());
  constexpr auto kEvict = llm::CapacityPolicy::kMaxUtilization;
  for (const DraftedSetting& setting :
       {DraftedSetting{},
        DraftedSetting{.num_threads = 2, .max_num_sequences = 5, .max_num_tokens = 9},
        DraftedSetting{.num_threads = 2, .adapts_length = true},
        DraftedSetting{.max_cache_tokens = 320, .policy = kEvict, .prefix_cache = true},
        DraftedSetting{.prefix_cache = true, .kv_format = KvFormat::kInt8},
        DraftedSetting{.max_num_tokens = 256, .shape = CarelessShape::kTrees},
        DraftedSetting{.num_threads = 2, .adapts_length = true, .shape = CarelessShape::kTrees},
        DraftedSetting{.num_threads = 2,
        .max_num_tokens = 100,
        .max_cache_tokens = 320,
        .policy = kEvict,
        .prefix_cache = true,
        .shape = CarelessShape::kTreesWithRows},
        DraftedSetting{.max_num_tokens = 100,
        .prefix_cache = true,
        .kv_format = KvFormat::kInt8,
        .shape = CarelessShape::kTreesWithRows}}) {
    std::vector<DraftedAnswer> plain;
    auto known = std::make_shared<KnownAnswers>();
    {
      DraftedSetting alone = {.kv_format = setting.kv_format};
      const auto engine = StartEngine(directory, alone, nullptr);
      for (const DraftedWork& item : work) {
        plain.push_back(Send(*engine, item).get());
        known->Add(item.prompt, plain.back());
      }
      EXPECT_EQ(engine->stats().speculation.num_drafted, 0);
    }
    const auto next = [known](std::span<const int32_t> tokens) { return known->Next(tokens); };
    const auto engine = StartEngine(
        directory, setting,
        std::make_shared<llm::testing::CarelessDrafter>(7, kVocabSize, 6, next, setting.shape));
    std::vector<std::future<DraftedAnswer>> answers, disturbing;
    for (size_t i = 0; i < work.size(); ++i) {
      answers.push_back(Send(*engine, work[i]));
      if (i % 4 == 0) disturbing.push_back(Send(*engine, work[work.size() - 1 - i], 3));
      if (i % 8 == 7) answers[i - 4].wait();  // later requests arrive while others run
    }
    for (size_t i = 0; i < work.size(); ++i) {
      SCOPED_TRACE(i);
      EXPECT_EQ(answers[i].get(), plain[i]);
    }
    for (auto& other : disturbing) other.wait();
    const llm::SpeculationCounts counts = engine->stats().speculation;
    if (!setting.adapts_length) {  // otherwise the measured times decide whether there are drafts
      EXPECT_GT(counts.num_accepted, 0);
      EXPECT_GT(counts.num_drafted, counts.num_accepted);
    }
    if (HasFailure()) return;
  }
}

// Sends the same requests to engines with a drafter: under load, with few tokens a step, and with a
// cache that is too small.
class WeightedDrafterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = testing::FindTiny("llama");
    if (directory_.empty()) GTEST_SKIP() << "no test data";
    WorkSource source(29);
    for (int i = 0; i < (kHasSanitizer ? 12 : 40); ++i) work_.push_back(source.Draw());
    const auto engine = StartEngine(directory_, {}, nullptr);
    for (const DraftedWork& item : work_) plain_.push_back(Send(*engine, item).get());
  }
  static std::vector<DraftedSetting> Settings() {
    return {DraftedSetting{},
            DraftedSetting{.num_threads = 2, .max_num_sequences = 5, .max_num_tokens = 9},
            DraftedSetting{.max_cache_tokens = 320,
                           .policy = llm::CapacityPolicy::kMaxUtilization,
                           .prefix_cache = true}};
  }
  void ExpectTheSameAnswers(llm::Engine& engine) {
    std::vector<std::future<DraftedAnswer>> answers, disturbing;
    for (size_t i = 0; i < work_.size(); ++i) {
      answers.push_back(Send(engine, work_[i]));
      if (i % 4 == 0) disturbing.push_back(Send(engine, work_[work_.size() - 1 - i], 3));
      if (i % 8 == 7) answers[i - 4].wait();
    }
    for (size_t i = 0; i < work_.size(); ++i) {
      SCOPED_TRACE(i);
      EXPECT_EQ(answers[i].get(), plain_[i]);
    }
    for (auto& each : disturbing) each.wait();
    EXPECT_GT(engine.stats().speculation.num_drafted, 0);
  }

  std::string directory_;
  std::vector<DraftedWork> work_;
  std::vector<DraftedAnswer> plain_;
};

// The model itself drafts: its drafts are always right, even where a request samples, because both
// draw with the same randomness.
TEST_F(WeightedDrafterTest, AModelDraftsForItself) {
  for (const DraftedSetting& setting : Settings()) {
    const auto engine =
        StartEngine(directory_, setting,
                    std::make_shared<llm::ModelDrafter>(OpenModel(directory_, setting), 0.0f));
    ExpectTheSameAnswers(*engine);
    const llm::SpeculationCounts counts = engine->stats().speculation;
    EXPECT_EQ(counts.num_accepted, counts.num_drafted);
  }
}

TEST_F(WeightedDrafterTest, AnotherModelWhoseDraftsAreMostlyWrongChangesNoAnswer) {
  const std::string other = testing::FindTiny("mistral-swa");
  if (other.empty()) GTEST_SKIP() << "no test data";
  for (const DraftedSetting& setting : Settings()) {
    const auto engine = StartEngine(
        directory_, setting, std::make_shared<llm::ModelDrafter>(OpenModel(other, setting), 0.0f));
    ExpectTheSameAnswers(*engine);
  }
}

TEST_F(WeightedDrafterTest, AnEagle3HeadChangesNoAnswer) {
  const testing::RandomEagle3Head random_head(3);
  auto target =
      std::make_shared<const llm::Checkpoint>(std::move(*llm::Checkpoint::Open(directory_)));
  const auto model = llm::ReadDecoder(*target);
  std::vector<DraftedSetting> settings = Settings();
  settings.push_back({.shape = CarelessShape::kTrees});
  settings.push_back({.num_threads = 2, .max_num_tokens = 100, .shape = CarelessShape::kTrees});
  for (const DraftedSetting& setting : settings) {
    auto head = llm::ReadEagle3Head(*random_head.checkpoint(), model->spec);
    ASSERT_TRUE(head.ok()) << head.status().message();
    const std::vector<int32_t> layers = head->aux_layers;
    auto layer = Eagle3Layer::Create(random_head.checkpoint(), std::move(*head), target, *model,
                                     setting.num_threads);
    std::unique_ptr<llm::Executor> executor = OpenModel(directory_, setting);
    ASSERT_TRUE(executor->CaptureHiddenStates(layers, llm::HiddenStatePlace::kHost).ok());
    auto drafter =
        std::make_shared<llm::Eagle3Drafter>(llm::MakeHostChains(std::move(*layer)), 0.0f);
    if (setting.shape == CarelessShape::kTrees) drafter->DraftTrees({}, 0.0f);
    const auto engine = StartEngine(std::move(executor), setting, std::move(drafter));
    ExpectTheSameAnswers(*engine);
  }
}

// The window's tokens are in every step, and most of them are wrong.
TEST_F(WeightedDrafterTest, LookaheadDecodingChangesNoAnswer) {
  std::vector<DraftedSetting> settings = Settings();
  settings.push_back({.num_threads = 2, .max_num_tokens = 400, .kv_format = KvFormat::kFloat});
  int64_t num_accepted = 0;
  for (const llm::LookaheadSizes& sizes :
       {llm::LookaheadSizes(), llm::LookaheadSizes{1, 2, 1}, llm::LookaheadSizes{15, 5, 15}}) {
    for (DraftedSetting setting : settings) {
      setting.max_draft_tokens = static_cast<int32_t>(sizes.num_drafts());
      const auto engine =
          StartEngine(directory_, setting, std::make_shared<llm::LookaheadDrafter>(sizes));
      ExpectTheSameAnswers(*engine);
      num_accepted += engine->stats().speculation.num_accepted;
    }
  }
  EXPECT_GT(num_accepted, 0);
}

TEST_F(WeightedDrafterTest, MedusaHeadsChangeNoAnswer) {
  const testing::RandomMedusaHeads random_heads(3);
  const std::shared_ptr<const llm::Checkpoint> heads = random_heads.checkpoint();
  auto target =
      std::make_shared<const llm::Checkpoint>(std::move(*llm::Checkpoint::Open(directory_)));
  const auto model = llm::ReadDecoder(*target);
  const int32_t last = model->spec.num_layers();
  int64_t num_accepted = 0;
  for (DraftedSetting setting : Settings()) {
    setting.shape = CarelessShape::kTrees;  // for the size of the trees
    auto weights = llm::ReadMedusaWeights(*heads, model->spec);
    ASSERT_TRUE(weights.ok()) << weights.status().message();
    auto layers =
        MedusaLayers::Create(heads, std::move(*weights), target, *model, setting.num_threads);
    std::unique_ptr<llm::Executor> executor = OpenModel(directory_, setting);
    ASSERT_TRUE(
        executor->CaptureHiddenStates(std::span(&last, 1), llm::HiddenStatePlace::kHost).ok());
    const auto engine = StartEngine(std::move(executor), setting,
                                    std::make_shared<llm::MedusaDrafter>(std::move(*layers)));
    ExpectTheSameAnswers(*engine);
    num_accepted += engine->stats().speculation.num_accepted;
  }
  EXPECT_GT(num_accepted, 0);
}

// More threads than processors would wait for each other in every loop.
TEST_F(WeightedDrafterTest, HeadsRunOnTheProcessorsOfTheProcessOnly) {
  const auto num_threads = [] {
    const std::filesystem::directory_iterator tasks("/proc/self/task");
    return std::distance(begin(tasks), end(tasks));
  };
  auto target =
      std::make_shared<const llm::Checkpoint>(std::move(*llm::Checkpoint::Open(directory_)));
  const auto model = llm::ReadDecoder(*target);
  const testing::RandomMedusaHeads random_heads(3);
  const std::shared_ptr<const llm::Checkpoint> heads = random_heads.checkpoint();
  auto weights = llm::ReadMedusaWeights(*heads, model->spec);
  ASSERT_TRUE(weights.ok()) << weights.status().message();
  const testing::RandomEagle3Head random_head(3);
  auto head = llm::ReadEagle3Head(*random_head.checkpoint(), model->spec);
  ASSERT_TRUE(head.ok()) << head.status().message();
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  const auto num_before = num_threads();
  const auto layers = MedusaLayers::Create(heads, std::move(*weights), target, *model, 0);
  const auto layer =
      Eagle3Layer::Create(random_head.checkpoint(), std::move(*head), target, *model, 0);
  const auto num_after = num_threads();
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
  ASSERT_TRUE(layers.ok() && layer.ok());
  EXPECT_EQ(num_after, num_before);
}

INSTANTIATE_TEST_SUITE_P(Models, SpeculationTest,
                         ::testing::Values("llama", "gpt2", "mixtral", "mistral-swa"));

}  // namespace
}  // namespace nereid::cpu
