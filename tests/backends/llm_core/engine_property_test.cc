// The engine under random traffic, compared with a sequential model of each request alone. The
// tokens must be the same whatever else runs, whichever requests are cancelled while a step runs,
// and however small the cache is. No block may be lost, and no request may starve.
//
// All requests are sent and cancelled on the engine's thread, from within its steps, so that a seed
// determines the run.
#include <gtest/gtest.h>

#include <future>
#include <map>
#include <memory>
#include <random>

#include "backends/llm_core/engine/engine.h"
#include "backends/llm_core/engine/stop_criteria.h"
#include "tests/backends/llm_core/careless_drafter.h"
#include "tests/backends/llm_core/sequential_model.h"

namespace nereid::llm {
namespace {

using testing::CarelessDrafter;
using testing::CarelessShape;
using testing::ContinueAlone;
using testing::FakeExecutor;
using testing::NextToken;
using testing::SearchAlone;
using testing::SeedAlone;

constexpr int kNumRequests = 50;
constexpr int kMaxSteps = 20000;

struct EngineMode {
  const char* name;
  bool overlap = false;
  CapacityPolicy policy = CapacityPolicy::kGuaranteedNoEvict;
  bool prefix_cache = false;
  bool chunked = true;
  bool copies = true;
  int32_t window = 0;
  int32_t sinks = 0;
  int32_t long_rope_positions = 0;
  int32_t dynamic_rope_positions = 0;
  int32_t mixed = 0;
  bool polls_sinks = true;
  bool speculates = false;
  bool adapts_drafts = false;
  CarelessShape shape = CarelessShape::kChains;
  int32_t host_places = 0;  // for blocks outside the cache
  int32_t file_places = 0;
};

// A request without its sink, and its results so far.
struct TrackedRequest {
  GenerationRequest request;
  bool is_cancelled = false;
  bool is_open = true;
  std::map<int32_t, TokenIds> ids;  // by sequence
  std::map<int32_t, FinishReason> finish;
  Status error;
};

class Traffic;

class TrafficSink : public OutputSink {
 public:
  TrafficSink(Traffic* traffic, TrackedRequest* tracked) : traffic_(traffic), tracked_(tracked) {}

  bool IsCancelled() const override { return tracked_->is_cancelled; }
  StopResult OnToken(int32_t sequence_index, std::span<const int32_t> ids) override;
  void OnOutput(const SequenceOutput& output) override;
  void OnError(const Status& status) override;

 private:
  Traffic* const traffic_;
  TrackedRequest* const tracked_;
};

// Sends requests and cancels some of them in each step. [engine thread, except Start and Wait]
class Traffic {
 public:
  Traffic(uint32_t seed, int32_t vocab_size) : random_(seed), vocab_size_(vocab_size) {}

  void Start(Engine* engine) {
    engine_ = engine;
    SendOne();
  }
  void Wait() { ended_.get_future().wait(); }
  const std::vector<std::unique_ptr<TrackedRequest>>& all() const { return all_; }

  Status OnSubmit() {
    if (++num_steps_ > kMaxSteps) return InternalError("somebody starves");
    for (int n = Pick(0, 3); n > 0 && num_sent_ < kNumRequests; --n) SendOne();
    if (Pick(0, 5) == 0) CancelOne();
    return Status::Ok();
  }
  // Called while the results of a step are partly applied.
  void OnToken() {
    if (Pick(0, 60) == 0) CancelOne();
  }
  void OnEnd(TrackedRequest& tracked) {
    tracked.is_open = false;
    --num_open_;
    if (!tracked.error.ok()) num_sent_ = kNumRequests;  // the failed engine accepts no others
    while (num_open_ == 0 && num_sent_ < kNumRequests) SendOne();
    if (num_open_ == 0 && num_sent_ == kNumRequests) ended_.set_value();
  }

 private:
  int Pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

