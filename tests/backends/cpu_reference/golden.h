// Reads the tiny checkpoints with recorded outputs of Hugging Face transformers, from the data
// folder ($NEREID_TEST_DATA/tiny) or from the one in the repository.
#pragma once

#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/source_path.h"

namespace nereid::cpu::testing {

struct GoldenPrompt {
  std::vector<int32_t> ids;
  std::vector<float> logits_first32;  // of the last position
  std::vector<int32_t> all_argmax;    // at every position
  std::vector<int32_t> greedy;        // 32 tokens
  std::vector<float> greedy_log_probs;
  float logit_max = 0.0f;
};

// The checkpoints with one weight for each parameter, and those with quantized matrices.
inline constexpr const char* kPlainCheckpoints[] = {"gemma2",
                                                    "gemma3",
                                                    "gpt2",
                                                    "gpt_bigcode",
                                                    "gpt_neox",
                                                    "llama",
                                                    "llama-linear-rope",
                                                    "llama-mha",
                                                    "llama-mqa-bias",
                                                    "llama-tied",
                                                    "llama-yarn",
                                                    "llama3.1-rope",
                                                    "mistral",
                                                    "mistral-swa",
                                                    "mixtral",
                                                    "phi3",
                                                    "phi3-swa",
                                                    "qwen2",
                                                    "qwen3",
                                                    "qwen3_moe",
                                                    "starcoder2"};
inline constexpr const char* kQuantizedCheckpoints[] = {"llama-awq", "llama-gptq",
                                                        "llama-gptq-actorder"};
inline std::vector<const char*> AllCheckpoints() {
  std::vector<const char*> names(std::begin(kPlainCheckpoints), std::end(kPlainCheckpoints));
  names.insert(names.end(), std::begin(kQuantizedCheckpoints), std::end(kQuantizedCheckpoints));
  return names;
}

// The name of a checkpoint as a name that GoogleTest accepts.
inline std::string TestName(std::string checkpoint) {
  for (char& c : checkpoint) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return checkpoint;
}
// The same of a test's parameter that is the name of a checkpoint.
inline constexpr auto kNameOfCheckpoint = [](const auto& info) { return TestName(info.param); };

inline std::filesystem::path TreeDataFolder() {
  return SourcePath("tests/data/tiny");
}

// The folder of checkpoint `name`; empty if neither data folder has it.
inline std::string FindTiny(const std::string& name) {
  const char* data = std::getenv("NEREID_TEST_DATA");
  for (const std::filesystem::path& folder :
       {std::filesystem::path(data != nullptr ? data : SourcePath("../shared/data")) / "tiny",
        TreeDataFolder()}) {
    if (std::filesystem::exists(folder / name / "golden.json")) return (folder / name).string();
  }
  return "";
}

inline std::vector<GoldenPrompt> ReadGolden(const std::string& directory) {
  std::ifstream in(directory + "/golden.json");
  const nlohmann::json json = nlohmann::json::parse(in);
  std::vector<GoldenPrompt> prompts;
  for (const nlohmann::json& entry : json.at("prompts")) {
    GoldenPrompt& prompt = prompts.emplace_back();
    prompt.ids = entry.at("ids").get<std::vector<int32_t>>();
    prompt.logits_first32 = entry.at("logits_first32").get<std::vector<float>>();
    prompt.all_argmax = entry.at("all_argmax").get<std::vector<int32_t>>();
    prompt.greedy = entry.at("greedy").get<std::vector<int32_t>>();
    prompt.greedy_log_probs = entry.at("greedy_logprobs").get<std::vector<float>>();
    prompt.logit_max = entry.at("logit_max").get<float>();
  }
  return prompts;
}

}  // namespace nereid::cpu::testing
