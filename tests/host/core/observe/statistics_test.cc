#include "host/core/observe/statistics.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "base/clock.h"

namespace nereid::core {
namespace {

using Json = nlohmann::json;

// Durations in ns: queue 10, input 20, infer 30, output 40; the whole request 1000.
RequestTimes Times() {
  return {100, 200, 210, 230, 260, 300, 1100};
}

TEST(StatisticsTest, AddsUpTheStagesOfARequest) {
  ModelStatistics statistics;
  statistics.AddShard().RecordSuccess(Times(), 4);
  const StatisticsSnapshot sum = statistics.Sum();
  EXPECT_EQ(sum.inference_count, 4U);
  EXPECT_EQ(sum.execution_count, 0U);
  EXPECT_EQ(sum.success.count, 1U);
  EXPECT_EQ(sum.success.ns, 1000U);
  EXPECT_EQ(sum.queue.ns, 10U);
  EXPECT_EQ(sum.compute_input.ns, 20U);
  EXPECT_EQ(sum.compute_infer.ns, 30U);
  EXPECT_EQ(sum.compute_output.ns, 40U);
  EXPECT_NEAR(static_cast<double>(sum.last_inference_ms), static_cast<double>(WallNowMs()), 5000);
}

TEST(StatisticsTest, SumsTheShardsOfInstancesAndHost) {
  ModelStatistics statistics;
  statistics.AddShard().RecordSuccess(Times(), 1);
  statistics.AddShard().RecordSuccess(Times(), 2);
  statistics.host().RecordFailure(FailureReason::kRejected, 7);
  const StatisticsSnapshot sum = statistics.Sum();
  EXPECT_EQ(sum.inference_count, 3U);
  EXPECT_EQ(sum.fail.count, 1U);
  EXPECT_EQ(sum.fail.ns, 7U);
  EXPECT_EQ(sum.failures[static_cast<size_t>(FailureReason::kRejected)], 1U);
  EXPECT_EQ(sum.failures[static_cast<size_t>(FailureReason::kBackend)], 0U);
}

TEST(StatisticsTest, KeepsExecutionsByBatchSize) {
  ModelStatistics statistics;
  StatisticsShard& shard = statistics.AddShard();
  for (const uint64_t size : {uint64_t{1}, uint64_t{8}, uint64_t{8}, uint64_t{1} << 60}) {
    shard.RecordExecution(size, Times());
  }
  const StatisticsSnapshot sum = statistics.Sum();
  EXPECT_EQ(sum.execution_count, 4U);
  ASSERT_EQ(sum.batches.size(), 3U);
  EXPECT_EQ(sum.batches.at(8).compute_infer.count, 2U);
  EXPECT_EQ(sum.batches.at(8).compute_infer.ns, 60U);
  EXPECT_EQ(sum.batches.at(uint64_t{1} << 60).compute_output.ns, 40U);
}

TEST(StatisticsTest, CountsNegativeDurationsAsZero) {
  ModelStatistics statistics;
  statistics.host().RecordSuccess({1000, 900, 800, 700, 600, 500, 400}, 1);
  const StatisticsSnapshot sum = statistics.Sum();
  EXPECT_EQ(sum.success.count, 1U);
  EXPECT_EQ(sum.success.ns + sum.queue.ns + sum.compute_infer.ns, 0U);
}

TEST(StatisticsTest, KeepsResponsesByIndexAndOutcome) {
  ModelStatistics statistics;
  StatisticsShard& shard = statistics.AddShard();
  using Outcome = ResponseTimes::Outcome;
  shard.RecordResponse({0, 100, 130, 150, Outcome::kSuccess});
  shard.RecordResponse({1, 100, 0, 150, Outcome::kEmpty});
  shard.RecordResponse({1, 100, 0, 150, Outcome::kCancel});
  const StatisticsSnapshot sum = statistics.Sum();
  EXPECT_EQ(sum.responses.at(0).compute_infer.ns, 30U);
  EXPECT_EQ(sum.responses.at(0).compute_output.ns, 20U);
  EXPECT_EQ(sum.responses.at(0).success.ns, 50U);
  EXPECT_EQ(sum.responses.at(1).empty_response.count, 1U);
  EXPECT_EQ(sum.responses.at(1).cancel.count, 1U);
  EXPECT_EQ(sum.responses.at(1).compute_infer.count, 1U) << "the empty one alone";
  EXPECT_EQ(sum.responses.at(1).compute_output.count, 0U);
}

TEST(StatisticsTest, SumsTheResponsesBehindTheLastIndex) {
  ModelStatistics statistics;
  StatisticsShard& shard = statistics.AddShard();
  for (uint64_t i = 0; i < 100'000; ++i) {
    shard.RecordResponse({i, 100, 130, 150, ResponseTimes::Outcome::kSuccess});
  }
  const StatisticsSnapshot sum = statistics.Sum();
  ASSERT_EQ(sum.responses.size(), kLastResponseIndex + 1);
  EXPECT_EQ(sum.responses[kLastResponseIndex - 1].success.count, 1U);
  EXPECT_EQ(sum.responses[kLastResponseIndex].success.count, 100'000U - kLastResponseIndex);
  const std::string text = StatisticsJson("m", 1, sum, {});
  EXPECT_LT(text.size(), 50'000U);
  EXPECT_EQ(Json::parse(text)["response_stats"].size(), kLastResponseIndex + 1);
}

TEST(StatisticsTest, LimitsTheNumberOfBatchSizes) {
  ModelStatistics statistics;
  StatisticsShard& shard = statistics.AddShard();
  for (uint64_t size = 1000; size < 101'000; ++size) shard.RecordExecution(size, Times());
  const StatisticsSnapshot sum = statistics.Sum();
  EXPECT_LE(sum.batches.size(), kMaxLargeBatchSizes + 64);
  uint64_t num_executions = 0;
  for (const auto& [size, counts] : sum.batches) num_executions += counts.compute_infer.count;
  EXPECT_EQ(num_executions, 100'000U);
}

TEST(StatisticsTest, WritesTheJsonOfTheStatisticsEndpoint) {
  ModelStatistics statistics;
  StatisticsShard& shard = statistics.AddShard();
  shard.RecordSuccess(Times(), 2);
  shard.RecordExecution(2, Times());
  const Json json =
      Json::parse(StatisticsJson("a \"model\"", 3, statistics.Sum(), {{"GPU", 1, 4096}}));
  EXPECT_EQ(json["name"], "a \"model\"");
  EXPECT_EQ(json["version"], "3");
  EXPECT_EQ(json["inference_count"], 2);
  EXPECT_EQ(json["execution_count"], 1);
  EXPECT_EQ(json["inference_stats"]["success"], Json({{"count", 1}, {"ns", 1000}}));
  EXPECT_EQ(json["inference_stats"]["cache_hit"], Json({{"count", 0}, {"ns", 0}}));
  EXPECT_EQ(json["batch_stats"][0]["batch_size"], 2);
  EXPECT_EQ(json["batch_stats"][0]["compute_input"], Json({{"count", 1}, {"ns", 20}}));
  EXPECT_EQ(json["response_stats"], Json::object());
  EXPECT_EQ(json["memory_usage"], Json::parse(R"([{"type":"GPU","id":1,"byte_size":4096}])"));
}

TEST(StatisticsTest, CountsAllReportsOfManyThreads) {
  ModelStatistics statistics;
  StatisticsShard& shard = statistics.AddShard();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        shard.RecordSuccess(Times(), 1);
        shard.RecordExecution(100, Times());
        if (i % 100 == 0) (void)statistics.Sum();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const StatisticsSnapshot sum = statistics.Sum();
  EXPECT_EQ(sum.success.count, 4000U);
  EXPECT_EQ(sum.batches.at(100).compute_infer.count, 4000U);
}

TEST(MemoryUsageTest, ReplacesTheReportOfAReporterAndSumsAllReports) {
  MemoryUsage usage;
  int model = 0;
  int instance = 0;
  usage.Report(&model, {{"CPU", 0, 10}});
  usage.Report(&instance, {{"CPU", 0, 5}, {"GPU", 1, 7}});
  usage.Report(&model, {{"CPU", 0, 20}});
  const auto sum = usage.Sum();
  ASSERT_EQ(sum.size(), 2U);
  EXPECT_EQ(sum[0].byte_size, 25U);
  EXPECT_EQ(sum[1].type, "GPU");
}

}  // namespace
}  // namespace nereid::core
