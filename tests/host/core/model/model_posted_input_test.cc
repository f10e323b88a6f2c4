// Posted input buffers of a model: which models have them, and their lifetime.
#include <gtest/gtest.h>

#include <optional>
#include <stdexcept>

#include "tests/host/core/model/serving_fixture.h"

namespace nereid::core {
namespace {

std::string PostedInputConfig(const std::string& more, const std::string& type = "TYPE_FP32") {
  return StrCat(R"({"backend": "fake", "input": [{"name": "IN", "data_type": ")", type,
                R"(", "dims": [-1]}], "output": [{"name": "OUT", "data_type": ")", type,
                R"(", "dims": [-1]}])", more, "}");
}

class ModelPostedInputTest : public test::ServingFixture {
 protected:
  ModelPostedInputTest() {
    backend.posted_input = [this](uint64_t) { return memory_; };
  }

  char memory_[16];
};

TEST_F(ModelPostedInputTest, ReleasesTheBufferOnceByItsLastOwner) {
  Start(PostedInputConfig(""));
  {
    std::optional<PostedInputMemory> memory(model_->GetPostedInput(16));
    EXPECT_EQ(memory->base(), memory_);
    const PostedInputMemory moved(std::move(*memory));
    EXPECT_EQ(moved.base(), memory_);
    memory.reset();
    EXPECT_EQ(backend.num_released, 0);
  }
  EXPECT_EQ(backend.num_released, 1);
  EXPECT_EQ(backend.Calls().back(), "post 16");
}

TEST_F(ModelPostedInputTest, BufferOutlivesItsModel) {
  Start(PostedInputConfig(""));
  const PostedInputMemory memory = model_->GetPostedInput(16);
  End();
  EXPECT_EQ(num_destroyed, 1);
  EXPECT_EQ(backend.num_released, 0);
}

TEST_F(ModelPostedInputTest, BackendMayReadItsConfigurationWhilePosting) {
  std::string config;
  backend.posted_input = [&](uint64_t) {
    config = model_->ConfigJson();
    return memory_;
  };
  Start(PostedInputConfig(""));
  EXPECT_EQ(model_->GetPostedInput(16).base(), memory_);
  EXPECT_NE(config.find("\"IN\""), std::string::npos) << config;
}

TEST_F(ModelPostedInputTest, BackendMayThrowInItsReleaseFunction) {
  Start(PostedInputConfig(""));
  const auto release = [](void*) { throw std::runtime_error("boom"); };
  testing::internal::CaptureStderr();
  { const PostedInputMemory memory(memory_, release, nullptr); }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("release function of a backend's memory threw an exception: boom"),
            std::string::npos)
      << log;
}

TEST_F(ModelPostedInputTest, BackendMayPostNoBuffer) {
  backend.posted_input = [](uint64_t) { return nullptr; };
  Start(PostedInputConfig(""));
  EXPECT_EQ(model_->GetPostedInput(16).base(), nullptr);
  EXPECT_EQ(backend.num_released, 0);
}

TEST_F(ModelPostedInputTest, NoBufferWithoutTheEntryPoint) {
  backend.posted_input = nullptr;
  Start(PostedInputConfig(""));
  EXPECT_EQ(model_->GetPostedInput(16).base(), nullptr);
}

TEST_F(ModelPostedInputTest, NoBufferAfterStopIntake) {
  Start(PostedInputConfig(""));
  model_->StopIntake();
  EXPECT_EQ(model_->GetPostedInput(16).base(), nullptr);
}

// Requests of sequences may be executed again with unchanged inputs.
TEST_F(ModelPostedInputTest, NoBufferForSequenceModels) {
  Start(PostedInputConfig(R"(, "max_batch_size": 1, "sequence_batching": {})"));
  EXPECT_EQ(model_->GetPostedInput(16).base(), nullptr);
}

// The host checks the lengths of BYTES elements; the model must not be able to change them
// afterwards.
TEST_F(ModelPostedInputTest, NoBufferForBytesInputs) {
  Start(PostedInputConfig("", "TYPE_STRING"));
  EXPECT_EQ(model_->GetPostedInput(16).base(), nullptr);
}

// The instance that will execute the request is not known.
TEST_F(ModelPostedInputTest, NoBufferWithSeveralInstances) {
  Start(PostedInputConfig(R"(, "instance_group": [{"kind": "KIND_CPU", "count": 2}])"));
  EXPECT_EQ(model_->GetPostedInput(16).base(), nullptr);
}

}  // namespace
}  // namespace nereid::core
