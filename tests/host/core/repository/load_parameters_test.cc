// The parameters of a load call: `config` and `file:<version>/<name>`.
#include "tests/host/core/repository/fake_models.h"

namespace nereid::core {
namespace {

using LoadParametersTest = RepositoryTest;

Parameter Text(const std::string& name, const std::string& value) {
  return {name, value};
}
Parameter Bytes(const std::string& name, const char* text) {
  return {name, Parameter::Bytes{text, strlen(text)}};
}

TEST_F(LoadParametersTest, ConfigReplacesTheFileUntilTheDirectoryChanges) {
  AddModel("m", {1}, "backend: 'file'");
  const Parameter config = Text("config", R"({"backend": "json", "max_batch_size": 2})");
  ASSERT_TRUE(repository_.Load("m", {&config}).ok());
  EXPECT_EQ(Find("m")->config.backend, "json");
  EXPECT_EQ(Find("m")->config.max_batch_size, 2);
  ASSERT_TRUE(repository_.Load("m", {}).ok());
  EXPECT_EQ(Find("m")->config.backend, "json");
  Write("repo/m/config.pbtxt", "backend: 'written since'");
  ASSERT_TRUE(repository_.Load("m", {}).ok());
  EXPECT_EQ(Find("m")->config.backend, "written since");
}

TEST_F(LoadParametersTest, ConfigMayChangeTheStepsOfAnEnsemble) {
  AddModel("file_step");
  AddModel("other_step");
  AddEnsemble("e", {"file_step"});
  const Parameter config =
      Text("config",
           R"({"platform": "ensemble", "ensemble_scheduling": {"step": [{"model_name": "other_step",
          "model_version": -1, "input_map": {"a": "a"}, "output_map": {"a": "b"}}]}})");
  ASSERT_TRUE(repository_.Load("e", {&config}).ok());
  ASSERT_TRUE(repository_.Load("e", {}).ok());
  EXPECT_EQ(Find("e")->config.ensemble_scheduling->steps.at(0).model_name, "other_step");
  EXPECT_EQ(Index(true), "e:1 READY; other_step:1 READY") << "the directory is unchanged";
}

TEST_F(LoadParametersTest, ConfigMayReplaceAnEnsemble) {
  AddModel("step");
  AddEnsemble("m", {"step"});
  Write("repo/m/1/model.bin", "x");
  const Parameter config = Text("config", R"({"backend": "json"})");
  ASSERT_TRUE(repository_.Load("m", {&config}).ok());
  ASSERT_TRUE(repository_.Load("m", {}).ok());
  EXPECT_EQ(Find("m")->config.backend, "json");
}

TEST_F(LoadParametersTest, FilesCreateAModelOutsideTheRepositories) {
  const Parameter config = Text("config", R"({"backend": "b"})");
  const Parameter file = Bytes("file:3/sub/weights.bin", "content");
  ASSERT_TRUE(repository_.Load("fresh", {&config, &file}).ok());
  EXPECT_EQ(Index(), "fresh:3 READY");
  const std::string path = Find("fresh")->path;
  std::ifstream stored(path + "/3/sub/weights.bin");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(stored), {}), "content");
  ASSERT_TRUE(repository_.Unload("fresh", false).ok());
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(LoadParametersTest, PathWithALeadingSlashIsRelativeToTheModel) {
  const Parameter config = Text("config", R"({"backend": "b"})");
  const Parameter file = Bytes("file:/1/weights.bin", "x");
  ASSERT_TRUE(repository_.Load("m", {&config, &file}).ok());
  EXPECT_TRUE(std::filesystem::exists(Find("m")->path + "/1/weights.bin"));
}

TEST_F(LoadParametersTest, RefusesInvalidParameters) {
  AddModel("m");
  const Parameter unknown = Text("zzz", "1");
  const Parameter number("config", int64_t{1});
  const Parameter config = Text("config", R"({"backend": "b"})");
  const Parameter typo = Text("config", R"({"backnd": "b"})");
  const Parameter file = Bytes("file:1/a", "x");
  const Parameter escape = Bytes("file:../../a", "x");
  const Parameter absolute = Bytes("file:/etc/a", "x");
  const auto message = [&](const std::vector<const Parameter*>& parameters) {
    const Status status = repository_.Load("m", parameters);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArg);
    return status.message();
  };
  EXPECT_NE(message({&unknown}).find("unrecognized load parameter 'zzz'"), std::string::npos);
  EXPECT_NE(message({&number}).find("'config': expected a string or bytes"), std::string::npos);
  EXPECT_NE(message({&typo}).find("unknown field 'backnd' in ModelConfig; did you mean 'backend'?"),
            std::string::npos);
  EXPECT_NE(message({&file}).find("needs the parameter 'config'"), std::string::npos);
  EXPECT_NE(message({&config, &escape}).find("expected a path inside the model's folder"),
            std::string::npos);
  EXPECT_NE(message({&config, &absolute}).find("no version folder such as"), std::string::npos);
}

}  // namespace
}  // namespace nereid::core
