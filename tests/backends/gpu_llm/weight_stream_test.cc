// Weights in host memory that each step copies: the same bits as with all weights on the GPU.
#include "backends/gpu_llm/model/weight_stream.h"

#include "tests/backends/gpu_llm/single_sequence.h"
#include "tests/backends/gpu_llm/tiny_model.h"

namespace nereid::gpu {
namespace {

using cpu::testing::ReadGolden;
using testing::RunSequence;

class WeightStreamTest : public testing::TinyModelTest {
 protected:
  std::unique_ptr<GpuExecutor> Load(double resident_fraction, bool is_batch_invariant) const {
    GpuExecutorOptions options = SmallOptions();
    options.steps_before_recording = 1;
    options.fuses_decode = false;
    options.is_batch_invariant = is_batch_invariant;
    options.resident_weights_fraction = resident_fraction;
    return LoadGpu(Model(), options);
  }
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
      const auto executor = Load(fraction, is_batch_invariant);
      ASSERT_NE(executor, nullptr);
      std::vector<std::vector<float>> got;
      for (int turn = 0; turn < 2; ++turn) {
        got.push_back(RunSequence(*executor, prompt, 0, static_cast<int32_t>(prompt.size())));
        for (int32_t step = 0; step < 5; ++step) {
          const std::vector<int32_t> token = {3 + step};
          got.push_back(
              RunSequence(*executor, token, static_cast<int32_t>(prompt.size()) + step, 1));
        }
      }
      EXPECT_GT(executor->num_graph_steps(), 0);
      if (fraction == 0.0 && executor->spec().num_layers() > WeightStream::kNumBuffers) {
        EXPECT_GT(executor->streamed_bytes(), 0);
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

using WeightStreamRefusalTest = testing::TinyModelTest;

TEST_P(WeightStreamRefusalTest, ExpertsAreRefusedByName) {
  GpuExecutorOptions options;
  options.resident_weights_fraction = 0.5;
  const auto executor = GpuExecutor::Create(Model(), options);
  ASSERT_FALSE(executor.ok());
  EXPECT_EQ(executor.status().code(), StatusCode::kUnsupported);
  EXPECT_NE(executor.status().message().find("'gpu_weights_percent' is 0.5 for a mixture"),
            std::string::npos)
      << executor.status().message();
}

INSTANTIATE_TEST_SUITE_P(Tiny, WeightStreamRefusalTest, ::testing::Values("mixtral"));

}  // namespace
}  // namespace nereid::gpu