  // Prompts often share a prefix; end ids and stop words occur in some.
  GenerationRequest Draw() {
    GenerationRequest request;
    const int shared = Pick(0, 2) == 0 ? 0 : Pick(1, 30);
    const int family = Pick(0, 2);
    for (int i = 0; i < shared; ++i) request.prompt.push_back((family * 11 + i) % vocab_size_);
    for (int own = Pick(shared > 0 ? 0 : 1, 12); own > 0; --own) {
      request.prompt.push_back(Pick(0, vocab_size_ - 1));
    }
    request.stop.max_tokens = Pick(1, 18);
    if (Pick(0, 1) == 0) request.stop.end_ids = {Pick(0, vocab_size_ - 1)};
    if (Pick(0, 3) == 0) {
      request.stop.stop_words = {{Pick(0, vocab_size_ - 1)},
                                 {Pick(0, vocab_size_ - 1), Pick(0, vocab_size_ - 1)}};
    }
    request.priority = Pick(0, 2);
    request.cache_salt = static_cast<uint64_t>(Pick(0, 1));
    if (Pick(0, 2) == 0) {
      KvRetention retention;
      retention.ranges = {{Pick(0, static_cast<int>(request.prompt.size()) - 1), -1, Pick(0, 100),
                           Pick(0, 1) == 0 ? -1 : Pick(1, 20)}};
      if (Pick(0, 1) == 0) retention.decode_priority = Pick(0, 100);
      request.retention = std::make_shared<const KvRetention>(retention);
    }
    const int kind = Pick(0, 5);
    if (kind == 0) {  // several sampled sequences
      request.num_sequences = Pick(2, 4);
      request.sampling.top_k = 5;
      request.sampling.seed = random_() + 1;
    } else if (kind <= 2) {
      request.beams.width = Pick(2, 4);
      request.num_sequences = Pick(1, request.beams.width);
      request.beams.early_stopping = Pick(0, 1) == 0;
      request.beams.length_penalty = static_cast<float>(Pick(-1, 1));
      request.beams.diversity_rate = static_cast<float>(Pick(0, 1)) * 0.5f;
    } else if (kind == 3) {  // steps of such requests do not overlap
      request.returns_generation_logits = true;
      request.returns_prompt_log_probs = Pick(0, 1) == 0;
    }
    return request;
  }
  static std::unique_ptr<GenerationRequest> CopyOf(const GenerationRequest& request) {
    auto copy = std::make_unique<GenerationRequest>();
    copy->prompt = request.prompt;
    copy->sampling = request.sampling;
    copy->stop = request.stop;
    copy->num_sequences = request.num_sequences;
    copy->beams = request.beams;
    copy->priority = request.priority;
    copy->cache_salt = request.cache_salt;
    copy->returns_generation_logits = request.returns_generation_logits;
    copy->returns_prompt_log_probs = request.returns_prompt_log_probs;
    return copy;
  }
  // Sends random requests until one is accepted.
  void SendOne() {
    while (num_sent_ < kNumRequests) {
      auto tracked = std::make_unique<TrackedRequest>();
      tracked->request = Draw();
      auto request = CopyOf(tracked->request);
      request->sink = std::make_unique<TrafficSink>(this, tracked.get());
      all_.push_back(std::move(tracked));
      ++num_sent_;
      ++num_open_;
      if (engine_->Enqueue(request).ok()) return;  // the engine may run from here on
      --num_sent_;
      --num_open_;
      all_.pop_back();
    }
  }
  void CancelOne() {
    TrackedRequest& tracked =
        *all_[static_cast<size_t>(Pick(0, static_cast<int>(all_.size()) - 1))];
    if (!tracked.is_open) return;
    tracked.is_cancelled = true;
    engine_->CheckCancellations();
  }

