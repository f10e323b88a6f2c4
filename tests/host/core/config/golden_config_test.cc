// Compares the JSON form with Triton's: golden/<model>.json is Triton's response to
// /v2/models/<model>/config. The comparison is by JSON value.
#include <nlohmann/json.hpp>

#include "tests/host/core/config/temp_model.h"
#include "tests/support/source_path.h"

namespace nereid::core::config {
namespace {

namespace fs = std::filesystem;

std::string ReadAll(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

class GoldenConfigTest : public testing::TestWithParam<const char*> {};

TEST_P(GoldenConfigTest, EqualsTheRecordedAnswer) {
  const std::string model = GetParam();
  const fs::path golden = SourcePath("tests/host/core/config/golden");
  const TempModel folder(ReadAll(golden / (model + ".pbtxt")), model);
  if (model != "ens") folder.Write("1/model.py", "");

  auto config = ReadModelConfig(folder.folder());
  ASSERT_TRUE(config.ok()) << config.status().message();
  config = PrepareInstances(*config, {});
  ASSERT_TRUE(config.ok()) << config.status().message();
  config = FinishConfig(*config);
  ASSERT_TRUE(config.ok()) << config.status().message();
  const auto expected = nlohmann::json::parse(ReadAll(golden / (model + ".json")));
  auto actual = nlohmann::json::parse(JsonText(*config));
  // These fields are newer than the recorded Triton version.
  if (model == "ens") actual["ensemble_scheduling"].erase("max_inflight_requests");
  EXPECT_EQ(actual, expected) << nlohmann::json::diff(expected, actual).dump(1);
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenConfigTest,
                         testing::Values("dtypes", "dynbatch", "ens", "identity_batch",
                                         "identity_fp32", "params", "repeat", "slow", "textgen",
                                         "versions", "everything"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace nereid::core::config
