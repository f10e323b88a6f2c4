// Tests of the response header that reports the KV cache utilization to load balancers.
#include "host/frontend/http/bodies/orca.h"

#include <gtest/gtest.h>

namespace nereid::http {
namespace {

constexpr std::string_view kPage =
    "# TYPE nv_trt_llm_kv_cache_block_metrics gauge\n"
    "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"max\",model=\"m\",version=\"1\"} 200\n"
    "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"used\",model=\"m\",version=\"1\"} 50\n"
    "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"tokens_per\",model=\"m\",version="
    "\"1\"} 64\n"
    "nv_other{kv_cache_block_type=\"max\"} 9\n";

TEST(OrcaTest, ReportsUtilizationAndCapacity) {
  EXPECT_EQ(OrcaHeader(OrcaFormat::kText, kPage),
            "endpoint-load-metrics: TEXT named_metrics.kv_cache_utilization=0.250000, "
            "named_metrics.max_token_capacity=12800\r\n");
  EXPECT_EQ(OrcaHeader(OrcaFormat::kJson, kPage),
            "endpoint-load-metrics: JSON {\"named_metrics\":{\"kv_cache_utilization\":0.25,"
            "\"max_token_capacity\":12800}}\r\n");
}

TEST(OrcaTest, OmitsTheHeaderWithoutTheMetrics) {
  EXPECT_EQ(OrcaHeader(OrcaFormat::kNone, kPage), "");
  EXPECT_EQ(OrcaHeader(OrcaFormat::kText, ""), "");
  EXPECT_EQ(OrcaHeader(OrcaFormat::kText, kPage.substr(0, 200)), "");
  EXPECT_EQ(OrcaHeader(OrcaFormat::kText,
                       "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"max\"} x"),
            "");
}

TEST(OrcaTest, ReportsZeroUtilizationForAnEngineWithoutBlocks) {
  const auto page = [](const char* max) {
    const std::string family = "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=";
    return family + "\"max\"} " + max + "\n" + family + "\"used\"} 0\n" + family +
           "\"tokens_per\"} 64\n";
  };
  EXPECT_EQ(OrcaHeader(OrcaFormat::kText, page("0")),
            "endpoint-load-metrics: TEXT named_metrics.kv_cache_utilization=0.000000, "
            "named_metrics.max_token_capacity=0\r\n");
  EXPECT_EQ(OrcaHeader(OrcaFormat::kText, page("-1")), "") << "not known yet";
}

TEST(OrcaTest, ParsesTheRequestHeader) {
  EXPECT_EQ(ParseOrcaFormat("TEXT"), OrcaFormat::kText);
  EXPECT_EQ(ParseOrcaFormat("json"), OrcaFormat::kJson);
  EXPECT_EQ(ParseOrcaFormat(""), OrcaFormat::kNone);
  EXPECT_EQ(ParseOrcaFormat("bin"), OrcaFormat::kNone);
}

}  // namespace
}  // namespace nereid::http
