// Everything together: requests with random LoRA adapters, prompt embeddings, grammars, draft
// tokens, beams, several sequences and kept logits get the same answers, bit for bit, as alone in
// an engine without drafts and without a prefix cache. Chunks, preemptions and cached prefixes
// occur in all combinations.
#include <gtest/gtest.h>

#include <future>
#include <map>
#include <random>

#include "backends/cpu_reference/cpu_executor.h"
#include "backends/llm_core/engine/engine.h"
#include "backends/llm_core/grammar/grammar.h"
#include "backends/llm_core/lora/peft_adapter.h"
#include "backends/llm_core/prompt/virtual_tokens.h"
#include "backends/llm_core/speculation/lookahead_drafter.h"
#include "tests/backends/cpu_reference/golden.h"
#include "tests/backends/llm_core/adapter_files.h"
#include "tests/backends/llm_core/careless_drafter.h"
#include "tests/support/test_folder.h"

namespace nereid::cpu {
namespace {

using llm::grammar::Grammar;

constexpr int32_t kVocab = 512;
constexpr int32_t kEndId = 1;

// What a client gets of one sequence.
struct CombinedOutput {
  llm::TokenIds ids;
  std::vector<float> log_probs, context_logits, generation_logits;
  llm::FinishReason finish = llm::FinishReason::kNone;
  bool operator==(const CombinedOutput&) const = default;
};

struct CombinedAnswer {
  std::map<int32_t, CombinedOutput> sequences;
  std::string error;
  bool operator==(const CombinedAnswer&) const = default;
};

class CombinedSink : public llm::OutputSink {
 public:
  CombinedSink(int32_t num_sequences, std::promise<CombinedAnswer> promise)
      : num_open_(num_sequences), promise_(std::move(promise)) {}

  bool IsCancelled() const override { return false; }
  void OnOutput(const llm::SequenceOutput& output) override {
    CombinedOutput& to = answer_.sequences[output.sequence_index];
    to.context_logits.insert(to.context_logits.end(), output.context_logits.begin(),
                             output.context_logits.end());
    if (output.finish == llm::FinishReason::kNone) return;
    to.ids.assign(output.ids.begin(), output.ids.end());
    to.log_probs.assign(output.log_probs.begin(), output.log_probs.end());
    to.generation_logits.assign(output.generation_logits.begin(), output.generation_logits.end());
    to.finish = output.finish;
    if (--num_open_ == 0) promise_.set_value(std::move(answer_));
  }
  void OnError(const Status& status) override {
    answer_.error = status.message();
    promise_.set_value(std::move(answer_));
  }

 private:
  int32_t num_open_;
  CombinedAnswer answer_;
  std::promise<CombinedAnswer> promise_;
};

// Proposes what earlier answers had, with faults. It compares ids only.
class KnowingDrafter : public llm::testing::CarelessDrafter {
 public:
  KnowingDrafter(std::shared_ptr<const std::vector<llm::TokenIds>> known,
                 llm::testing::CarelessShape shape)
      : CarelessDrafter(
            5, kVocab, 6,
            [known](std::span<const int32_t> tokens) {
              for (const llm::TokenIds& each : *known) {
                if (each.size() <= tokens.size()) continue;
                if (std::equal(tokens.begin(), tokens.end(), each.begin()))
                  return each[tokens.size()];
              }
              return 0;
            },
            shape) {}
  bool reads_virtual_tokens() const override { return true; }
};

// Everything of the model that requests may use.
class CombinationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = testing::FindTiny("llama");
    if (directory_.empty()) GTEST_SKIP() << "no test data for llama";
    checkpoint_ = std::make_shared<const llm::Checkpoint>(*llm::Checkpoint::Open(directory_));
    const llm::DecoderModel model = *llm::ReadDecoder(*checkpoint_);
    hidden_size_ = model.spec.hidden_size;
    const auto targets = llm::LoraTargets::Of(model.map, model.spec.num_layers());
    for (uint32_t seed = 1; seed <= 3; ++seed) {
      const std::string folder = folder_ / "" + std::to_string(seed);
      llm::testing::FloatTensors tensors;
      for (const auto& [name, tensor] : checkpoint_->tensors()) {
        if (!name.ends_with("proj.weight")) continue;
        llm::testing::AddModule(name.substr(0, name.size() - 7), tensor.shape[0], tensor.shape[1],
                                seed, ++seed_, tensors);
      }
      llm::testing::WriteAdapter(folder, R"({"r":)" + std::to_string(seed) + R"(,"lora_alpha":2})",
                                 tensors);
      const auto read = llm::ReadPeftAdapter(std::to_string(seed), folder, targets, 8);
      ASSERT_TRUE(read.ok()) << read.status().message();
      adapters_.push_back(*read);
    }
    std::vector<std::string> texts(kVocab);
    for (int32_t id = 2; id < kVocab; ++id) {
      texts[id] = std::string(1 + id % 3, static_cast<char>('a' + id % 26));
    }
    vocabulary_ = *llm::grammar::Vocabulary::Make(texts, {kEndId});
    for (const char* regex : {"([a-f]+x)*", "[a-z]{3,9}(yy|zz)", "(ab|[g-k]|r)*w"}) {
      grammars_.push_back(*Grammar::FromRegex(regex, vocabulary_));
    }
  }

