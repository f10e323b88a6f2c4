// Blocks that were kept in host memory or in a file change no answer: random conversations get the
// same tokens and log probabilities, bit for bit, with a cache that is too small, with
// preemptions, with cancellations, and after a restart.
#include <gtest/gtest.h>

#include <future>
#include <random>

#include "backends/cpu_reference/cpu_executor.h"
#include "backends/llm_core/engine/engine.h"
#include "tests/backends/cpu_reference/golden.h"
#include "tests/backends/cpu_reference/scored_answer.h"
#include "tests/backends/llm_core/checkpoint_files.h"
#include "tests/support/sanitizer.h"
#include "tests/support/test_folder.h"

namespace nereid::cpu {
namespace {

using testing::ScoredAnswer;

struct TierSetting {
  int64_t max_cache_tokens = 0;
  llm::CapacityPolicy policy = llm::CapacityPolicy::kGuaranteedNoEvict;
  bool prefix_cache = true;
  KvFormat kv_format = KvFormat::kFloat;
  llm::KvTierOptions tiers = {};
};

std::unique_ptr<llm::Engine> StartTieredEngine(const std::string& directory,
                                               const TierSetting& setting) {
  Result<llm::Checkpoint> opened = llm::Checkpoint::Open(directory);
  auto checkpoint = std::make_shared<const llm::Checkpoint>(std::move(*opened));
  CpuExecutorOptions options;
  options.num_threads = 1;
  options.max_num_sequences = 6;
  options.max_num_tokens = 48;
  options.max_cache_tokens = setting.max_cache_tokens;
  options.kv_format = setting.kv_format;
  options.tiers = setting.tiers;
  auto model = llm::ReadDecoder(*checkpoint);
  auto executor = CpuExecutor::Create(std::move(checkpoint), std::move(*model), options);
  EXPECT_TRUE(executor.ok()) << executor.status().message();
  llm::EngineOptions engine_options;
  engine_options.scheduler.policy = setting.policy;
  engine_options.scheduler.prefix_cache = setting.prefix_cache;
  engine_options.on_check = [](const Status& status) {
    EXPECT_TRUE(status.ok()) << status.message();
  };
  return std::make_unique<llm::Engine>(std::move(engine_options), std::move(*executor));
}

struct Turn {
  llm::TokenIds prompt;
  int32_t max_tokens;
  uint64_t seed;  // 0: greedy
  std::shared_ptr<const llm::KvRetention> retention;
};

std::future<ScoredAnswer> Send(llm::Engine& engine, const Turn& turn, bool is_cancelled = false) {
  auto request = std::make_unique<llm::GenerationRequest>();
  request->prompt = turn.prompt;
  request->stop.max_tokens = turn.max_tokens;
  request->sampling.top_k = turn.seed == 0 ? 1 : 20;
  request->sampling.seed = turn.seed;
  request->retention = turn.retention;
  return testing::SendScored(engine, std::move(request), is_cancelled ? 1 : 0);
}

// The turns of some conversations: each has its conversation's beginning, a bit more each time.
std::vector<Turn> DrawTurns(uint32_t seed) {
  std::mt19937 random(seed);
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  std::vector<llm::TokenIds> conversations(5);
  std::vector<Turn> turns;
  for (int i = 0; i < (kHasSanitizer ? 20 : 40); ++i) {
    llm::TokenIds& conversation = conversations[pick(0, 4)];
    if (conversation.size() > 90) conversation.clear();
    for (int n = pick(10, 40); n > 0; --n) conversation.push_back(pick(0, 250));
    Turn turn = {conversation, pick(1, 20), pick(0, 1) == 0 ? 0u : random(), nullptr};
    if (pick(0, 3) == 0) {
      llm::KvRetention retention;
      retention.ranges = {{0, -1, pick(0, 100), -1}};
      turn.retention = std::make_shared<const llm::KvRetention>(retention);
    }
    turns.push_back(std::move(turn));
  }
  return turns;
}

class KvTiersTest : public ::testing::TestWithParam<const char*> {};

TEST_P(KvTiersTest, RandomConversationsGetTheAnswersThatTheyGetWithout) {
  const std::string directory = testing::FindTiny(GetParam());
  if (directory.empty()) GTEST_SKIP() << "no test data for " << GetParam();
  const TestFolder folder;
  llm::KvTierOptions host, file, both;
  host.host_bytes = both.host_bytes = int64_t{1} << 20;
  file.file_path = folder / "file";
  both.file_path = folder / "both";
  file.file_bytes = both.file_bytes = int64_t{4} << 20;
  constexpr auto kEvict = llm::CapacityPolicy::kMaxUtilization;
  const std::vector<Turn> turns = DrawTurns(31);
  for (const TierSetting& setting :
       {TierSetting{.max_cache_tokens = 256, .tiers = host},
        TierSetting{.max_cache_tokens = 256, .policy = kEvict, .tiers = both},
        TierSetting{.max_cache_tokens = 256, .policy = kEvict, .tiers = both},  // a restart
        TierSetting{.max_cache_tokens = 288, .kv_format = KvFormat::kInt8, .tiers = file},
        TierSetting{.max_cache_tokens = 288, .kv_format = KvFormat::kInt8, .tiers = file}}) {
    std::vector<ScoredAnswer> plain;
    {
      const auto engine = StartTieredEngine(
          directory, {.prefix_cache = false, .kv_format = setting.kv_format, .tiers = {}});
      for (const Turn& turn : turns) plain.push_back(Send(*engine, turn).get());
    }
    const auto engine = StartTieredEngine(directory, setting);
    std::vector<std::future<ScoredAnswer>> answers, cancelled;
    for (size_t i = 0; i < turns.size(); ++i) {
      answers.push_back(Send(*engine, turns[i]));
      if (i % 4 == 1) cancelled.push_back(Send(*engine, turns[turns.size() - 1 - i], true));
      if (i % 3 == 2) answers[i - 1].wait();  // later requests arrive while others run
    }
    for (size_t i = 0; i < turns.size(); ++i) {
      SCOPED_TRACE(i);
      EXPECT_EQ(answers[i].get(), plain[i]);
    }
    for (auto& each : cancelled) each.wait();
    EXPECT_GT(engine->stats().counts.num_kept_blocks, 0);
    EXPECT_TRUE(engine->health().ok()) << engine->health().message();
    if (HasFailure()) return;
  }
}

TEST_P(KvTiersTest, ARestartedServerFetchesWhatItHadComputed) {
  const std::string directory = testing::FindTiny(GetParam());
  if (directory.empty()) GTEST_SKIP() << "no test data for " << GetParam();
  const TestFolder folder;
  llm::KvTierOptions tiers;
  tiers.file_path = folder / "blocks";
  tiers.file_bytes = int64_t{8} << 20;
  Turn turn = {{}, 4, 0, nullptr};
  for (int32_t i = 0; i < 81; ++i) turn.prompt.push_back(i % 97);
  ScoredAnswer first;
  {
    const auto engine = StartTieredEngine(directory, {.max_cache_tokens = 256, .tiers = tiers});
    first = Send(*engine, turn).get();
  }
  const auto engine = StartTieredEngine(directory, {.max_cache_tokens = 256, .tiers = tiers});
  EXPECT_EQ(Send(*engine, turn).get(), first);
  EXPECT_EQ(engine->stats().counts.num_fetched_blocks, 5);
}

INSTANTIATE_TEST_SUITE_P(Models, KvTiersTest, ::testing::Values("llama", "gpt2"));

}  // namespace
}  // namespace nereid::cpu
