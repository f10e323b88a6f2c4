// Trace settings, span identifiers, tensors as text and collector URLs; also restricted endpoint
// groups.
#include <gtest/gtest.h>

#include "host/frontend/restricted_apis.h"
#include "host/frontend/tracing/otlp_exporter.h"
#include "host/frontend/tracing/span_ids.h"
#include "host/frontend/tracing/tensor_text.h"
#include "host/frontend/tracing/trace_settings.h"

namespace nereid {
namespace {

TraceChange Change(const std::string& key, const std::string& value) {
  return {{key, std::vector<std::string>{value}}};
}
TraceChange Clear(const std::string& key) {
  return {{key, std::nullopt}};
}

int CountSampled(TraceSettings& settings, const std::string& model, int num_requests) {
  int count = 0;
  for (int i = 0; i < num_requests; ++i) count += settings.Sample(model, false).has_value();
  return count;
}

TEST(TraceSettingsTest, NothingIsTracedUntilALevelIsSet) {
  TraceSettings settings(TraceValues{});
  EXPECT_FALSE(settings.is_on());
  EXPECT_EQ(CountSampled(settings, "m", 3000), 0);
  ASSERT_TRUE(settings.Apply("", Change("trace_level", "TIMESTAMPS")).ok());
  EXPECT_TRUE(settings.is_on());
  EXPECT_EQ(CountSampled(settings, "m", 3000), 3);
}

TEST(TraceSettingsTest, ACountRunsOut) {
  TraceSettings settings(TraceValues{TRITONSERVER_TRACE_LEVEL_TIMESTAMPS, 2, 3, 0});
  EXPECT_EQ(CountSampled(settings, "m", 100), 3);
  EXPECT_EQ(settings.values("").count, 0);
  ASSERT_TRUE(settings.Apply("", Change("trace_count", "-1")).ok());
  EXPECT_EQ(CountSampled(settings, "m", 100), 50);
}

TEST(TraceSettingsTest, ModelSettingsOverrideTheServers) {
  TraceSettings settings(TraceValues{TRITONSERVER_TRACE_LEVEL_TIMESTAMPS, 1, -1, 0});
  ASSERT_TRUE(settings.Apply("quiet", Change("trace_level", "OFF")).ok());
  EXPECT_EQ(CountSampled(settings, "quiet", 10), 0);
  EXPECT_EQ(CountSampled(settings, "other", 10), 10);
  ASSERT_TRUE(settings.Apply("quiet", Clear("trace_level")).ok());
  EXPECT_EQ(CountSampled(settings, "quiet", 10), 10);
}

TEST(TraceSettingsTest, AForcedSampleIgnoresTheRate) {
  TraceSettings settings(TraceValues{TRITONSERVER_TRACE_LEVEL_TIMESTAMPS, 1000, -1, 0});
  EXPECT_TRUE(settings.Sample("m", true).has_value());
  EXPECT_FALSE(settings.Sample("m", false).has_value());
}

TEST(TraceSettingsTest, AnInvalidChangeChangesNothing) {
  TraceSettings settings(TraceValues{});
  TraceChange change = Change("trace_rate", "5");
  change.push_back(Change("trace_count", "x")[0]);
  EXPECT_EQ(settings.Apply("", change).message(), "Unable to parse 'trace_count', got: x");
  EXPECT_EQ(settings.values("").rate, 1000u);
  for (const auto& [key, value] :
       std::vector<std::pair<const char*, const char*>>{{"trace_rate", "0"},
                                                        {"trace_rate", "-1"},
                                                        {"trace_rate", "1 "},
                                                        {"trace_rate", "99999999999999999999"},
                                                        {"trace_count", "-2"},
                                                        {"trace_level", "ALL"},
                                                        {"log_frequency", ""},
                                                        {"trace_file", "/tmp/x"},
                                                        {"trace_mode", "triton"},
                                                        {"colour", "red"}}) {
    EXPECT_FALSE(settings.Apply("", Change(key, value)).ok()) << key << "=" << value;
  }
}

TEST(SpanIdsTest, ParsesTheW3cTraceparentHeader) {
  const auto parent = ParseTraceParent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
  ASSERT_TRUE(parent.has_value());
  EXPECT_EQ(parent->trace_id, "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(FormatTraceParent(*parent), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
  for (const char* wrong : {"", "00", "00-00000000000000000000000000000000-b7ad6b7169203331-01",
                            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
                            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01"}) {
    EXPECT_FALSE(ParseTraceParent(wrong).has_value()) << wrong;
  }
  EXPECT_TRUE(ParseTraceParent("00-" + NewTraceId() + "-" + NewSpanId() + "-00").has_value());
}

TEST(TensorTextTest, WritesElementsInTheirOwnType) {
  const auto text = [](TRITONSERVER_DataType type, std::string_view bytes) {
    return TensorText(type, bytes, 100);
  };
  EXPECT_EQ(text(TRITONSERVER_TYPE_INT16, std::string_view("\xff\xff\x02\x00", 4)), "-1,2");
  EXPECT_EQ(text(TRITONSERVER_TYPE_BOOL, std::string_view("\x01\x00", 2)), "1,0");
  EXPECT_EQ(text(TRITONSERVER_TYPE_FP32, std::string_view("\x00\x00\xc0\x3f", 4)), "1.5");
  EXPECT_EQ(text(TRITONSERVER_TYPE_BYTES, std::string_view("\x02\0\0\0hi\x01\0\0\0x", 11)), "hi,x");
  EXPECT_EQ(text(TRITONSERVER_TYPE_BYTES, std::string_view("\x09\0\0\0hi", 6)), "");
  EXPECT_EQ(TensorText(TRITONSERVER_TYPE_UINT8, std::string_view("\1\2\3\4", 4), 3), "1,2...");
}

TEST(CollectorUrlTest, HasAHostAndPerhapsSchemePortAndPath) {
  for (const char* right :
       {"http://[::1]:4318/v1/traces", "http://collector", "https://collector:1",
        "collector:4318/v1/traces", "https://collector/v1/traces"}) {
    EXPECT_TRUE(CheckCollectorUrl(right).ok()) << right;
  }
  for (const char* wrong : {"", "collector:x", "ftp://collector", "http://", "https://",
                            "http://:1/", "http://h:x/", "http://h/a b", "http://h/\r\nX: y"}) {
    EXPECT_FALSE(CheckCollectorUrl(wrong).ok()) << wrong;
  }
}

TEST(OtlpExporterTest, AnAbsentFileOfRootsIsNamed) {
  OtlpOptions options;
  options.roots_path = "/nosuch/roots.pem";
  const auto exporter = OtlpExporter::Create(options);
  ASSERT_FALSE(exporter.ok());
  EXPECT_NE(exporter.status().message().find("/nosuch/roots.pem"), std::string::npos);
}

TEST(RestrictedApisTest, GroupsHaveTheirSecrets) {
  RestrictedApis apis;
  ASSERT_TRUE(apis.Add("shared-memory,trace:Admin=a=b").ok());
  ASSERT_TRUE(apis.Add("health:probe=x").ok());
  EXPECT_EQ(apis.Find(ApiGroup::kInference), nullptr);
  ASSERT_NE(apis.Find(ApiGroup::kTrace), nullptr);
  EXPECT_EQ(apis.Find(ApiGroup::kTrace)->header, "admin");
  EXPECT_TRUE(apis.Find(ApiGroup::kTrace)->Matches("a=b"));
  for (const char* wrong : {"", "a=", "a=b ", "a", "a=ba=b"}) {
    EXPECT_FALSE(apis.Find(ApiGroup::kTrace)->Matches(wrong)) << wrong;
  }
  for (const char* wrong : {"trace:again=x", "colour:a=b", "health", "health:", "health:a", ":a=b",
                            "health:=b", "health:a="}) {
    EXPECT_FALSE(apis.Add(wrong).ok()) << wrong;
  }
}

}  // namespace
}  // namespace nereid