  int Pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

  // Rows of one of few tables, at the beginning or at random places.
  void DrawEmbeddings(llm::GenerationRequest& request) {
    auto embeddings = std::make_shared<llm::PromptEmbeddings>();
    embeddings->input_name = "prompt_embedding_table";
    embeddings->vocab_size = kVocab;
    embeddings->hidden_size = hidden_size_;
    const int num_rows = Pick(1, 6);
    const auto table =
        llm::testing::MakeTensor({num_rows, hidden_size_}, static_cast<uint32_t>(Pick(1, 3)), 2.0f);
    embeddings->rows = table.values;
    embeddings->extra_ids.assign(num_rows, 0);
    const bool is_prefix = Pick(0, 1) == 0;
    for (size_t i = 0; i < request.prompt.size(); ++i) {
      const bool is_row = is_prefix ? i < 20 : Pick(0, 3) == 0;
      embeddings->row_of.push_back(is_row ? static_cast<int32_t>(i) % num_rows : -1);
    }
    virtual_tokens_.Assign(*embeddings);
    embeddings->SetIds(request.prompt);
    request.embeddings = std::move(embeddings);
  }

  // All of a request but its sink.
  llm::GenerationRequest Draw() {
    llm::GenerationRequest request;
    const int shared = Pick(0, 2) == 0 ? 0 : Pick(17, 50);
    for (int32_t i = 0; i < shared; ++i) request.prompt.push_back(i);
    for (int own = Pick(1, 12); own > 0; --own) request.prompt.push_back(Pick(0, kVocab - 1));
    if (Pick(0, 1) == 0) request.adapter = adapters_[Pick(0, 2)];
    if (Pick(0, 1) == 0) DrawEmbeddings(request);
    request.stop.max_tokens = Pick(1, 24);
    request.stop.end_ids = {kEndId};
    request.sampling.returns_log_probs = Pick(0, 1) == 0;
    if (Pick(0, 1) == 0) {
      request.sampling.top_k = 20;
      request.sampling.seed = random_();
    }
    if (Pick(0, 2) == 0) request.sampling.repetition_penalty = 1.3f;
    if (Pick(0, 3) == 0) request.sampling.frequency_penalty = 0.3f;
    if (Pick(0, 3) == 0) request.sampling.no_repeat_ngram_size = 2;
    request.returns_context_logits = Pick(0, 3) == 0;
    request.returns_generation_logits = Pick(0, 3) == 0;
    if (Pick(0, 2) == 0) request.lookahead = {Pick(1, 5), Pick(2, 4), Pick(1, 4)};
    const int kind = Pick(0, 5);
    if (kind <= 1) {
      request.grammar = grammars_[Pick(0, 2)];
    } else if (kind == 2) {
      request.beams.width = 3;
      request.num_sequences = 2;
    } else if (kind == 3) {
      request.num_sequences = Pick(2, 3);
    }
    return request;
  }