  std::mt19937 random_;
  const int32_t vocab_size_;
  Engine* engine_ = nullptr;
  std::vector<std::unique_ptr<TrackedRequest>> all_;
  int num_sent_ = 0;
  int num_open_ = 0;
  int num_steps_ = 0;
  std::promise<void> ended_;
};

StopResult TrafficSink::OnToken(int32_t sequence_index, std::span<const int32_t> ids) {
  traffic_->OnToken();
  return OutputSink::OnToken(sequence_index, ids);
}

void TrafficSink::OnOutput(const SequenceOutput& output) {
  const int32_t index = output.sequence_index;
  EXPECT_EQ(tracked_->finish.count(index), 0u) << "output behind the end of sequence " << index;
  tracked_->ids[index].assign(output.ids.begin(), output.ids.end());
  if (output.finish == FinishReason::kNone) return;
  tracked_->finish[index] = output.finish;
  if (static_cast<int32_t>(tracked_->finish.size()) == tracked_->request.num_sequences) {
    traffic_->OnEnd(*tracked_);
  }
}

void TrafficSink::OnError(const Status& status) {
  tracked_->error = status;
  traffic_->OnEnd(*tracked_);
}

class EnginePropertyTest : public ::testing::TestWithParam<EngineMode> {
 protected:
  void Run(uint32_t seed) {
    std::mt19937 random(seed);
    ExecutorLimits limits = {.vocab_size = 40,
                             .max_positions = 64,
                             .max_num_sequences = 6,
                             .max_num_tokens = 16,
                             .block_size = 4,
                             .num_blocks = std::uniform_int_distribution<int>(12, 60)(random)};
    limits.attention_window = GetParam().window;
    limits.num_sink_tokens = GetParam().sinks;
    limits.long_rope_positions = GetParam().long_rope_positions;
    limits.dynamic_rope_positions = GetParam().dynamic_rope_positions;
    limits.max_num_sampled = limits.max_num_sequences + 6;
    Traffic traffic(seed, limits.vocab_size);
    auto executor =
        std::make_unique<FakeExecutor>(limits, ExecutorFeatures{.block_copies = GetParam().copies,
                                                                .candidates = true,
                                                                .logits = true,
                                                                .prompt_log_probs = true,
                                                                .draft_tokens = true,
                                                                .draft_trees = true,
                                                                .overlap = GetParam().overlap});
    if (GetParam().host_places + GetParam().file_places > 0) {
      executor->KeepBlocks(GetParam().host_places, GetParam().file_places, seed);
    }
    executor->on_submit = [&](const StepBatch& batch) {
      int32_t num_sampled = 0;
      for (const BatchEntry& entry : batch.entries)
        num_sampled += entry.samples ? 1 + entry.num_draft_tokens : 0;
      EXPECT_LE(num_sampled, limits.max_num_sampled);
      return traffic.OnSubmit();
    };
    EngineOptions options = Options();
    if (GetParam().speculates) {
      const auto next = [limits](std::span<const int32_t> tokens) {
        return NextToken(tokens, limits);
      };
      auto drafter =
          std::make_shared<CarelessDrafter>(seed, limits.vocab_size, 4, next, GetParam().shape);
      drafter->on_row = [this, next](std::span<const int32_t> tokens, int32_t row_token) {
        EXPECT_EQ(row_token, next(tokens));
        ++num_rows_;
      };
      options.speculation.drafter = std::move(drafter);
      options.speculation.adapts_length = GetParam().adapts_drafts;
    }
    Engine engine(std::move(options), std::move(executor));
    traffic.Start(&engine);
    traffic.Wait();
    // Wait for the end of the step.
    while (engine.stats().counts.num_running > 0) std::this_thread::yield();
    EXPECT_TRUE(engine.health().ok()) << engine.health().message();
    EXPECT_EQ(engine.stats().num_used_blocks, 0);
    num_preemptions_ += engine.stats().counts.num_preemptions;
    num_drafted_ += engine.stats().speculation.num_drafted;
    num_accepted_ += engine.stats().speculation.num_accepted;
    num_reused_ += engine.stats().counts.num_reused_blocks;
    num_fetched_ += engine.stats().counts.num_fetched_blocks;
    for (size_t i = 0; i < traffic.all().size(); ++i) {
      SCOPED_TRACE(i);
      Check(*traffic.all()[i], limits);
    }
  }

  EngineOptions Options() {
    EngineOptions options;
    options.scheduler.policy = GetParam().policy;
    options.scheduler.chunked_prefill = GetParam().chunked;
    options.scheduler.prefix_cache = GetParam().prefix_cache;
    options.scheduler.mixed_step_tokens = GetParam().mixed;
    options.scheduler.steps_per_priority = 50;
    options.polls_sinks = GetParam().polls_sinks;
    options.on_check = [](const Status& status) { EXPECT_TRUE(status.ok()) << status.message(); };
    return options;
  }

