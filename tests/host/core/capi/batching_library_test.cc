// Failures of a custom batching library: the model does not load, or is served without it.
#include "tests/host/core/capi/server_fixture.h"

namespace nereid::core {
namespace {

class BatchingLibraryTest : public ServerTest {
 protected:
  // Starts a server with the model "m", whose library fails in `fault`.
  Status StartWith(const std::string& fault, const std::string& path = "faulty_batcher.so") {
    AddModel("m", StrCat("max_batch_size: 8 dynamic_batching { }\n", kIdentity,
                         "parameters { key: 'TRITON_BATCH_STRATEGY_PATH' value { string_value: "
                         "'",
                         path, "' } }\n", "parameters { key: 'fault' value { string_value: '",
                         fault, "' } }\n"));
    std::filesystem::copy(NEREID_TEST_BATCHERS "/faulty_batcher.so", root_ / "repo/m",
                          std::filesystem::copy_options::skip_existing);
    const Status status = Start(Explicit());
    return status.ok() ? server_->LoadModel("m") : status;
  }
  bool Serves() {
    const auto result = Infer("m", {1, 2}, {1, 2});
    return result.ok() && *result == std::vector<float>{1, 2};
  }
};

TEST_F(BatchingLibraryTest, FailedInitialisationFailsTheLoad) {
  const Status status = StartWith("ModelBatcherInitialize");
  EXPECT_NE(status.message().find("faulty: ModelBatcherInitialize fails as told"),
            std::string::npos)
      << status.message();
}

TEST_F(BatchingLibraryTest, AcceptsAnAbsolutePath) {
  const std::string path = NEREID_TEST_BATCHERS "/faulty_batcher.so";
  testing::internal::CaptureStderr();
  const Status status = StartWith("none", path);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(Serves());
  const std::string expected =
      StrCat("Loading custom batching strategy library ", path, " for model m");
  EXPECT_NE(log.find(expected), std::string::npos) << log;
}

TEST_F(BatchingLibraryTest, ErrorNamesAMissingLibrary) {
  const Status status = StartWith("none", "/nowhere/batcher.so");
  EXPECT_NE(status.message().find("Batching library path not found: /nowhere/batcher.so"),
            std::string::npos)
      << status.message();
}

TEST_F(BatchingLibraryTest, RefusesADirectory) {
  const Status status = StartWith("none", NEREID_TEST_BATCHERS);
  EXPECT_NE(status.message().find("Batching library path not found: " NEREID_TEST_BATCHERS),
            std::string::npos)
      << status.message();
}

TEST_F(BatchingLibraryTest, LogsLaterErrorsAndServesTheModel) {
  for (const char* function : {"ModelBatchInitialize", "ModelBatchIncludeRequest",
                               "ModelBatchFinalize", "ModelBatcherFinalize"}) {
    testing::internal::CaptureStderr();
    const Status status = StartWith(function);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(Serves()) << function;
    EXPECT_TRUE(Serves()) << function;
    server_.reset();
    const std::string log = testing::internal::GetCapturedStderr();
    const std::string expected = StrCat("faulty: ", function, " fails as told");
    EXPECT_NE(log.find(expected), std::string::npos) << expected << " is not in\n" << log;
  }
}

}  // namespace
}  // namespace nereid::core
