#include "host/core/observe/metrics.h"

#include <gtest/gtest.h>

#include "tests/host/core/observe/metrics_page.h"

namespace nereid::core {
namespace {

class FakeModel : public MetricsSource {
 public:
  FakeModel(std::string name, uint64_t num_success) {
    reading_.model = std::move(name);
    reading_.version = 1;
    reading_.pending = 3;
    reading_.load_secs = 0.25;
    reading_.statistics.success = {num_success, 5000};
    reading_.statistics.failures = {1, 2, 3, 4};
  }
  Reading Read() const override { return reading_; }
  Reading reading_;
};

TEST(MetricsTest, ShowsTheCountersOfEachModel) {
  Metrics metrics({});
  const FakeModel model("m", 7);
  metrics.AddSource(&model);
  const std::string page = metrics.Page();
  EXPECT_TRUE(
      HasLine(page,
              "# HELP nv_inference_request_success Number of successful inference requests, all "
              "batch sizes\n# TYPE nv_inference_request_success counter\n"
              "nv_inference_request_success{model=\"m\",version=\"1\"} 7"))
      << page;
  const std::string failure = "nv_inference_request_failure{model=\"m\",reason=";
  EXPECT_TRUE(HasLine(page, failure + "\"REJECTED\",version=\"1\"} 1"));
  EXPECT_TRUE(HasLine(page, failure + "\"CANCELED\",version=\"1\"} 2"));
  EXPECT_TRUE(HasLine(page, failure + "\"BACKEND\",version=\"1\"} 3"));
  EXPECT_TRUE(HasLine(page, failure + "\"OTHER\",version=\"1\"} 4"));
  EXPECT_TRUE(HasLine(page, "nv_inference_request_duration_us{model=\"m\",version=\"1\"} 5"));
  EXPECT_TRUE(HasLine(page, "nv_inference_pending_request_count{model=\"m\",version=\"1\"} 3"));
  EXPECT_TRUE(HasLine(page, "nv_model_load_duration_secs{model=\"m\",version=\"1\"} 0.25"));
  EXPECT_NE(page.find("nv_cpu_memory_total_bytes "), std::string::npos);
  metrics.RemoveSource(&model);
  EXPECT_EQ(metrics.Page().find("model=\"m\""), std::string::npos);
}

TEST(MetricsTest, ShowsTheNewLoadOfAModelWhileTheOldOneDrains) {
  Metrics metrics({});
  const FakeModel old_load("m", 100), new_load("m", 1), other("a", 5);
  metrics.AddSource(&old_load);
  metrics.AddSource(&other);
  metrics.AddSource(&new_load);
  const std::string page = metrics.Page();
  EXPECT_TRUE(HasLine(page,
                      "nv_inference_request_success{model=\"a\",version=\"1\"} 5\n"
                      "nv_inference_request_success{model=\"m\",version=\"1\"} 1"));
  EXPECT_EQ(page.find("} 100"), std::string::npos);
}

TEST(MetricsTest, AddsMetricTagsAsLabels) {
  Metrics metrics({});
  FakeModel model("m", 1);
  model.reading_.tags = {{"team", "a \"b\""}};
  metrics.AddSource(&model);
  EXPECT_TRUE(
      HasLine(metrics.Page(),
              "nv_inference_request_success{_team=\"a \\\"b\\\"\",model=\"m\",version=\"1\"} 1"));
}

TEST(MetricsTest, LeavesOutDisabledMetrics) {
  Metrics metrics({.cpu = false, .gpu = false, .counter_latencies = false});
  const FakeModel model("m", 1);
  metrics.AddSource(&model);
  const std::string page = metrics.Page();
  EXPECT_EQ(page.find("nv_cpu_"), std::string::npos);
  EXPECT_EQ(page.find("_duration_us"), std::string::npos);
  EXPECT_NE(page.find("nv_inference_count"), std::string::npos);
}

TEST(MetricsTest, ReadsTheMachineAtMostOncePerInterval) {
  for (const auto& [interval_ms, expected] : {std::pair{uint64_t{0}, 3}, {UINT64_MAX, 1}}) {
    int num_reads = 0;
    MetricsOptions options;
    options.interval_ms = interval_ms;
    Metrics metrics(options);
    metrics.set_readers({[&] {
                           ++num_reads;
                           return MachineReaders::Pool{4096, static_cast<uint64_t>(num_reads)};
                         },
                         nullptr});
    std::string page;
    for (int i = 0; i < 3; ++i) page = metrics.Page();
    EXPECT_EQ(num_reads, expected);
    EXPECT_TRUE(HasLine(page, "nv_pinned_memory_pool_used_bytes " + std::to_string(expected)))
        << page;
    EXPECT_TRUE(HasLine(page, "# TYPE nv_cpu_memory_total_bytes gauge"));
  }
}

}  // namespace
}  // namespace nereid::core
