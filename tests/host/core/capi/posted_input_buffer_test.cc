// Posted input buffers as a frontend uses them.
#include <memory>

#include "nereid/infer_request.h"
#include "tests/host/core/capi/server_fixture.h"

namespace nereid::core {
namespace {

constexpr char kPostingModel[] =
    "backend: 'posted_input'\n"
    "input [ { name: 'INPUT0' data_type: TYPE_FP32 dims: [ -1 ] } ]\n"
    "output [ { name: 'OUTPUT0' data_type: TYPE_FP32 dims: [ -1 ] } ]\n"
    "instance_group [ { count: 1 kind: KIND_CPU } ]\n";

class PostedInputBufferTest : public ServerTest {
 protected:
  void StartServer() {
    AddModel("posted_input", kPostingModel);
    AddModel("identity");
    ServerOptions options = Explicit();
    ASSERT_TRUE(options.AddStartupModel("posted_input").ok());
    ASSERT_TRUE(options.AddStartupModel("identity").ok());
    const Status status = Start(options);
    ASSERT_TRUE(status.ok()) << status.message();
    num_released_before_ = NumReleased();
  }
  float NumReleased() const { return Infer("posted_input", {0}).value()[0] - num_released_before_; }
  std::unique_ptr<PostedInputBuffer> AcquireBuffer(const char* model,
                                                   uint64_t size_bytes = 100) const {
    return PostedInputBuffer::Acquire(server_->get(), model, -1, size_bytes);
  }
  bool IsFor(const PostedInputBuffer& memory, const char* model) const {
    const auto request = server_->NewRequest(model);
    return request.ok() && memory.IsForModelOf(*request);
  }

  float num_released_before_ = 0;  // by previous tests
};

TEST_F(PostedInputBufferTest, ReleasesTheBufferWithItsOwner) {
  StartServer();
  std::unique_ptr<PostedInputBuffer> memory = AcquireBuffer("posted_input");
  ASSERT_NE(memory, nullptr);
  memory->base()[99] = 'x';
  EXPECT_EQ(NumReleased(), 0);
  memory.reset();
  EXPECT_EQ(NumReleased(), 1);
}

TEST_F(PostedInputBufferTest, ReturnsNullIfTheModelPostsNoBuffer) {
  StartServer();
  EXPECT_EQ(AcquireBuffer("identity"), nullptr);
  EXPECT_EQ(AcquireBuffer("posted_input", 1 << 20), nullptr);
  EXPECT_EQ(AcquireBuffer("no such model"), nullptr);
  EXPECT_EQ(NumReleased(), 0);
}

TEST_F(PostedInputBufferTest, IsForItsModelUntilTheModelIsReloaded) {
  StartServer();
  const std::unique_ptr<PostedInputBuffer> memory = AcquireBuffer("posted_input");
  ASSERT_NE(memory, nullptr);
  EXPECT_TRUE(IsFor(*memory, "posted_input"));
  EXPECT_FALSE(IsFor(*memory, "identity"));
  ASSERT_TRUE(server_->UnloadModel("posted_input").ok());
  ASSERT_TRUE(server_->LoadModel("posted_input").ok());
  EXPECT_FALSE(IsFor(*memory, "posted_input"));
  const std::unique_ptr<PostedInputBuffer> anew = AcquireBuffer("posted_input");
  ASSERT_NE(anew, nullptr);
  EXPECT_TRUE(IsFor(*anew, "posted_input"));
}

}  // namespace
}  // namespace nereid::core
