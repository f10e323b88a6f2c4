// Weights in host memory that each step copies: the same bits as with all weights on the GPU.
#include "backends/gpu_llm/model/weight_stream.h"

#include "tests/backends/cpu_reference/golden.h"
#include "tests/backends/gpu_llm/gpu_test.h"
#include "tests/backends/gpu_llm/single_sequence.h"

namespace nereid::gpu {
namespace {

using cpu::testing::FindTiny;
using cpu::testing::ReadGolden;
using testing::RunSequence;

class WeightStreamTest : public testing::GpuTest<::testing::TestWithParam<const char*>> {
 protected:
  void SetUp() override {
    testing::GpuTest<::testing::TestWithParam<const char*>>::SetUp();
    if (IsSkipped()) return;
    directory_ = FindTiny(GetParam());
    if (directory_.empty()) GTEST_SKIP() << "no test data for " << GetParam();
  }
  Result<std::unique_ptr<GpuExecutor>> Load(double resident_fraction,
                                            bool is_batch_invariant) const {
    NEREID_ASSIGN_OR_RETURN(const llm::Checkpoint checkpoint, llm::Checkpoint::Open(directory_));
    GpuExecutorOptions options;
    options.max_num_sequences = 8;
    options.max_num_tokens = 256;
    options.steps_before_recording = 1;
    options.fuses_decode = false;
    options.is_batch_invariant = is_batch_invariant;
    options.resident_weights_fraction = resident_fraction;
    NEREID_ASSIGN_OR_RETURN(llm::DecoderModel model, llm::ReadDecoder(checkpoint, true));
    return GpuExecutor::Create(std::move(model), options);
  }
  std::string directory_;
};

// Prompts and recorded decode steps. Products of few rows, or of any number in the batch-invariant
// mode, do not choose among algorithms by their time.
TEST_P(WeightStreamTest, LogitsAreThoseOfResidentWeights) {
  const std::vector<int32_t> golden = ReadGolden(directory_).back().ids;
  for (const bool is_batch_invariant : {false, true}) {
    const std::vector<int32_t> prompt(
        golden.begin(),
        golden.begin() + std::min<std::ptrdiff_t>(golden.size(), is_batch_invariant ? 60 : 4));
    std::vector<std::vector<float>> wanted;
    for (const double fraction : {1.0, 0.5, 0.0}) {
      auto executor = Load(fraction, is_batch_invariant);
      ASSERT_TRUE(executor.ok()) << executor.status().message();
      std::vector<std::vector<float>> got;
      for (int turn = 0; turn < 2; ++turn) {
        got.push_back(RunSequence(**executor, prompt, 0, static_cast<int32_t>(prompt.size())));
        for (int32_t step = 0; step < 5; ++step) {
          const std::vector<int32_t> token = {3 + step};
          got.push_back(
              RunSequence(**executor, token, static_cast<int32_t>(prompt.size()) + step, 1));
        }
      }
      EXPECT_GT((*executor)->num_graph_steps(), 0);
      if (fraction == 0.0 && (*executor)->spec().num_layers() > WeightStream::kNumBuffers) {
        EXPECT_GT((*executor)->streamed_bytes(), 0);
      }
      if (fraction == 1.0) {
        wanted = got;
      } else {
        EXPECT_EQ(got, wanted) << "fraction " << fraction;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, WeightStreamTest,
                         ::testing::Values("gemma3", "gpt2", "llama", "llama-awq", "qwen2"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

using WeightStreamRefusalTest = testing::GpuTest<::testing::Test>;

TEST_F(WeightStreamRefusalTest, ExpertsAreRefusedByName) {
  const std::string directory = FindTiny("mixtral");
  if (directory.empty()) GTEST_SKIP() << "no test data for mixtral";
  const llm::Checkpoint checkpoint = std::move(*llm::Checkpoint::Open(directory));
  GpuExecutorOptions options;
  options.resident_weights_fraction = 0.5;
  const auto executor =
      GpuExecutor::Create(std::move(*llm::ReadDecoder(checkpoint, true)), options);
  ASSERT_FALSE(executor.ok());
  EXPECT_EQ(executor.status().code(), StatusCode::kUnsupported);
  EXPECT_NE(executor.status().message().find("'gpu_weights_percent' is 0.5 for a mixture"),
            std::string::npos)
      << executor.status().message();
}

}  // namespace
}  // namespace nereid::gpu
