#include "host/core/request/request_schema.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "tests/host/core/support/schema_of.h"
#include "tests/support/test_folder.h"

namespace nereid::core {
namespace {

namespace fs = std::filesystem;

// The folder of a model, beside a file that is none of the model's.
class RequestSchemaTest : public testing::Test {
 protected:
  RequestSchemaTest() {
    folder_.Write("secret.txt", "secret");
    folder_.Write("model/labels.txt", "cat\r\ndog\n");
    folder_.Write("model/labels/more.txt", "cow");
  }

  Result<RequestSchema> Make(const std::string& labels) const {
    const std::string config = StrCat(R"({"backend": "b", "max_batch_size": 0,
      "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [1]}],
      "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [1], "label_filename": ")",
                                      labels, R"("}]})");
    return RequestSchema::Make(test::ConfigOf(config), 1, (root_ / "model").string());
  }
  std::string Fault(const std::string& labels) const { return Make(labels).status().message(); }

  const TestFolder folder_;
  const fs::path root_ = folder_.path();
};

TEST_F(RequestSchemaTest, ReadsTheLabelsOfAnOutput) {
  EXPECT_EQ(Make("labels.txt").value().outputs.at(0).labels,
            (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(Make("labels/more.txt").value().outputs.at(0).labels,
            (std::vector<std::string>{"cow"}));
  EXPECT_EQ(Make("none.txt").status().code(), StatusCode::kNotFound);
}

TEST_F(RequestSchemaTest, ReadsLabelsOnlyFromTheModelsFolder) {
  fs::create_symlink("../secret.txt", root_ / "model/link.txt");
  for (const std::string& name :
       {std::string("../secret.txt"), std::string("labels/../../secret.txt"),
        std::string("link.txt"), (root_ / "secret.txt").string()}) {
    EXPECT_EQ(Fault(name).find("label file of output 'OUT': expected a path inside of '"), 0U)
        << Fault(name);
  }
}

TEST_F(RequestSchemaTest, ReadsLabelsOnlyFromRegularFiles) {
  ASSERT_EQ(::mkfifo((root_ / "model/fifo").c_str(), 0600), 0);
  EXPECT_NE(Fault("fifo").find("expected a regular file, got a FIFO"), std::string::npos);
}

}  // namespace
}  // namespace nereid::core