  static std::future<CombinedAnswer> Send(llm::Engine& engine, const llm::GenerationRequest& work) {
    auto request = std::make_unique<llm::GenerationRequest>();
    request->prompt = work.prompt;
    request->sampling = work.sampling;
    request->stop = work.stop;
    request->num_sequences = work.num_sequences;
    request->beams = work.beams;
    request->grammar = work.grammar;
    request->adapter = work.adapter;
    request->embeddings = work.embeddings;
    request->lookahead = work.lookahead;
    request->returns_context_logits = work.returns_context_logits;
    request->returns_generation_logits = work.returns_generation_logits;
    std::promise<CombinedAnswer> promise;
    std::future<CombinedAnswer> answer = promise.get_future();
    request->sink = std::make_unique<CombinedSink>(work.num_sequences, std::move(promise));
    const Status queued = engine.Enqueue(request);
    EXPECT_TRUE(queued.ok()) << queued.message();
    return answer;
  }

  std::unique_ptr<llm::Engine> StartEngine(llm::EngineOptions options, int64_t max_cache_tokens,
                                           int32_t max_num_tokens) {
    CpuExecutorOptions executor_options;
    executor_options.num_threads = 1;
    executor_options.max_num_sequences = 6;
    executor_options.max_num_tokens = max_num_tokens;
    executor_options.max_positions = 128;
    executor_options.max_cache_tokens = max_cache_tokens;
    auto executor =
        CpuExecutor::Create(checkpoint_, *llm::ReadDecoder(*checkpoint_), executor_options);
    options.on_check = [](const Status& status) { EXPECT_TRUE(status.ok()) << status.message(); };
    return std::make_unique<llm::Engine>(std::move(options), std::move(*executor));
  }

  std::mt19937 random_{17};
  std::string directory_;
  TestFolder folder_;
  uint32_t seed_ = 0;
  std::shared_ptr<const llm::Checkpoint> checkpoint_;
  int32_t hidden_size_ = 0;
  std::vector<std::shared_ptr<const llm::LoraAdapter>> adapters_;
  std::shared_ptr<const llm::grammar::Vocabulary> vocabulary_;
  std::vector<std::shared_ptr<const Grammar>> grammars_;
  llm::VirtualTokens virtual_tokens_{kVocab};
};

TEST_F(CombinationTest, RandomRequestsGetTheAnswersThatTheyGetAlone) {
  std::vector<llm::GenerationRequest> work;
  for (int i = 0; i < 80; ++i) work.push_back(Draw());
  std::vector<CombinedAnswer> alone;
  const auto known = std::make_shared<std::vector<llm::TokenIds>>();
  {
    const auto engine = StartEngine({}, 1024, 256);
    for (const llm::GenerationRequest& request : work) {
      alone.push_back(Send(*engine, request).get());
      for (const auto& [index, sequence] : alone.back().sequences) {
        known->push_back(request.prompt);
        known->back().insert(known->back().end(), sequence.ids.begin(), sequence.ids.end());
      }
    }
  }
  int64_t num_preemptions = 0;
  using llm::testing::CarelessShape;
  struct Run {
    int32_t max_num_tokens;
    std::shared_ptr<llm::Drafter> drafter;
    int32_t max_draft_tokens = 8;
  };
  const auto knowing = [&](CarelessShape shape) {
    return std::make_shared<KnowingDrafter>(known, shape);
  };
  constexpr llm::LookaheadSizes kSizes = {5, 4, 4};
  for (const auto& [max_num_tokens, drafter, max_draft_tokens] :
       {Run{12, knowing(CarelessShape::kChains)}, Run{100, knowing(CarelessShape::kChains)},
        Run{100, knowing(CarelessShape::kTrees), 20},
        Run{200, knowing(CarelessShape::kTreesWithRows), 20},
        Run{200, std::make_shared<llm::LookaheadDrafter>(kSizes),
            static_cast<int32_t>(kSizes.num_drafts())}}) {
    llm::EngineOptions options;
    options.scheduler.policy = llm::CapacityPolicy::kMaxUtilization;
    options.scheduler.prefix_cache = true;
    options.speculation.drafter = drafter;
    options.speculation.max_draft_tokens = max_draft_tokens;
    options.speculation.adapts_length = false;
    const auto engine = StartEngine(std::move(options), 208, max_num_tokens);
    std::vector<std::future<CombinedAnswer>> answers;
    for (size_t i = 0; i < work.size(); ++i) {
      answers.push_back(Send(*engine, work[i]));
      if (i % 10 == 9) answers[i - 6].wait();  // later requests arrive while others run
    }
    for (size_t i = 0; i < work.size(); ++i) {
      SCOPED_TRACE(i);
      EXPECT_EQ(answers[i].get(), alone[i]);
    }
    num_preemptions += engine->stats().counts.num_preemptions;
    EXPECT_GT(engine->stats().counts.num_reused_blocks, 0);
    EXPECT_GT(engine->stats().speculation.num_accepted, 0);
  }
  EXPECT_GT(num_preemptions, 0);
}

