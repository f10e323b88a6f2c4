// Model namespacing: equal names in several repositories, plain names, and the models that
// ensembles call.
#include <gtest/gtest.h>

#include "host/core/config/config_loader.h"
#include "host/core/repository/folders.h"
#include "tests/host/core/repository/fake_models.h"

namespace nereid::core {
namespace {

class NamespacingTest : public RepositoryTest {
 protected:
  NamespacingTest() {
    for (const char* name : {"a", "b", "c"}) {
      std::filesystem::create_directories(root_ / name);
      EXPECT_TRUE(spaces_.Register({repo(name), {}, true}).ok());
    }
  }

  void AddEnsembleTo(const std::string& repository, const std::string& name,
                     const std::string& step) const {
    Write(StrCat(repository, "/", name, "/config.pbtxt"),
          StrCat("platform: 'ensemble' ensemble_scheduling { step { model_name: '", step,
                 "' model_version: -1 input_map { key: 'a' value: 'a' } output_map { key: 'a' "
                 "value: 'b' } } }"));
  }
  std::string Key(const std::string& repository, const std::string& name) const {
    return QualifiedName(repo(repository), name);
  }
  // The namespace that the ensemble's only step was resolved to.
  std::string StepSpace(const std::string& key) const {
    const auto model = Find(key);
    if (model == nullptr) return "not loaded";
    return model->config.ensemble_scheduling->steps[0].model_namespace;
  }
  std::string Names(bool ready_only = true) const {
    std::string text;
    for (const IndexEntry& entry : spaces_.Index(ready_only)) {
      text += StrCat(text.empty() ? "" : " ", entry.name);
    }
    return text;
  }

  ModelRepository spaces_{{}, {}, &lifecycle_};
};

TEST_F(NamespacingTest, ServesEqualNamesAndReportsAmbiguity) {
  AddModel("m", {1}, "backend: 'b'", "a");
  AddModel("m", {1, 2}, "backend: 'b' version_policy { all { } }", "b");
  AddModel("only", {1}, "backend: 'b'", "b");
  ASSERT_TRUE(spaces_.LoadAll().ok());
  EXPECT_EQ(Names(), "m m m only");
  EXPECT_EQ(Find("only")->path, repo("b") + "/only");
  EXPECT_EQ(Find(Key("a", "m"))->path, repo("a") + "/m");
  EXPECT_EQ(Find(Key("b", "m"))->version, 2);
  EXPECT_EQ(Find(Key("b", "m"))->config.name, "m");
  const Status status = table_.Find("m", ModelTable::kLatest).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArg);
  EXPECT_EQ(status.message(),
            StrCat("There are 2 identifiers of model 'm' in global map, model namespace must be "
                   "provided to resolve ambiguity: '",
                   Key("a", "m"), "', '", Key("b", "m"), "'"));
  EXPECT_EQ(table_.Versions("m").status().code(), StatusCode::kInvalidArg);
  EXPECT_EQ(table_.Find("none", 1).status().message(),
            "Request for unknown model: 'none' is not found");
}

TEST_F(NamespacingTest, PlainNameMeansTheOnlyServingModel) {
  AddModel("m", {1}, "backend: 'b'", "a");
  AddModel("m", {1}, "backend: 'b'", "b");
  ASSERT_TRUE(spaces_.Load("m", {}).ok());
  ASSERT_TRUE(spaces_.Unload(Key("a", "m"), false).ok());
  EXPECT_EQ(Find("m")->path, repo("b") + "/m");
  ASSERT_TRUE(spaces_.Unload("m", false).ok());
  EXPECT_EQ(table_.Find("m", ModelTable::kLatest).status().message(),
            "Request for unknown model: 'm' has no available versions");
  EXPECT_EQ(spaces_.Load("none", {}).code(), StatusCode::kNotFound);
  EXPECT_EQ(spaces_.Unload("none", false).message(),
            "failed to unload 'none': no model of this name is known");
}

TEST_F(NamespacingTest, LoadParametersNeedOneModel) {
  AddModel("m", {1}, "backend: 'b'", "a");
  AddModel("m", {1}, "backend: 'b'", "b");
  const Parameter config("config", std::string("{\"backend\": \"b\"}"));
  const Status status = spaces_.Load("m", {&config});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArg);
  EXPECT_NE(status.message().find(Key("a", "m")), std::string::npos) << status.message();
  EXPECT_NE(status.message().find(Key("b", "m")), std::string::npos) << status.message();
  EXPECT_TRUE(spaces_.Load(Key("b", "m"), {&config}).ok());
  EXPECT_EQ(Find("m")->path, repo("b") + "/m");
}

TEST_F(NamespacingTest, StepsPreferTheEnsemblesRepository) {
  for (const char* name : {"a", "b"}) {
    AddModel("m", {1}, "backend: 'b'", name);
    AddEnsembleTo(name, "ens", "m");
  }
  AddModel("elsewhere", {1}, "backend: 'b'", "b");
  AddEnsembleTo("c", "borrows", "elsewhere");
  ASSERT_TRUE(spaces_.LoadAll().ok());
  EXPECT_EQ(StepSpace(Key("a", "ens")), repo("a"));
  EXPECT_EQ(StepSpace(Key("b", "ens")), repo("b"));
  EXPECT_EQ(StepSpace("borrows"), repo("b"));
  EXPECT_NE(config::JsonText(Find("borrows")->config).find(repo("b")), std::string::npos);
}

TEST_F(NamespacingTest, ReportsAmbiguousSteps) {
  for (const char* name : {"a", "b"}) AddModel("m", {1}, "backend: 'b'", name);
  AddEnsembleTo("c", "ens", "m");
  const Status status = spaces_.Load("ens", {});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArg);
  EXPECT_NE(status.message().find(Key("a", "m")), std::string::npos) << status.message();
  EXPECT_NE(status.message().find(Key("b", "m")), std::string::npos) << status.message();
}

TEST_F(NamespacingTest, PollFindsAStepInAnotherRepository) {
  for (const char* name : {"a", "b"}) AddModel("m", {1}, "backend: 'b'", name);
  AddEnsembleTo("a", "ens", "m");
  ASSERT_TRUE(spaces_.Poll().ok());
  EXPECT_EQ(StepSpace("ens"), repo("a"));
  std::filesystem::remove_all(root_ / "a/m");
  ASSERT_TRUE(spaces_.Poll().ok());
  EXPECT_EQ(StepSpace("ens"), repo("b"));
  EXPECT_EQ(Names(), "ens m");
}

TEST_F(NamespacingTest, AStepMayNameItsRepository) {
  for (const char* name : {"a", "b"}) AddModel("m", {1}, "backend: 'b'", name);
  const std::string config = StrCat(
      "platform: 'ensemble' ensemble_scheduling { step { model_name: 'm' model_version: -1 "
      "model_namespace: '",
      repo("b"), "' input_map { key: 'a' value: 'a' } output_map { key: 'a' value: 'b' } } }");
  Write("a/ens/config.pbtxt", config);
  ASSERT_TRUE(spaces_.Load("ens", {}).ok());
  EXPECT_EQ(StepSpace("ens"), repo("b"));
  Write("repo/plain/config.pbtxt", config);
  EXPECT_NE(repository_.Load("plain", {}).message().find("the server has no model namespacing"),
            std::string::npos);
}

TEST_F(NamespacingTest, RefusesQualifiedNamesWithoutNamespacing) {
  AddModel("m");
  EXPECT_EQ(repository_.Load(repo() + "/m", {}).code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace nereid::core
