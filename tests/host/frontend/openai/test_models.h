// Language models for the tests of the OpenAI routes.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "host/frontend/http/bodies/infer_body.h"
#include "host/frontend/openai/tensors/answer_piece.h"
#include "host/frontend/openai/tensors/llm_signature.h"

namespace nereid::openai {

struct TestTensor {
  const char* name;
  const char* datatype;
  const char* shape;
};

inline LlmSignature MakeModel(const std::vector<TestTensor>& inputs,
                              const std::vector<TestTensor>& outputs,
                              const std::string& config = "{}") {
  const auto list = [](const std::vector<TestTensor>& tensors) {
    std::string json = "[";
    for (const TestTensor& tensor : tensors) {
      if (json.size() > 1) json += ',';
      json += StrCat(R"({"name":")", tensor.name, R"(","datatype":")", tensor.datatype,
                     R"(","shape":)", tensor.shape, "}");
    }
    return json + "]";
  };
  const std::string metadata =
      StrCat(R"({"name":"m","inputs":)", list(inputs), R"(,"outputs":)", list(outputs), "}");
  Result<LlmSignature> model =
      MakeLlmSignature(metadata, [&](const std::string&) { return Result<std::string>(config); });
  EXPECT_TRUE(model.ok()) << model.status().message();
  return model.ok() ? *model : LlmSignature();
}

// What a repository has that an older nereid-repo made.
inline LlmSignature SmallModel() {
  return MakeModel({{"text_input", "BYTES", "[-1,1]"},
                    {"messages", "BYTES", "[-1,1]"},
                    {"tools", "BYTES", "[-1,1]"},
                    {"chat_template_kwargs", "BYTES", "[-1,1]"},
                    {"max_tokens", "INT32", "[-1,1]"},
                    {"stop_words", "BYTES", "[-1,-1]"},
                    {"temperature", "FP32", "[-1,1]"},
                    {"top_k", "INT32", "[-1,1]"},
                    {"top_p", "FP32", "[-1,1]"},
                    {"seed", "UINT64", "[-1,1]"},
                    {"presence_penalty", "FP32", "[-1,1]"},
                    {"exclude_input_in_output", "BOOL", "[-1,1]"},
                    {"stream", "BOOL", "[-1,1]"}},
                   {{"text_output", "BYTES", "[-1]"},
                    {"finish_reason", "BYTES", "[-1,1]"},
                    {"num_input_tokens", "INT32", "[-1,1]"},
                    {"num_output_tokens", "INT32", "[-1,1]"}},
                   R"({"input":[{"name":"text_input","optional":true},{"name":"max_tokens"}]})");
}