// Only the sequence's own embeddings are found again, whatever their numbers in the table are.
TEST_F(CombinationTest, CachedPrefixesBelongToTheContentOfTheRows) {
  const auto request_of = [&](uint32_t seed, int32_t first_row) {
    auto embeddings = std::make_shared<llm::PromptEmbeddings>();
    embeddings->vocab_size = kVocab;
    embeddings->hidden_size = hidden_size_;
    embeddings->rows = llm::testing::MakeTensor({2, hidden_size_}, seed, 2.0f).values;
    embeddings->extra_ids = {0, 0};
    llm::GenerationRequest request;
    for (int32_t i = 0; i < 40; ++i) {
      request.prompt.push_back(i);
      embeddings->row_of.push_back(i < 2 ? (first_row + i) % 2 : -1);
    }
    virtual_tokens_.Assign(*embeddings);
    embeddings->SetIds(request.prompt);
    request.embeddings = std::move(embeddings);
    request.stop.max_tokens = 6;
    return request;
  };
  llm::EngineOptions options;
  options.scheduler.prefix_cache = true;
  const auto engine = StartEngine(std::move(options), 1024, 256);
  const auto num_reused = [&](const llm::GenerationRequest& request) {
    const int64_t before = engine->stats().counts.num_reused_blocks;
    EXPECT_EQ(Send(*engine, request).get().error, "");
    while (engine->stats().counts.num_running > 0) std::this_thread::yield();
    return engine->stats().counts.num_reused_blocks - before;
  };
  EXPECT_EQ(num_reused(request_of(1, 0)), 0);
  EXPECT_EQ(num_reused(request_of(2, 0)), 0);
  EXPECT_EQ(num_reused(request_of(1, 1)), 0);  // the same table, but its rows in another order
  EXPECT_EQ(num_reused(request_of(1, 0)), 2);
  EXPECT_EQ(num_reused(request_of(2, 0)), 2);
  llm::GenerationRequest plain;
  for (int32_t i = 0; i < 40; ++i) plain.prompt.push_back(i);
  plain.stop.max_tokens = 6;
  EXPECT_EQ(num_reused(plain), 0);
}

// An n-gram of the prompt may continue with a virtual token, which is no draft.
TEST_F(CombinationTest, DraftsEndBeforeVirtualTokens) {
  class RowDrafter : public llm::Drafter {
   public:
    std::string_view name() const override { return "rows"; }
    bool reads_virtual_tokens() const override { return true; }
    void Propose(std::span<llm::DraftQuery> queries) override {
      for (llm::DraftQuery& query : queries) {
        query.drafts->assign({7, kVocab + 3, 8});
        query.drafts->resize(std::min<size_t>(3, query.max_drafts));
      }
    }
  };
  llm::EngineOptions options;
  options.speculation.drafter = std::make_shared<RowDrafter>();
  options.speculation.adapts_length = false;
  const auto engine = StartEngine(std::move(options), 1024, 256);
  llm::GenerationRequest request;
  request.prompt = {5, 6, 7};
  DrawEmbeddings(request);
  request.stop.max_tokens = 5;
  EXPECT_EQ(Send(*engine, request).get().sequences.at(0).ids.size(), 5u);
  EXPECT_LE(engine->stats().speculation.num_drafted, 4);  // one a step, not three
  EXPECT_GT(engine->stats().speculation.num_drafted, 0);
}

}  // namespace
}  // namespace nereid::cpu
