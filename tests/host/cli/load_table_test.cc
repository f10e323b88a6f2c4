#include "host/cli/load_table.h"

#include <gtest/gtest.h>

namespace nereid::cli {
namespace {

TEST(MetricsTextTest, ReadsNamesLabelsAndValues) {
  const auto samples = ParseMetrics(
      "# HELP a text\n# TYPE a counter\na{model=\"m\\\"1\",version=\"1\"} 2.5\nb 3\n\n"
      "broken{x=\"1\nalso broken\n{} 4\nc{le=\"+Inf\"} 7");
  ASSERT_EQ(samples.size(), 3u);
  EXPECT_EQ(samples[0].name, "a");
  EXPECT_EQ(samples[0].Label("model"), "m\"1");
  EXPECT_EQ(samples[0].value, 2.5);
  EXPECT_EQ(samples[1].value, 3);
  EXPECT_EQ(samples[2].Label("le"), "+Inf");
  EXPECT_EQ(samples[2].Label("absent"), "");
}

std::string MetricsAt(int requests, int tokens, int first_tokens, double first_token_seconds) {
  const auto line = [](const std::string& name, const std::string& labels, double value) {
    return name + "{" + labels + "} " + std::to_string(value) + "\n";
  };
  const std::string engine = "model=\"demo_tensorrt_llm\",version=\"1\"";
  return line("nv_inference_request_success", "model=\"demo\"", requests) +
         line("nv_inference_request_success", "model=\"demo_preprocessing\"", requests) +
         line("nv_inference_request_success", engine, requests) +
         line("nv_inference_request_success", "model=\"demo_postprocessing\"", tokens) +
         line("nv_inference_request_success", "model=\"other\"", 5) +
         line("nv_inference_pending_request_count", "model=\"other\"", 4) +
         line("nv_trt_llm_request_metrics", "request_type=\"active\"," + engine, 3) +
         line("nv_trt_llm_request_metrics", "request_type=\"waiting\"," + engine, 2) +
         line("nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type=\"fraction\"," + engine,
              0.25) +
         line("nereid_llm_engine", "total=\"output_tokens\"," + engine, tokens) +
         line("nereid_llm_time_to_first_token_seconds_count", engine, first_tokens) +
         line("nereid_llm_time_to_first_token_seconds_sum", engine, first_token_seconds);
}

TEST(LoadTableTest, ShowsRatesBetweenTwoReadings) {
  const ServerLoad before = ReadServerLoad(ParseMetrics(MetricsAt(10, 1000, 10, 1.0)));
  const ServerLoad now = ReadServerLoad(ParseMetrics(MetricsAt(14, 1600, 14, 1.2)));
  EXPECT_EQ(ShowServerLoad(before, now, 2),
            "MODEL  REQUESTS/S  FAILED/S  QUEUED  RUNNING  WAITING  TOKENS/S   TTFT  CACHE\n"
            "demo          2.0       0.0       0        3        2     300.0  50 ms   25 %\n"
            "other         0.0       0.0       4        -        -         -      -      -\n");
}

TEST(LoadTableTest, ShowsNoRatesAtTheFirstReading) {
  const ServerLoad now = ReadServerLoad(ParseMetrics(MetricsAt(10, 1000, 10, 1.0)));
  EXPECT_EQ(ShowServerLoad({}, now, 0),
            "MODEL  REQUESTS/S  FAILED/S  QUEUED  RUNNING  WAITING  TOKENS/S  TTFT  CACHE\n"
            "demo            -         -       0        3        2         -     -   25 %\n"
            "other           -         -       4        -        -         -     -      -\n");
}

}  // namespace
}  // namespace nereid::cli
