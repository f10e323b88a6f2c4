// The cost of the scheduler: a step of many running sequences with an executor without cost, and
// the lookup of a long prompt in the prefix cache.
//
//   scheduler_bench [steps [running]]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>

#include "backends/llm_core/engine/scheduler.h"

namespace nereid::llm {
namespace {

using Clock = std::chrono::steady_clock;

double MicrosSince(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

struct Quantiles {
  double p10, median, p99;
};

Quantiles QuantilesOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {values[values.size() / 10], values[values.size() / 2], values[values.size() * 99 / 100]};
}

struct Case {
  const char* name;
  int32_t num_running;
  CapacityPolicy policy;
  bool prefix_cache;
};

constexpr int32_t kMaxTokens = 400;

std::unique_ptr<Sequence> MakeSequence(std::mt19937& random, int32_t max_tokens) {
  auto request = std::make_unique<GenerationRequest>();
  request->prompt.resize(64 + random() % 64);
  for (int32_t& id : request->prompt) id = static_cast<int32_t>(random() % 100000);
  request->stop.max_tokens = max_tokens;
  auto sequence = std::make_unique<Sequence>();
  sequence->token_ids = request->prompt;
  sequence->num_prompt = static_cast<int32_t>(request->prompt.size());
  sequence->request = std::move(request);
  return sequence;
}

// A server under load: each finished sequence is replaced, so that steps contain decodes and a few
// prompts.
void RunSteps(const Case& c, int num_steps) {
  ExecutorLimits limits;
  limits.vocab_size = 100000;
  limits.max_positions = 4096;
  limits.max_num_sequences = c.num_running;
  limits.max_num_tokens = c.num_running + 2048;
  limits.block_size = 16;
  limits.num_blocks = c.num_running * 40;
  SchedulerOptions options;
  options.policy = c.policy;
  options.prefix_cache = c.prefix_cache;
  Scheduler scheduler(options, limits);
  std::mt19937 random(1);
  const auto add = [&](int32_t max_tokens) { scheduler.Add(MakeSequence(random, max_tokens)); };
  for (int32_t i = 0; i < c.num_running; ++i) add(1 + static_cast<int32_t>(random() % kMaxTokens));
  StepBatch batch;
  std::vector<double> micros;
  int64_t num_tokens = 0;
  const int warmup = num_steps / 4;
  for (int step = 0; step < warmup + num_steps; ++step) {
    const Clock::time_point start = Clock::now();
    scheduler.Schedule(batch);
    double cost = MicrosSince(start);
    // Applies random tokens as the results of the step, in place of an executor.
    const auto drawn = static_cast<int32_t>(random() % 100000);
    const Clock::time_point resumed = Clock::now();
    scheduler.MarkComputed();
    std::vector<const Sequence*> finished;
    const std::vector<Sequence*>& scheduled = scheduler.scheduled();
    for (size_t i = 0; i < scheduled.size(); ++i) {
      if (i + 2 * Sequence::kPrefetchDistance < scheduled.size()) {
        scheduled[i + 2 * Sequence::kPrefetchDistance]->Prefetch();
        scheduled[i + Sequence::kPrefetchDistance]->PrefetchTokens();
      }
      if (!batch.entries[i].samples) continue;
      Sequence& sequence = *scheduled[i];
      sequence.token_ids.push_back(drawn + static_cast<int32_t>(i));
      if (sequence.num_tokens() >= sequence.num_max_tokens) {
        sequence.finish = FinishReason::kLength;
        finished.push_back(&sequence);
      }
    }
    size_t num_finished = 0;
    if (!finished.empty()) num_finished = scheduler.Remove(finished).size();
    cost += MicrosSince(resumed);
    if (step >= warmup) {
      micros.push_back(cost);
      num_tokens += static_cast<int64_t>(batch.entries.size());
    }
    for (; num_finished > 0; --num_finished) add(kMaxTokens);
  }
  const Quantiles q = QuantilesOf(micros);
  std::printf(
      "| %s | %d | %.1f | %.1f | %.1f | %.0f |\n", c.name, c.num_running, q.p10, q.median, q.p99,
      q.median * 1000.0 * static_cast<double>(micros.size()) / static_cast<double>(num_tokens));
}

void RunLookup(int32_t num_tokens, int32_t block_size, int rounds) {
  const int32_t num_blocks = 8 * num_tokens / block_size;
  BlockPool blocks(num_blocks, block_size, true);
  std::mt19937 random(2);
  std::vector<TokenIds> prompts(8, TokenIds(num_tokens));
  for (TokenIds& prompt : prompts) {
    for (int32_t& id : prompt) id = static_cast<int32_t>(random() % 100000);
    PrefixChain chain = PrefixChain::Start(0);
    std::vector<int32_t> table;
    for (int32_t i = 0; i + block_size <= num_tokens; i += block_size) {
      table.push_back(blocks.Allocate());
      const uint64_t hash = blocks.PreparePrefix(prompt.data() + i, table.back(), chain);
      blocks.InsertPrefix(prompt.data() + i, table.back(), hash, chain);
    }
    blocks.ReleaseAll(table);
  }
  std::vector<double> micros;
  std::vector<int32_t> found;
  size_t num_found = 0;
  for (int round = 0; round < rounds; ++round) {
    // Not the prompt that is still in the CPU's cache.
    const TokenIds& prompt = prompts[round % prompts.size()];
    found.clear();
    PrefixChain chain = PrefixChain::Start(0);
    const Clock::time_point start = Clock::now();
    blocks.MatchPrefix(prompt, num_blocks, chain, found);
    micros.push_back(MicrosSince(start));
    num_found += found.size();
  }
  const Quantiles q = QuantilesOf(micros);
  std::printf("| %d | %d | %zu | %.1f | %.1f | %.1f |\n", num_tokens, block_size,
              num_found / static_cast<size_t>(rounds), q.p10, q.median, q.p99);
}

int Main(int argc, char** argv) {
  const int num_steps = argc > 1 ? std::max(100, std::atoi(argv[1])) : 4000;
  std::printf(
      "| case | running | us a step, p10 | median | p99 | ns a sequence "
      "|\n|---|---|---|---|---|---|\n");
  for (const int32_t running : {256, 2048}) {
    if (argc > 2 && std::atoi(argv[2]) != running) continue;
    RunSteps({"no_evict", running, CapacityPolicy::kGuaranteedNoEvict, false}, num_steps);
    RunSteps({"no_evict, prefix cache", running, CapacityPolicy::kGuaranteedNoEvict, true},
             num_steps);
    RunSteps({"max_utilization, prefix cache", running, CapacityPolicy::kMaxUtilization, true},
             num_steps);
  }
  std::printf(
      "\n| prompt | block size | blocks found | us a lookup, p10 | median | p99 |\n"
      "|---|---|---|---|---|---|\n");
  for (const int32_t block_size : {16, 64}) RunLookup(32768, block_size, 400);
  return 0;
}

}  // namespace
}  // namespace nereid::llm

int main(int argc, char** argv) {
  return nereid::llm::Main(argc, argv);
}
