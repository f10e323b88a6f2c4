#include "host/core/backend/backend_search.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/support/test_folder.h"

namespace nereid::core {
namespace {

namespace fs = std::filesystem;

class BackendSearchTest : public testing::Test {
 protected:
  void SetUp() override {
    search_ = {root_ / "model", 3, {root_ / "given", root_ / "own"}, false};
    config_.name = "m";
    config_.backend = "b";
  }

  void Touch(const std::string& path) { folder_.Write(path, "not a library"); }
  // Returns the found path relative to the root, or the error.
  std::string Find() {
    const auto found = FindBackend(config_, search_);
    if (!found.ok()) return "error: " + found.status().message();
    EXPECT_EQ(fs::path(found->library).parent_path(), found->directory);
    return fs::relative(found->library, root_).string();
  }

  const TestFolder folder_;
  const fs::path root_ = folder_.path();
  BackendSearch search_;
  ModelConfig config_;
};

TEST_F(BackendSearchTest, SearchesVersionModelConfiguredAndInstalledDirectoriesInOrder) {
  for (const char* path : {"own/b/libtriton_b.so", "given/b/libtriton_b.so", "model/libtriton_b.so",
                           "model/3/libtriton_b.so"}) {
    Touch(path);
    EXPECT_EQ(Find(), path);
  }
}

TEST_F(BackendSearchTest, ErrorListsTheSearchedPaths) {
  const std::string error = Find();
  for (const char* folder : {"model/3/", "model/", "given/b/", "own/b/"}) {
    EXPECT_NE(error.find((root_ / folder / "libtriton_b.so").string()), std::string::npos) << error;
  }
}

TEST_F(BackendSearchTest, ErrorSuggestsTheInstalledBackendWithTheClosestName) {
  Touch("own/python/libtriton_python.so");
  config_.backend = "pythn";
  EXPECT_TRUE(Find().ends_with("(did you mean 'python'?)")) << Find();
  fs::create_directories(root_ / "own/pythn");
  EXPECT_EQ(Find().find("did you mean"), std::string::npos) << "its library is missing";
}

TEST_F(BackendSearchTest, ErrorNamesTheMissingRuntime) {
  config_.runtime = "special.so";
  EXPECT_EQ(Find().find("error: unable to find backend library 'special.so' for model 'm'"), 0u);
}

TEST_F(BackendSearchTest, IgnoresTheRuntimeOfEnsembles) {
  config_.backend = "";
  config_.platform = "ensemble";
  config_.ensemble_scheduling.emplace();
  config_.runtime = "special.so";
  Touch("own/ensemble/libtriton_ensemble.so");
  EXPECT_EQ(Find(), "own/ensemble/libtriton_ensemble.so");
}

TEST_F(BackendSearchTest, UsesTheConfiguredRuntimeFile) {
  config_.runtime = "special.so";
  Touch("given/b/libtriton_b.so");
  Touch("given/b/special.so");
  EXPECT_EQ(Find(), "given/b/special.so");
}

TEST_F(BackendSearchTest, RefusesRuntimesOutsideTheBackendDirectory) {
  for (const char* runtime : {"../evil.so", "/lib/evil.so", ".."}) {
    config_.runtime = runtime;
    const std::string named = std::string("runtime: backend library name '") + runtime + "'";
    EXPECT_NE(Find().find(named), std::string::npos);
  }
  config_.runtime = "";
  config_.backend = "../b";
  EXPECT_NE(Find().find("backend: expected a name"), std::string::npos);
}

TEST_F(BackendSearchTest, EnsemblesUseTheEnsembleBackend) {
  config_.backend = "";
  config_.platform = "ensemble";
  Touch("own/ensemble/libtriton_ensemble.so");
  EXPECT_EQ(Find(), "own/ensemble/libtriton_ensemble.so");
}

TEST_F(BackendSearchTest, ResolvesTensorrtllmToAnInstalledEngine) {
  config_.backend = "tensorrtllm";
  Touch("own/cpu_reference/libtriton_cpu_reference.so");
  Touch("own/gpu_llm/libtriton_gpu_llm.so");
  EXPECT_EQ(Find(), "own/cpu_reference/libtriton_cpu_reference.so");
  EXPECT_EQ(FindBackend(config_, search_)->name, "cpu_reference");
  search_.has_gpu = true;
  EXPECT_EQ(Find(), "own/gpu_llm/libtriton_gpu_llm.so");
  Touch("given/tensorrtllm/libtriton_tensorrtllm.so");
  EXPECT_EQ(Find(), "given/tensorrtllm/libtriton_tensorrtllm.so");
}

TEST_F(BackendSearchTest, DoesNotLoadPythonFilesAsLibraries) {
  Touch("own/python/libtriton_python.so");
  Touch("own/b/libtriton_b.so");
  Touch("own/b/model.py");
  Touch("model/3/model.py");
  config_.runtime = "model.py";
  const auto based = FindBackend(config_, search_);
  ASSERT_TRUE(based.ok()) << based.status().message();
  EXPECT_TRUE(based->is_python_based);
  EXPECT_EQ(based->library, (root_ / "own/python/libtriton_python.so").string());
  EXPECT_EQ(based->directory, (root_ / "own/b").string());
  config_.backend = "python";
  EXPECT_EQ(Find().find("error: unable to find backend library 'model.py' for model 'm'"), 0u);
}

TEST_F(BackendSearchTest, RunsPythonBasedBackendsWithThePythonBackend) {
  Touch("given/b/model.py");
  EXPECT_NE(Find().find("needs the backend 'python'"), std::string::npos);
  Touch("own/python/libtriton_python.so");
  const auto found = FindBackend(config_, search_);
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(found->name, "b");
  EXPECT_EQ(found->library, root_ / "own/python/libtriton_python.so");
  EXPECT_EQ(found->directory, root_ / "given/b");
  EXPECT_TRUE(found->is_python_based);
  Touch("own/b/libtriton_b.so");
  EXPECT_EQ(Find(), "own/b/libtriton_b.so");
}

}  // namespace
}  // namespace nereid::core
