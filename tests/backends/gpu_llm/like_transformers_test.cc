// Logits and greedy tokens against Hugging Face transformers on the same GPU in float32
// (reference_on_gpu.py; NEREID_TEST_REFERENCES names its output folder). Covers all tiny
// checkpoints that transformers reads, and a model of the size of Llama 3.2 1B.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "backends/gpu_llm/gpu_executor.h"
#include "tests/backends/gpu_llm/gpu_test.h"
#include "tests/backends/gpu_llm/single_sequence.h"

namespace nereid::gpu {
namespace {

using testing::RelativeError;
using testing::RunSequence;

// The reference also contains the error of transformers' own bf16 run. It has as many roundings as
// ours at other places, so the two errors are similar. The floor of about thirty roundings of 2^-9
// covers cases in which its error is small by chance.
constexpr double kTimesItsError = 2.0, kFloor = 2e-2;
// A router with nearly equal experts may select another one, in transformers as well.
constexpr double kExpertFloor = 3e-1;

struct Prompt {
  std::vector<int32_t> ids, greedy;
  std::vector<double>
      leads;             // lead of a greedy token's logit over the next one, in standard deviations
  int32_t num_rows = 0;  // of logits, of the last positions
  double bf16_error = 0.0;
  std::vector<float> logits;
};

struct Reference {
  std::string checkpoint;
  bool has_experts = false;
  std::vector<Prompt> prompts;
};

Reference ReadReference(const std::filesystem::path& folder) {
  std::ifstream in(folder / "reference.json");
  const nlohmann::json json = nlohmann::json::parse(in);
  Reference reference = {json.at("checkpoint"), json.at("has_experts"), {}};
  std::ifstream logits(folder / "logits.f32", std::ios::binary);
  for (const nlohmann::json& entry : json.at("prompts")) {
    Prompt& prompt = reference.prompts.emplace_back();
    prompt.ids = entry.at("ids").get<std::vector<int32_t>>();
    prompt.greedy = entry.at("greedy").get<std::vector<int32_t>>();
    prompt.leads = entry.at("leads").get<std::vector<double>>();
    prompt.num_rows = entry.at("num_rows");
    prompt.bf16_error = entry.at("bf16_error");
    prompt.logits.resize(entry.at("num_rows").get<size_t>() * json.at("vocab_size").get<size_t>());
    logits.read(reinterpret_cast<char*>(prompt.logits.data()),
                static_cast<std::streamsize>(prompt.logits.size() * sizeof(float)));
    EXPECT_TRUE(logits.good()) << folder;
  }
  return reference;
}

// Greedy tokens: if transformers' lead exceeds the possible error, our token is the same.
void CompareGreedy(GpuExecutor& gpu, const Prompt& prompt, double tolerance) {
  auto at = static_cast<int32_t>(prompt.ids.size());
  int32_t got = llm::ArgMax(RunSequence(gpu, prompt.ids, 0, 1));
  for (size_t step = 0; step < prompt.greedy.size(); ++step, ++at) {
    if (prompt.leads[step] > 4.0 * tolerance) {
      EXPECT_EQ(got, prompt.greedy[step]) << "step " << step << ", lead " << prompt.leads[step];
    }
    const std::span<const int32_t> token = std::span<const int32_t>(prompt.greedy).subspan(step, 1);
    got = llm::ArgMax(RunSequence(gpu, token, at, 1));
  }
}

class LikeTransformersTest : public testing::GpuTest<::testing::Test> {};

TEST_F(LikeTransformersTest, LogitsAndGreedyTokensAreThoseOfTransformersOnTheGpu) {
  const char* references = std::getenv("NEREID_TEST_REFERENCES");
  if (references == nullptr) GTEST_SKIP() << "NEREID_TEST_REFERENCES names no folder";
  int num_models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(references)) {
    if (!std::filesystem::exists(entry.path() / "reference.json")) continue;
    SCOPED_TRACE(entry.path().filename().string());
    const Reference reference = ReadReference(entry.path());
    const auto checkpoint = llm::Checkpoint::Open(reference.checkpoint);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    auto model = llm::ReadDecoder(*checkpoint);
    ASSERT_TRUE(model.ok()) << model.status().message();
    GpuExecutorOptions options;
    options.max_num_sequences = 8;
    options.max_num_tokens = 512;
    options.max_cache_tokens = 4096;
    const auto gpu = GpuExecutor::Create(std::move(*model), options);
    ASSERT_TRUE(gpu.ok()) << gpu.status().message();
    ++num_models;
    double worst = 0.0, worst_theirs = 0.0;
    for (const Prompt& prompt : reference.prompts) {
      SCOPED_TRACE(prompt.ids.size());
      const double tolerance = std::max(reference.has_experts ? kExpertFloor : kFloor,
                                        kTimesItsError * prompt.bf16_error);
      const double error =
          RelativeError(RunSequence(**gpu, prompt.ids, 0, prompt.num_rows), prompt.logits);
      EXPECT_LT(error, tolerance) << "transformers in bf16: " << prompt.bf16_error;
      worst = std::max(worst, error);
      worst_theirs = std::max(worst_theirs, prompt.bf16_error);
      CompareGreedy(**gpu, prompt, tolerance);
    }
    std::printf("%s: error %.4f, of transformers in bf16 %.4f\n",
                entry.path().filename().string().c_str(), worst, worst_theirs);
  }
  EXPECT_GT(num_models, 0);
}

}  // namespace
}  // namespace nereid::gpu
