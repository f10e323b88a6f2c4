// Tests the metrics that backends register, through the C API.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "host/core/observe/metrics.h"
#include "tests/host/core/observe/metrics_page.h"
#include "triton/core/tritonserver.h"

namespace nereid::core {
namespace {

// Deletes `error` and returns its message; empty on success.
std::string Take(TRITONSERVER_Error* error) {
  const std::string message = error == nullptr ? "" : TRITONSERVER_ErrorMessage(error);
  TRITONSERVER_ErrorDelete(error);
  return message;
}

TRITONSERVER_MetricFamily* Family(TRITONSERVER_MetricKind kind, const char* name) {
  TRITONSERVER_MetricFamily* family = nullptr;
  EXPECT_EQ(Take(TRITONSERVER_MetricFamilyNew(&family, kind, name, "a test")), "");
  return family;
}

TRITONSERVER_Metric* Metric(TRITONSERVER_MetricFamily* family, const char* label_value,
                            const TRITONSERVER_MetricArgs* args = nullptr) {
  TRITONSERVER_Parameter* label =
      TRITONSERVER_ParameterNew("where", TRITONSERVER_PARAMETER_STRING, label_value);
  const TRITONSERVER_Parameter* labels[] = {label};
  TRITONSERVER_Metric* metric = nullptr;
  EXPECT_EQ(Take(TRITONSERVER_MetricNewWithArgs(&metric, family, labels, 1, args)), "");
  TRITONSERVER_ParameterDelete(label);
  return metric;
}

double Value(TRITONSERVER_Metric* metric) {
  double value = -1;
  EXPECT_EQ(Take(TRITONSERVER_MetricValue(metric, &value)), "");
  return value;
}

std::string Page() {
  Metrics metrics({.cpu = false, .gpu = false, .counter_latencies = false});
  return metrics.Page();
}

TEST(CustomMetricsTest, CountersOnlyGrow) {
  auto* family = Family(TRITONSERVER_METRIC_KIND_COUNTER, "test_counter");
  auto* metric = Metric(family, "a");
  EXPECT_EQ(Take(TRITONSERVER_MetricIncrement(metric, 2.5)), "");
  EXPECT_NE(Take(TRITONSERVER_MetricIncrement(metric, -1)), "");
  EXPECT_NE(Take(TRITONSERVER_MetricSet(metric, 1)), "");
  EXPECT_NE(Take(TRITONSERVER_MetricObserve(metric, 1)), "");
  EXPECT_EQ(Value(metric), 2.5);
  EXPECT_TRUE(HasLine(Page(), "# TYPE test_counter counter\ntest_counter{where=\"a\"} 2.5"));
  EXPECT_EQ(Take(TRITONSERVER_MetricDelete(metric)), "");
  EXPECT_EQ(Take(TRITONSERVER_MetricFamilyDelete(family)), "");
  EXPECT_EQ(Page().find("test_counter"), std::string::npos);
}

TEST(CustomMetricsTest, GaugesIncreaseAndDecrease) {
  auto* family = Family(TRITONSERVER_METRIC_KIND_GAUGE, "test_gauge");
  auto* metric = Metric(family, "a");
  EXPECT_EQ(Take(TRITONSERVER_MetricSet(metric, 10)), "");
  EXPECT_EQ(Take(TRITONSERVER_MetricIncrement(metric, -4)), "");
  EXPECT_EQ(Value(metric), 6);
  Take(TRITONSERVER_MetricDelete(metric));
  Take(TRITONSERVER_MetricFamilyDelete(family));
}

TEST(CustomMetricsTest, HistogramsCountByBucket) {
  auto* family = Family(TRITONSERVER_METRIC_KIND_HISTOGRAM, "test_histogram");
  TRITONSERVER_MetricArgs* args = nullptr;
  ASSERT_EQ(Take(TRITONSERVER_MetricArgsNew(&args)), "");
  const double buckets[] = {1, 5};
  ASSERT_EQ(Take(TRITONSERVER_MetricArgsSetHistogram(args, buckets, 2)), "");
  auto* metric = Metric(family, "a", args);
  for (const double value : {0.5, 1.0, 3.0, 100.0}) {
    EXPECT_EQ(Take(TRITONSERVER_MetricObserve(metric, value)), "");
  }
  double ignored = 0;
  EXPECT_NE(Take(TRITONSERVER_MetricValue(metric, &ignored)), "");
  const std::string page = Page();
  EXPECT_TRUE(HasLine(page, "test_histogram_bucket{where=\"a\",le=\"1\"} 2")) << page;
  EXPECT_TRUE(HasLine(page, "test_histogram_bucket{where=\"a\",le=\"5\"} 3"));
  EXPECT_TRUE(HasLine(page, "test_histogram_bucket{where=\"a\",le=\"+Inf\"} 4"));
  EXPECT_TRUE(HasLine(page, "test_histogram_sum{where=\"a\"} 104.5"));
  TRITONSERVER_Metric* without_args = nullptr;
  EXPECT_EQ(
      Take(TRITONSERVER_MetricNew(&without_args, family, nullptr, 0)),
      "metric family 'test_histogram': Bucket boundaries not found in Metric args: a histogram "
      "needs them");
  Take(TRITONSERVER_MetricArgsDelete(args));
  ASSERT_EQ(Take(TRITONSERVER_MetricArgsNew(&args)), "");
  EXPECT_EQ(Take(TRITONSERVER_MetricNewWithArgs(&without_args, family, nullptr, 0, args)),
            "metric family 'test_histogram': Metric args not set to histogram kind: they have no "
            "buckets");
  Take(TRITONSERVER_MetricArgsDelete(args));
  Take(TRITONSERVER_MetricDelete(metric));
  Take(TRITONSERVER_MetricFamilyDelete(family));
}

TEST(CustomMetricsTest, AHistogramMayHaveNoBounds) {
  auto* family = Family(TRITONSERVER_METRIC_KIND_HISTOGRAM, "test_boundless");
  TRITONSERVER_MetricArgs* args = nullptr;
  ASSERT_EQ(Take(TRITONSERVER_MetricArgsNew(&args)), "");
  TRITONSERVER_Metric* of_no_kind = nullptr;
  EXPECT_NE(Take(TRITONSERVER_MetricNewWithArgs(&of_no_kind, family, nullptr, 0, args)), "");
  ASSERT_EQ(Take(TRITONSERVER_MetricArgsSetHistogram(args, nullptr, 0)), "");
  auto* metric = Metric(family, "a", args);
  EXPECT_EQ(Take(TRITONSERVER_MetricObserve(metric, 3)), "");
  const std::string page = Page();
  EXPECT_EQ(page.find("test_boundless_bucket"), page.rfind("test_boundless_bucket")) << page;
  EXPECT_TRUE(HasLine(page, "test_boundless_bucket{where=\"a\",le=\"+Inf\"} 1"));
  EXPECT_TRUE(HasLine(page, "test_boundless_sum{where=\"a\"} 3"));
  Take(TRITONSERVER_MetricArgsDelete(args));
  Take(TRITONSERVER_MetricDelete(metric));
  Take(TRITONSERVER_MetricFamilyDelete(family));
}

TEST(CustomMetricsTest, AFamilyCannotBeDeletedBeforeItsMetrics) {
  auto* family = Family(TRITONSERVER_METRIC_KIND_GAUGE, "test_order");
  auto* metric = Metric(family, "a");
  EXPECT_EQ(
      Take(TRITONSERVER_MetricFamilyDelete(family)),
      "metric family 'test_order' still has metrics: 1. Must call MetricDelete on each first");
  Take(TRITONSERVER_MetricDelete(metric));
  EXPECT_EQ(Take(TRITONSERVER_MetricFamilyDelete(family)), "");
}

TEST(CustomMetricsTest, FamiliesWithTheSameNameShareTheirMetrics) {
  auto* first = Family(TRITONSERVER_METRIC_KIND_COUNTER, "test_shared");
  auto* second = Family(TRITONSERVER_METRIC_KIND_COUNTER, "test_shared");
  auto* a = Metric(first, "same");
  auto* b = Metric(second, "same");
  auto* c = Metric(second, "other");
  Take(TRITONSERVER_MetricIncrement(a, 1));
  Take(TRITONSERVER_MetricIncrement(b, 1));
  EXPECT_EQ(Value(a), 2);
  EXPECT_EQ(Value(c), 0);
  Take(TRITONSERVER_MetricDelete(a));
  EXPECT_EQ(Take(TRITONSERVER_MetricFamilyDelete(first)), "");
  EXPECT_EQ(Value(b), 2);
  TRITONSERVER_MetricFamily* other_kind = nullptr;
  EXPECT_NE(Take(TRITONSERVER_MetricFamilyNew(&other_kind, TRITONSERVER_METRIC_KIND_GAUGE,
                                              "test_shared", "a test")),
            "");
  Take(TRITONSERVER_MetricDelete(b));
  Take(TRITONSERVER_MetricDelete(c));
  Take(TRITONSERVER_MetricFamilyDelete(second));
}

TEST(CustomMetricsTest, OnlyHistogramsTakeArguments) {
  auto* family = Family(TRITONSERVER_METRIC_KIND_GAUGE, "test_arguments");
  TRITONSERVER_MetricArgs* args = nullptr;
  ASSERT_EQ(Take(TRITONSERVER_MetricArgsNew(&args)), "");
  TRITONSERVER_Metric* metric = nullptr;
  EXPECT_NE(Take(TRITONSERVER_MetricNewWithArgs(&metric, family, nullptr, 0, args))
                .find("takes no TRITONSERVER_MetricArgs"),
            std::string::npos);
  EXPECT_EQ(Page().find("test_arguments"), std::string::npos) << "without metrics";
  Take(TRITONSERVER_MetricArgsDelete(args));
  EXPECT_EQ(Take(TRITONSERVER_MetricFamilyDelete(family)), "");
}

size_t Count(const std::string& page, const std::string& text) {
  size_t count = 0;
  for (size_t at = page.find(text); at != std::string::npos; at = page.find(text, at + 1)) ++count;
  return count;
}

// Prometheus rejects a page on which a name appears twice.
TEST(CustomMetricsTest, ANameOfTheServersOwnMetricsAppearsOnlyOnce) {
  const char* const name = "nv_pinned_memory_pool_used_bytes";
  ASSERT_EQ(Count(Page(), StrCat("# TYPE ", name)), 1U);
  auto* alike = Family(TRITONSERVER_METRIC_KIND_GAUGE, name);
  auto* metric = Metric(alike, "here");
  EXPECT_EQ(Count(Page(), StrCat("# TYPE ", name)), 1U);
  EXPECT_NE(Page().find(StrCat(name, "{where=\"here\"} 0")), std::string::npos);
  Take(TRITONSERVER_MetricDelete(metric));
  Take(TRITONSERVER_MetricFamilyDelete(alike));
  auto* other_kind = Family(TRITONSERVER_METRIC_KIND_COUNTER, name);
  metric = Metric(other_kind, "here");
  EXPECT_EQ(Count(Page(), StrCat("# TYPE ", name)), 1U);
  EXPECT_EQ(Page().find("where=\"here\""), std::string::npos);
  Take(TRITONSERVER_MetricDelete(metric));
  Take(TRITONSERVER_MetricFamilyDelete(other_kind));
}

TEST(CustomMetricsTest, RejectsInvalidKinds) {
  for (const int kind : {-1, 3}) {
    TRITONSERVER_MetricFamily* family = nullptr;
    EXPECT_NE(Take(TRITONSERVER_MetricFamilyNew(&family, static_cast<TRITONSERVER_MetricKind>(kind),
                                                "test_kind", ""))
                  .find("unknown kind"),
              std::string::npos);
  }
}

TEST(CustomMetricsTest, RejectsNamesThatAreInvalidInPrometheus) {
  TRITONSERVER_MetricFamily* family = nullptr;
  EXPECT_NE(Take(TRITONSERVER_MetricFamilyNew(&family, TRITONSERVER_METRIC_KIND_GAUGE, "a b", "")),
            "");
  EXPECT_NE(
      Take(TRITONSERVER_MetricFamilyNew(&family, TRITONSERVER_METRIC_KIND_GAUGE, nullptr, "")), "");
}

}  // namespace
}  // namespace nereid::core
