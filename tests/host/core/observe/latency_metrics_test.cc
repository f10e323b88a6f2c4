#include "host/core/observe/latency_metrics.h"

#include <gtest/gtest.h>

#include "host/core/observe/metrics.h"
#include "host/core/observe/statistics.h"
#include "tests/host/core/observe/metrics_page.h"

namespace nereid::core {
namespace {

class OneModel : public MetricsSource {
 public:
  explicit OneModel(const ModelStatistics* statistics) : statistics_(statistics) {}
  Reading Read() const override {
    Reading reading;
    reading.model = "m";
    reading.version = 1;
    reading.tags = {{"tag", "t"}};
    reading.latencies = statistics_->latencies();
    reading.statistics = statistics_->Sum();
    return reading;
  }

 private:
  const ModelStatistics* const statistics_;
};

std::string PageOf(const ModelStatistics& statistics) {
  const OneModel model(&statistics);
  Metrics metrics({});
  metrics.AddSource(&model);
  std::string page = metrics.Page();
  metrics.RemoveSource(&model);
  return page;
}

TEST(LatencyMetricsTest, SummariesRecordTheDurationsThatCountersAddUp) {
  ModelStatistics statistics;
  LatencyOptions options;
  options.summaries = true;
  options.quantiles = {{0.5, 0.01}};
  statistics.SetLatencyMetrics(
      std::make_unique<LatencyMetrics>(options, std::vector<double>(), true));
  StatisticsShard& shard = statistics.AddShard();
  for (uint64_t i = 1; i <= 3; ++i) {
    // start, queue, exec, compute start, compute end, exec end, end
    shard.RecordSuccess({0, 1000, i * 10'000, i * 20'000, i * 50'000, i * 60'000, i * 100'000}, 1);
  }
  statistics.host().RecordCacheHit(0, 1000, 41'000);
  statistics.host().RecordCacheMiss(7000);
  const std::string page = PageOf(statistics);
  const std::string labels = R"({_tag="t",model="m",version="1"})";
  EXPECT_TRUE(HasLine(page, "# TYPE nv_inference_request_summary_us summary")) << page;
  EXPECT_TRUE(HasLine(page, "nv_inference_request_summary_us_count" + labels + " 4"));
  EXPECT_TRUE(HasLine(page, "nv_inference_request_summary_us_sum" + labels + " 641"));
  EXPECT_TRUE(HasLine(page, "nv_inference_queue_summary_us_sum" + labels + " 57"));
  EXPECT_TRUE(HasLine(page, "nv_inference_compute_input_summary_us_sum" + labels + " 60"));
  EXPECT_TRUE(HasLine(page, "nv_inference_compute_infer_summary_us_sum" + labels + " 180"));
  EXPECT_TRUE(HasLine(page, "nv_inference_compute_output_summary_us_sum" + labels + " 60"));
  EXPECT_TRUE(HasLine(page, "nv_cache_hit_summary_per_model_sum" + labels + " 40"));
  EXPECT_TRUE(HasLine(page, "nv_cache_miss_summary_per_model_sum" + labels + " 7"));
  const std::string median =
      R"(nv_inference_compute_infer_summary_us{_tag="t",model="m",version="1",quantile="0.5"})";
  EXPECT_TRUE(HasLine(page, median + " 30") || HasLine(page, median + " 60") ||
              HasLine(page, median + " 90"));
  EXPECT_EQ(page.find("first_response"), std::string::npos) << "the model has one response";
}

TEST(LatencyMetricsTest, TheHistogramHasTheModelsBuckets) {
  ModelStatistics statistics;
  LatencyOptions options;
  options.histograms = true;
  statistics.SetLatencyMetrics(
      std::make_unique<LatencyMetrics>(options, std::vector<double>{10, 20}, false));
  for (const uint64_t ms : {5, 15, 16, 40}) {
    statistics.latencies()->RecordFirstResponse(ms * 1'000'000);
  }
  const std::string page = PageOf(statistics);
  const std::string name = "nv_inference_first_response_histogram_ms";
  const std::string labels = R"(_tag="t",model="m",version="1")";
  EXPECT_TRUE(HasLine(page, "# TYPE " + name + " histogram")) << page;
  EXPECT_TRUE(HasLine(page, name + "_count{" + labels + "} 4"));
  EXPECT_TRUE(HasLine(page, name + "_sum{" + labels + "} 76"));
  EXPECT_TRUE(HasLine(page, name + "_bucket{" + labels + R"(,le="10"} 1)"));
  EXPECT_TRUE(HasLine(page, name + "_bucket{" + labels + R"(,le="20"} 3)"));
  EXPECT_TRUE(HasLine(page, name + "_bucket{" + labels + R"(,le="+Inf"} 4)"));
  EXPECT_EQ(page.find("summary"), std::string::npos);
}

TEST(LatencyMetricsTest, ParsesQuantilesAndNamesInvalidOnes) {
  EXPECT_EQ(*ParseQuantiles("0.5:0.05,0.99:0.001"),
            (LatencyOptions::Quantiles{{0.5, 0.05}, {0.99, 0.001}}));
  for (const char* text : {"", "0.5", "0.5:", ":0.1", "1.5:0.1", "0.5:-1", "0.5:0.1,", "a:b"}) {
    EXPECT_FALSE(ParseQuantiles(text).ok()) << text;
  }
}

}  // namespace
}  // namespace nereid::core
