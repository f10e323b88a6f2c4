// A server runs in a process that has registered the generated class inference.ModelConfig in
// protobuf's global tables, and both parse the same text.
#include <google/protobuf/text_format.h>

#include "model_config.pb.h"
#include "tests/host/core/capi/server_fixture.h"

namespace nereid::core {
namespace {

TEST_F(ServerTest, CoexistsWithGeneratedClassesOfTheSameMessages) {
  inference::ModelConfig mine;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(kIdentity, &mine));
  AddModel("m");
  ASSERT_TRUE(Start(Options()).ok());
  EXPECT_TRUE(Infer("m", {1, 2}).ok());
  EXPECT_NE(google::protobuf::DescriptorPool::generated_pool()->FindMessageTypeByName(
                "inference.ModelConfig"),
            nullptr);
  inference::ModelConfig again;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(kIdentity, &again));
  EXPECT_EQ(again.input(0).name(), "INPUT0");
}

}  // namespace
}  // namespace nereid::core