// A model with every tensor that the routes know.
inline LlmSignature FullModel() {
  return MakeModel({{"text_input", "BYTES", "[-1,1]"},
                    {"messages", "BYTES", "[-1,1]"},
                    {"tools", "BYTES", "[-1,1]"},
                    {"chat_template_kwargs", "BYTES", "[-1,1]"},
                    {"tool_choice", "BYTES", "[-1,1]"},
                    {"parallel_tool_calls", "BOOL", "[-1,1]"},
                    {"prompt_token_ids", "INT32", "[-1,-1]"},
                    {"max_tokens", "INT32", "[-1,1]"},
                    {"min_tokens", "INT32", "[-1,1]"},
                    {"num_return_sequences", "INT32", "[-1,1]"},
                    {"temperature", "FP32", "[-1,1]"},
                    {"top_k", "INT32", "[-1,1]"},
                    {"top_p", "FP32", "[-1,1]"},
                    {"min_p", "FP32", "[-1,1]"},
                    {"seed", "UINT64", "[-1,1]"},
                    {"presence_penalty", "FP32", "[-1,1]"},
                    {"frequency_penalty", "FP32", "[-1,1]"},
                    {"repetition_penalty", "FP32", "[-1,1]"},
                    {"logit_bias_ids", "INT32", "[-1,-1]"},
                    {"logit_bias_values", "FP32", "[-1,-1]"},
                    {"allowed_token_ids", "INT32", "[-1,-1]"},
                    {"bad_words", "BYTES", "[-1,-1]"},
                    {"stop_words", "BYTES", "[-1,-1]"},
                    {"guided_decoding_guide_type", "BYTES", "[-1,1]"},
                    {"guided_decoding_guide", "BYTES", "[-1,1]"},
                    {"stop_token_ids", "INT32", "[-1,-1]"},
                    {"include_stop_str_in_output", "BOOL", "[-1,1]"},
                    {"ignore_eos", "BOOL", "[-1,1]"},
                    {"return_log_probs", "BOOL", "[-1,1]"},
                    {"num_top_logprobs", "INT32", "[-1,1]"},
                    {"return_prompt_log_probs", "BOOL", "[-1,1]"},
                    {"num_prompt_logprobs", "INT32", "[-1,1]"},
                    {"truncate_prompt_tokens", "INT32", "[-1,1]"},
                    {"thinking_token_budget", "INT32", "[-1,1]"},
                    {"skip_special_tokens", "BOOL", "[-1,1]"},
                    {"return_token_ids", "BOOL", "[-1,1]"},
                    {"exclude_input_in_output", "BOOL", "[-1,1]"},
                    {"parse_output", "BOOL", "[-1,1]"},
                    {"priority", "INT32", "[-1,1]"},
                    {"cache_salt", "BYTES", "[-1,1]"},
                    {"stream", "BOOL", "[-1,1]"}},
                   {{"text_output", "BYTES", "[-1]"},
                    {"finish_reason", "BYTES", "[-1,1]"},
                    {"stop_reason", "BYTES", "[-1,1]"},
                    {"num_input_tokens", "INT32", "[-1,1]"},
                    {"num_output_tokens", "INT32", "[-1,1]"},
                    {"num_cached_tokens", "INT32", "[-1,1]"},
                    {"sequence_index", "INT32", "[-1,1]"},
                    {"reasoning", "BYTES", "[-1,1]"},
                    {"tool_calls", "BYTES", "[-1,1]"},
                    {"output_log_probs", "FP32", "[-1,-1,-1]"},
                    {"cum_log_probs", "FP32", "[-1,-1]"},
                    {"prompt_log_probs", "FP32", "[-1,-1]"},
                    {"prompt_token_texts", "BYTES", "[-1,-1]"},
                    {"prompt_top_logprob_ids", "INT32", "[-1,-1,-1]"},
                    {"prompt_top_logprobs", "FP32", "[-1,-1,-1]"},
                    {"prompt_top_token_texts", "BYTES", "[-1,-1,-1]"},
                    {"token_texts", "BYTES", "[-1,-1]"},
                    {"top_logprobs", "FP32", "[-1,-1,-1]"},
                    {"top_token_texts", "BYTES", "[-1,-1,-1]"},
                    {"output_token_ids", "INT32", "[-1,-1]"},
                    {"prompt_ids", "INT32", "[-1,-1]"}},
                   R"({"model_transaction_policy":{"decoupled":true}})");
}

inline const http::InputTensor* FindTensor(const http::InputTensors& inputs,
                                           std::string_view name) {
  for (const http::InputTensor& input : inputs) {
    if (input.name == name) return &input;
  }
  return nullptr;
}

// The elements of an input; empty if it is absent.
template <typename T>
std::vector<T> ValuesOf(const http::InputTensors& inputs, std::string_view name) {
  const http::InputTensor* const input = FindTensor(inputs, name);
  if (input == nullptr) return {};
  std::vector<T> values(input->bytes().size() / sizeof(T));
  std::memcpy(values.data(), input->bytes().data(), values.size() * sizeof(T));
  return values;
}

inline std::vector<std::string> TextsOf(const http::InputTensors& inputs, std::string_view name) {
  const http::InputTensor* const input = FindTensor(inputs, name);
  if (input == nullptr) return {};
  const Result<std::vector<std::string_view>> texts = ReadTexts(input->bytes());
  EXPECT_TRUE(texts.ok());
  return {texts->begin(), texts->end()};
}

}  // namespace nereid::openai