  void Check(const TrackedRequest& tracked, const ExecutorLimits& limits) {
    ASSERT_TRUE(tracked.error.ok()) << tracked.error.message();
    const GenerationRequest& request = tracked.request;
    ASSERT_EQ(static_cast<int32_t>(tracked.finish.size()), request.num_sequences);
    std::vector<BeamHypothesis> beams;
    if (request.uses_beams()) beams = SearchAlone(request, limits);
    for (const auto& [index, finish] : tracked.finish) {
      SCOPED_TRACE(index);
      const TokenIds& ids = tracked.ids.at(index);
      if (finish == FinishReason::kCancelled) {
        EXPECT_TRUE(tracked.is_cancelled);
        ++num_cancelled_[request.uses_beams()];
      }
      if (!request.uses_beams()) {
        CheckDrawn(request, index, ids, finish, limits);
      } else if (finish == FinishReason::kCancelled) {
        EXPECT_TRUE(ids.empty());
      } else {
        const bool is_there = static_cast<size_t>(index) < beams.size();
        EXPECT_EQ(ids, is_there ? beams[index].ids : TokenIds());
        EXPECT_EQ(finish, is_there ? beams[index].finish : FinishReason::kStop);
      }
    }
  }
  // Checks the tokens of a cancelled request as far as they were emitted. A stop word that had
  // begun is then visible.
  static void CheckDrawn(const GenerationRequest& request, int32_t index, const TokenIds& ids,
                         FinishReason finish, const ExecutorLimits& limits) {
    const TokenIds all =
        ContinueAlone(request.prompt, request.stop.max_tokens, limits, SeedAlone(request, index));
    StopResult verdict;
    size_t num_drawn = 0;
    while (verdict.finish == FinishReason::kNone) {
      verdict = CheckStop(request.stop, std::span<const int32_t>(all).first(++num_drawn));
    }
    if (finish == FinishReason::kCancelled) {
      ASSERT_LT(ids.size(), num_drawn);
      EXPECT_TRUE(std::equal(ids.begin(), ids.end(), all.begin()));
      return;
    }
    EXPECT_EQ(finish, verdict.finish);
    EXPECT_EQ(ids, TokenIds(all.begin(), all.begin() + verdict.num_visible));
  }

