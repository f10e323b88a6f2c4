// Calls that a family's published template renders parse back to the same calls, whole and however
// they are cut. The templates come from NEREID_TEST_DATA.
#include <algorithm>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

#include "backends/tokenizer/lib/chat/chat_template.h"
#include "tests/backends/tokenizer/answers.h"
#include "tests/backends/tokenizer/test_tokenizers.h"

namespace nereid::tokenizer {
namespace {

using Json = nlohmann::ordered_json;

// A published template and the family that reads its calls.
struct TemplateCase {
  const char* file;  // in chat_templates/ of the test data
  const char* family;
  bool has_one_call = false;  // it renders one call only
  const char* id = "abcdef123";
};

void PrintTo(const TemplateCase& each, std::ostream* out) {
  *out << each.file;
}

std::string ReadTemplate(const std::string& name) {
  const auto data = TestData();
  if (!data) return "";
  std::ifstream file(*data / "chat_templates" / name);
  return {std::istreambuf_iterator<char>(file), {}};
}

class PublishedTemplateTest : public ::testing::TestWithParam<TemplateCase> {};

TEST_P(PublishedTemplateTest, ACallThatItRendersParsesBackToTheSameCall) {
  const TemplateCase& each = GetParam();
  const std::string source = ReadTemplate(each.file);
  if (source.empty()) GTEST_SKIP() << "chat_templates/" << each.file << " is not in the test data";
  ASSERT_NE(ParserFamilyOfTemplate(source), nullptr);
  EXPECT_EQ(ParserFamilyOfTemplate(source)->name, each.family);
  const auto chat = ChatTemplate::FromTexts(R"({"bos_token": "", "eos_token": ""})", source);
  ASSERT_TRUE(chat.ok()) << chat.status().message();

  const Json calls = Json::parse(R"([
    {"id": "ID0", "type": "function", "function": {"name": "get_weather", "arguments": {
      "city": "Zürich \"x\" {", "days": 3, "exact": true, "tags": ["a", 1.5, null],
      "zip": "0123", "place": {"k": {"z": "<b>"}}, "code": "if a:\n  b\n"}}},
    {"id": "ID1", "type": "function", "function": {"name": "now", "arguments": {}}}])");
  for (size_t num_calls = 1; num_calls <= (each.has_one_call ? 1u : 2u); ++num_calls) {
    Json messages = Json::parse(R"([{"role": "user", "content": "hi"}])");
    const auto render = [&](bool adds_prompt) {
      auto text = (*chat)->Render({messages, Json::parse(kTools), Json(), adds_prompt}, std::tm{});
      EXPECT_TRUE(text.ok()) << text.status().message();
      return text.ok() ? text->bytes() : std::string();
    };
    const std::string prompt = render(true);
    Json assistant = {{"role", "assistant"}, {"content", ""}, {"tool_calls", Json::array()}};
    if (std::string_view(each.family).starts_with("deepseek")) assistant["content"] = nullptr;
    for (size_t i = 0; i < num_calls; ++i) {
      Json call = calls[i];
      call["id"] = std::string(each.family) == "kimi"
                       ? "functions." + call["function"]["name"].get<std::string>() + ":0"
                       : each.id;
      assistant["tool_calls"].push_back(call);
    }
    messages.push_back(assistant);
    const std::string whole = render(false);
    size_t common = 0;
    while (common < std::min(prompt.size(), whole.size()) && prompt[common] == whole[common]) {
      ++common;
    }
    // A prompt that opens the reasoning is not the beginning of a conversation without one.
    if (common < prompt.size()) common = whole.find_last_of(">\n", common - 1) + 1;
    const std::string answer = whole.substr(common);
    const ParserOptions options = Options(std::string_view(whole).substr(0, common));
    const Answer parsed = Parse(each.family, answer, options);
    ASSERT_EQ(parsed.calls.size(), num_calls) << answer << "\n" << parsed.Show();
    for (size_t i = 0; i < num_calls; ++i) {
      EXPECT_EQ(parsed.calls[i].name, calls[i]["function"]["name"]);
      // Some templates sort the arguments.
      EXPECT_EQ(nlohmann::json::parse(parsed.calls[i].arguments),
                nlohmann::json(calls[i]["function"]["arguments"]))
          << answer;
    }
    ExpectSameHoweverCut(each.family, answer, options);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families, PublishedTemplateTest,
    ::testing::Values(
        TemplateCase{"NousResearch-Hermes-3-Llama-3.1-8B-tool_use.jinja", "hermes"},
        TemplateCase{"Qwen-Qwen2.5-7B-Instruct.jinja", "hermes"},
        TemplateCase{"Qwen-Qwen3-0.6B.jinja", "hermes"},
        TemplateCase{"Qwen-QwQ-32B.jinja", "hermes"},
        TemplateCase{"meta-llama-Llama-3.1-8B-Instruct.jinja", "llama", true},
        TemplateCase{"meta-llama-Llama-3.2-3B-Instruct.jinja", "llama", true},
        TemplateCase{"meta-llama-Llama-3.3-70B-Instruct.jinja", "llama", true},
        TemplateCase{"mistralai-Mistral-Nemo-Instruct-2407.jinja", "mistral"},
        TemplateCase{"Mistral-Small-3.2-24B-Instruct-2506.jinja", "mistral"},
        TemplateCase{"unsloth-mistral-Devstral-Small-2507.jinja", "mistral"},
        TemplateCase{"deepseek-ai-DeepSeek-R1-Distill-Llama-8B.jinja", "deepseek_v3"},
        TemplateCase{"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B.jinja", "deepseek_v3"},
        TemplateCase{"deepseek-ai-DeepSeek-V3.1.jinja", "deepseek_v31"},
        TemplateCase{"openai-gpt-oss-120b.jinja", "harmony", true},
        TemplateCase{"glm_4_5.jinja", "glm"}, TemplateCase{"moonshotai-Kimi-K2.jinja", "kimi"},
        TemplateCase{"unsloth-MiniMax-M2.jinja", "minimax"},
        TemplateCase{"Qwen3-Coder-30B-A3B-Instruct.jinja", "qwen3_coder"},
        TemplateCase{"llama-cpp-microsoft-Phi-4-mini-instruct.jinja", "phi"},
        TemplateCase{"deepseek-ai-DeepSeek-V3.2.jinja", "deepseek_v32"},
        TemplateCase{"deepseek-ai-DeepSeek-V4.jinja", "deepseek_v4"},
        TemplateCase{"deepseek-ai-DeepSeek-V4-Flash-0731.jinja", "deepseek_v4"},
        TemplateCase{"Kimi-K3.jinja", "kimi_k3"}, TemplateCase{"MiniMax-M1.jinja", "minimax_m1"},
        TemplateCase{"Qwen3.5-4B.jinja", "qwen3_coder"},
        TemplateCase{"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16.jinja", "qwen3_coder"},
        TemplateCase{"StepFun3.5-Flash.jinja", "qwen3_coder"}, TemplateCase{"GLM-4.6.jinja", "glm"},
        TemplateCase{"GLM-4.7-Flash.jinja", "glm"},
        TemplateCase{"inclusionai-ling-3.0-flash.jinja", "glm"},
        TemplateCase{"Spark2.5.jinja", "glm"}, TemplateCase{"tencent-Hy3.jinja", "hunyuan"},
        TemplateCase{"NVIDIA-Nemotron-Nano-v2.jinja", "nemotron"},
        TemplateCase{"LFM2.5-8B-A1B.jinja", "lfm2"},
        TemplateCase{"ByteDance-Seed-OSS.jinja", "seed_oss"},
        TemplateCase{"google-gemma-4-31B-it.jinja", "gemma4"},
        TemplateCase{"ibm-granite-granite-4.0.jinja", "granite"},
        TemplateCase{"ibm-granite-granite-4.1.jinja", "granite"},
        TemplateCase{"MiMo-VL.jinja", "hermes"},
        TemplateCase{"mistralai-Ministral-3-14B-Reasoning-2512.jinja", "mistral"}),
    [](const auto& info) {
      std::string name;
      for (const char byte : std::string(info.param.file)) name += isalnum(byte) ? byte : '_';
      return name;
    });

}  // namespace
}  // namespace nereid::tokenizer