  int64_t num_preemptions_ = 0;
  int64_t num_reused_ = 0;
  int64_t num_fetched_ = 0;
  int64_t num_drafted_ = 0;
  int64_t num_accepted_ = 0;
  int64_t num_rows_ = 0;
  std::map<bool, int> num_cancelled_;  // with beam search: true, others: false
};

TEST_P(EnginePropertyTest, EveryRequestGetsTheResultThatItGetsAlone) {
  for (uint32_t seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE(seed);
    Run(seed);
    if (HasFailure()) return;
  }
  EXPECT_GT(num_cancelled_[true], 0);
  EXPECT_GT(num_cancelled_[false], 0);
  EXPECT_EQ(num_accepted_ > 0, GetParam().speculates);
  EXPECT_EQ(num_drafted_ > num_accepted_, GetParam().speculates);
  EXPECT_EQ(num_rows_ > 0, GetParam().shape == CarelessShape::kTreesWithRows);
  EXPECT_EQ(num_reused_ > 0, GetParam().prefix_cache);
  EXPECT_EQ(num_fetched_ > 0, GetParam().host_places + GetParam().file_places > 0);
  EXPECT_EQ(num_preemptions_ > 0, GetParam().policy == CapacityPolicy::kMaxUtilization ||
                                      GetParam().long_rope_positions > 0);
}

constexpr auto kEvict = CapacityPolicy::kMaxUtilization;

INSTANTIATE_TEST_SUITE_P(
    Modes, EnginePropertyTest,
    ::testing::Values(
        EngineMode{.name = "Plain"}, EngineMode{.name = "Overlap", .overlap = true},
        EngineMode{.name = "Prefix", .prefix_cache = true},
        EngineMode{
            .name = "OverlapPrefix", .overlap = true, .prefix_cache = true, .polls_sinks = false},
        EngineMode{.name = "OverlapWhole", .overlap = true, .chunked = false},
        EngineMode{.name = "EvictMixed", .policy = kEvict, .mixed = 3},
        EngineMode{.name = "OverlapEvictPrefixMixed",
                   .overlap = true,
                   .policy = kEvict,
                   .prefix_cache = true,
                   .mixed = 3,
                   .polls_sinks = false},
        EngineMode{
            .name = "EvictPrefixNoCopies", .policy = kEvict, .prefix_cache = true, .copies = false},
        EngineMode{.name = "OverlapEvictWindowPrefixSinks",
                   .overlap = true,
                   .policy = kEvict,
                   .prefix_cache = true,
                   .window = 13,
                   .sinks = 5},
        EngineMode{.name = "WindowPrefix", .prefix_cache = true, .window = 10},
        EngineMode{.name = "OverlapWindow", .overlap = true, .window = 10},
        EngineMode{.name = "OverlapEvictLongPrefix",
                   .overlap = true,
                   .policy = kEvict,
                   .prefix_cache = true,
                   .long_rope_positions = 20},
        EngineMode{.name = "LongPrefixWindow",
                   .prefix_cache = true,
                   .window = 13,
                   .long_rope_positions = 17},
        EngineMode{.name = "OverlapEvictDynamicPrefix",
                   .overlap = true,
                   .policy = kEvict,
                   .prefix_cache = true,
                   .dynamic_rope_positions = 16},
        EngineMode{.name = "Drafts", .speculates = true},
        EngineMode{.name = "DraftsOfAdaptedLength", .speculates = true, .adapts_drafts = true},
        EngineMode{.name = "Trees", .speculates = true, .shape = CarelessShape::kTrees},
        EngineMode{.name = "TreesWithRowsEvictPrefixMixed",
                   .policy = kEvict,
                   .prefix_cache = true,
                   .mixed = 3,
                   .polls_sinks = false,
                   .speculates = true,
                   .shape = CarelessShape::kTreesWithRows},
        EngineMode{.name = "TreesOfAdaptedSizeOverlap",
                   .overlap = true,
                   .prefix_cache = true,
                   .speculates = true,
                   .adapts_drafts = true,
                   .shape = CarelessShape::kTrees},
        EngineMode{.name = "TreesOverlapEvictWindowPrefixSinks",
                   .overlap = true,
                   .policy = kEvict,
                   .prefix_cache = true,
                   .window = 13,
                   .sinks = 5,
                   .speculates = true,
                   .shape = CarelessShape::kTreesWithRows},
        EngineMode{.name = "TreesEvictLongPrefix",
                   .policy = kEvict,
                   .prefix_cache = true,
                   .long_rope_positions = 20,
                   .speculates = true,
                   .shape = CarelessShape::kTrees},
        EngineMode{.name = "OverlapWhereDraftsDoNotPay",
                   .overlap = true,
                   .prefix_cache = true,
                   .speculates = true,
                   .adapts_drafts = true},
        EngineMode{.name = "DraftsOverlapEvictPrefixMixed",
                   .overlap = true,
                   .policy = kEvict,
                   .prefix_cache = true,
                   .mixed = 3,
                   .polls_sinks = false,
                   .speculates = true},
        EngineMode{.name = "DraftsEvictWindowPrefixSinks",
                   .policy = kEvict,
                   .prefix_cache = true,
                   .window = 13,
                   .sinks = 5,
                   .speculates = true},
        EngineMode{.name = "DraftsWindowWhole",
                   .chunked = false,
                   .copies = false,
                   .window = 10,
                   .speculates = true},
        EngineMode{.name = "DraftsEvictLongPrefix",
                   .policy = kEvict,
                   .prefix_cache = true,
                   .long_rope_positions = 20,
                   .speculates = true},
        EngineMode{.name = "HostMemory", .prefix_cache = true, .host_places = 60},
        EngineMode{.name = "OverlapEvictHostMemoryMixed",
                   .overlap = true,
                   .policy = kEvict,
                   .prefix_cache = true,
                   .mixed = 3,
                   .polls_sinks = false,
                   .host_places = 25},
        EngineMode{.name = "OverlapHostMemoryAndFile",
                   .overlap = true,
                   .prefix_cache = true,
                   .host_places = 9,
                   .file_places = 40},
        EngineMode{.name = "EvictFileNoCopies",
                   .policy = kEvict,
                   .prefix_cache = true,
                   .copies = false,
                   .file_places = 30},
        EngineMode{.name = "DraftsOverlapEvictHostMemoryAndFileWindowSinks",
                   .overlap = true,
                   .policy = kEvict,
                   .prefix_cache = true,
                   .window = 13,
                   .sinks = 5,
                   .speculates = true,
                   .host_places = 20,
                   .file_places = 20},
        EngineMode{.name = "OverlapEvictHostMemoryLongDynamic",
                   .overlap = true,
                   .policy = kEvict,
                   .prefix_cache = true,
                   .long_rope_positions = 20,
                   .dynamic_rope_positions = 16,
                   .host_places = 30},
        EngineMode{.name = "DraftsOverlapDynamicPrefix",
                   .overlap = true,
                   .prefix_cache = true,
                   .dynamic_rope_positions = 16,
                   .speculates = true}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace nereid::llm
