// Tests of the fields of chats and completions: which tensors they become, and which are refused.
#include <gtest/gtest.h>

#include <algorithm>

#include "host/frontend/openai/routes/chat_completions.h"
#include "host/frontend/openai/routes/completions.h"
#include "tests/host/frontend/openai/test_models.h"

namespace nereid::openai {
namespace {

struct Outcome {
  GenerationRequest request;
  ApiError error;  // status 0: none
  const http::InputTensors& inputs() const { return request.prompts.at(0); }
};

Outcome Read(RouteSet route, const std::string& json, const LlmSignature& model) {
  Outcome outcome;
  ParsedBody body(json, 64);
  Status status = body.Read(route);
  if (status.ok()) {
    status = route == kChat ? ReadChatRequest(body, model, outcome.request)
                            : ReadCompletionRequest(body, model, outcome.request);
  }
  outcome.error.status = 0;
  if (!status.ok()) outcome.error = body.ErrorOf(status);
  return outcome;
}

constexpr char kMessages[] = R"("messages":[{"role":"user","content":"hi"}])";

Outcome Chat(const std::string& fields, const LlmSignature& model = FullModel()) {
  Outcome outcome = Read(kChat, StrCat("{", kMessages, fields, "}"), model);
  EXPECT_EQ(outcome.error.status, 0) << outcome.error.message;
  return outcome;
}
Outcome Complete(const std::string& fields, const LlmSignature& model = FullModel()) {
  Outcome outcome = Read(kCompletions, StrCat("{", fields, "}"), model);
  EXPECT_EQ(outcome.error.status, 0) << outcome.error.message;
  return outcome;
}
ApiError ChatError(const std::string& fields, const LlmSignature& model = FullModel()) {
  return Read(kChat, StrCat("{", kMessages, fields, "}"), model).error;
}
ApiError BodyError(RouteSet route, const std::string& json,
                   const LlmSignature& model = FullModel()) {
  return Read(route, json, model).error;
}

TEST(RequestFieldsTest, AFieldBecomesTheTensorOfTheModel) {
  const Outcome chat = Chat(
      R"(,"max_completion_tokens":7,"min_tokens":2,"min_p":0.25,"seed":-1,"stop":["a","b"],
          "stop_token_ids":[5,6],"presence_penalty":0.5,"frequency_penalty":-0.5,
          "repetition_penalty":1.5,"logit_bias":{"7":-100,"8":2.5},"allowed_token_ids":[1,2],
          "bad_words":["x"],"include_stop_str_in_output":true,"ignore_eos":true,
          "skip_special_tokens":false,"priority":-3,"cache_salt":"s","n":3,
          "return_token_ids":true,"stream":true)");
  const http::InputTensors& in = chat.inputs();
  EXPECT_EQ(TextsOf(in, "messages"),
            std::vector<std::string>{R"([{"role":"user","content":"hi"}])"});
  EXPECT_EQ(ValuesOf<int32_t>(in, "max_tokens"), std::vector<int32_t>{7});
  EXPECT_EQ(ValuesOf<int32_t>(in, "min_tokens"), std::vector<int32_t>{2});
  EXPECT_EQ(ValuesOf<float>(in, "min_p"), std::vector<float>{0.25});
  EXPECT_EQ(ValuesOf<uint64_t>(in, "seed"), std::vector<uint64_t>{UINT64_MAX});
  EXPECT_EQ(TextsOf(in, "stop_words"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(FindTensor(in, "stop_words")->shape, (InlineVector<int64_t, 6>{1, 2}));
  EXPECT_EQ(ValuesOf<int32_t>(in, "stop_token_ids"), (std::vector<int32_t>{5, 6}));
  EXPECT_EQ(ValuesOf<float>(in, "presence_penalty"), std::vector<float>{0.5});
  EXPECT_EQ(ValuesOf<float>(in, "frequency_penalty"), std::vector<float>{-0.5});
  EXPECT_EQ(ValuesOf<float>(in, "repetition_penalty"), std::vector<float>{1.5});
  EXPECT_EQ(ValuesOf<int32_t>(in, "logit_bias_ids"), (std::vector<int32_t>{7, 8}));
  EXPECT_EQ(ValuesOf<float>(in, "logit_bias_values"), (std::vector<float>{-100, 2.5}));
  EXPECT_EQ(ValuesOf<int32_t>(in, "allowed_token_ids"), (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(TextsOf(in, "bad_words"), std::vector<std::string>{"x"});
  for (const char* const name : {"include_stop_str_in_output", "ignore_eos", "return_token_ids",
                                 "stream", "exclude_input_in_output", "parse_output"}) {
    EXPECT_EQ(ValuesOf<uint8_t>(in, name), std::vector<uint8_t>{1}) << name;
  }
  EXPECT_EQ(ValuesOf<uint8_t>(in, "skip_special_tokens"), std::vector<uint8_t>{0});
  EXPECT_EQ(ValuesOf<int32_t>(in, "priority"), std::vector<int32_t>{-3});
  EXPECT_EQ(TextsOf(in, "cache_salt"), std::vector<std::string>{"s"});
  EXPECT_EQ(ValuesOf<int32_t>(in, "num_return_sequences"), std::vector<int32_t>{3});
  EXPECT_EQ(chat.request.answers_per_prompt, 3u);
  EXPECT_TRUE(chat.request.is_stream && chat.request.has_token_ids);
}

TEST(RequestFieldsTest, AFieldWithoutATensorIsRefusedByNameUnlessItChangesNothing) {
  for (const char* const field :
       {R"("min_p":0.1)", R"("n":2)", R"("logit_bias":{"1":1})", R"("ignore_eos":true)",
        R"("stop_token_ids":[1])", R"("logprobs":true)", R"("return_token_ids":true)",
        R"("skip_special_tokens":false)", R"("bad_words":["a"])", R"("cache_salt":"x")"}) {
    const ApiError error = ChatError(StrCat(",", field), SmallModel());
    EXPECT_EQ(error.status, 400) << field;
    EXPECT_EQ(error.code, "unsupported_parameter") << field;
    EXPECT_EQ(error.param, std::string(field).substr(1, error.param.size())) << field;
    EXPECT_NE(error.message.find("model 'm': it has no "), std::string::npos) << error.message;
  }
  const Outcome chat =
      Chat(R"(,"min_p":0,"n":1,"logit_bias":{},"ignore_eos":false,"stop_token_ids":[],
               "logprobs":false,"return_token_ids":false,"skip_special_tokens":true,"stop":null,
               "bad_words":[ ],"frequency_penalty":0.0,"tools":[],"response_format":{"type":"text"},
               "parallel_tool_calls":true,"user":"u","metadata":{"a":"b"},"store":false,
               "use_beam_search":false,"modalities":["text"],"top_logprobs":0)",
           SmallModel());
  EXPECT_EQ(FindTensor(chat.inputs(), "tools"), nullptr);
}

TEST(RequestFieldsTest, RequestsWithoutASeedGetDifferentOnes) {
  EXPECT_NE(ValuesOf<uint64_t>(Chat("").inputs(), "seed"),
            ValuesOf<uint64_t>(Chat("").inputs(), "seed"));
}

TEST(RequestFieldsTest, SeveralAnswersNeedADecoupledModel) {
  LlmSignature model = FullModel();
  model.is_decoupled = false;
  EXPECT_EQ(ChatError(R"(,"n":2)", model).param, "n");
  EXPECT_EQ(Chat(R"(,"n":1)", model).request.answers_per_prompt, 1u);
}

TEST(RequestFieldsTest, ATemperatureAloneSamplesFromAllTokens) {
  const Outcome open = Chat("");
  EXPECT_EQ(ValuesOf<float>(open.inputs(), "temperature"), std::vector<float>{1});
  EXPECT_EQ(ValuesOf<int32_t>(open.inputs(), "top_k"), std::vector<int32_t>{0});
  EXPECT_EQ(ValuesOf<float>(open.inputs(), "top_p"), std::vector<float>{1});
  const Outcome greedy = Chat(R"(,"temperature":0)");
  EXPECT_EQ(ValuesOf<float>(greedy.inputs(), "temperature"), std::vector<float>{0});
  const Outcome given = Chat(R"(,"temperature":0.5,"top_k":-1,"top_p":0.75)");
  EXPECT_EQ(ValuesOf<int32_t>(given.inputs(), "top_k"), std::vector<int32_t>{0});
  EXPECT_EQ(ValuesOf<float>(given.inputs(), "top_p"), std::vector<float>{0.75});
  const Outcome single = Chat(R"(,"top_p":0)");
  EXPECT_EQ(ValuesOf<int32_t>(single.inputs(), "top_k"), std::vector<int32_t>{1});
  EXPECT_EQ(ValuesOf<float>(single.inputs(), "top_p"), std::vector<float>{1});
}

TEST(RequestFieldsTest, DefaultsOfTheCheckpointHoldForWhatTheClientLeavesOpen) {
  LlmSignature model = FullModel();
  model.has_sampling_defaults = true;
  const Outcome open = Chat(R"(,"top_p":0.5)", model);
  EXPECT_EQ(FindTensor(open.inputs(), "temperature"), nullptr);
  EXPECT_EQ(FindTensor(open.inputs(), "top_k"), nullptr);
  EXPECT_EQ(ValuesOf<float>(open.inputs(), "top_p"), std::vector<float>{0.5});
}

TEST(RequestFieldsTest, WhatTheModelRecommendsHoldsForWhatTheClientLeavesOpen) {
  LlmSignature model = FullModel();
  model.recommended = {{"temperature", 0.5}, {"top_k", 20}, {"repetition_penalty", 1.5}};
  const Outcome open = Chat(R"(,"top_k":3)", model);
  EXPECT_EQ(ValuesOf<float>(open.inputs(), "temperature"), std::vector<float>{0.5});
  EXPECT_EQ(ValuesOf<int32_t>(open.inputs(), "top_k"), std::vector<int32_t>{3});
  EXPECT_EQ(ValuesOf<float>(open.inputs(), "top_p"), std::vector<float>{1});
  EXPECT_EQ(ValuesOf<float>(open.inputs(), "repetition_penalty"), std::vector<float>{1.5});
}

TEST(RequestFieldsTest, AnswersAreLimitedAsTheRouteSays) {
  EXPECT_EQ(FindTensor(Chat("").inputs(), "max_tokens"), nullptr);
  EXPECT_EQ(ValuesOf<int32_t>(Chat("", SmallModel()).inputs(), "max_tokens"),
            std::vector<int32_t>{1 << 30});
  EXPECT_EQ(ValuesOf<int32_t>(Complete(R"("prompt":"x")").inputs(), "max_tokens"),
            std::vector<int32_t>{16});
  EXPECT_EQ(ChatError(R"(,"max_tokens":3,"max_completion_tokens":4)").param, "max_tokens");
}

TEST(RequestFieldsTest, VariablesOfTheTemplateComeFromSeveralFields) {
  const auto variables = [](const std::string& fields) {
    const std::vector<std::string> texts = TextsOf(Chat(fields).inputs(), "chat_template_kwargs");
    return texts.empty() ? "none" : texts[0];
  };
  EXPECT_EQ(variables(""), "none");
  EXPECT_EQ(variables(R"(,"chat_template_kwargs":{"enable_thinking":false,"a\"b":[1, 2]})"),
            R"({"enable_thinking":false,"a\"b":[1, 2]})");
  EXPECT_EQ(variables(R"(,"add_generation_prompt":false,"documents":[{"text":"d"}])"),
            R"({"add_generation_prompt":false,"documents":[{"text":"d"}]})");
  EXPECT_EQ(variables(R"(,"reasoning_effort":"low","chat_template_kwargs":{"reasoning_effort":1})"),
            R"({"reasoning_effort":"low"})");
  EXPECT_EQ(variables(R"(,"reasoning_effort":"none")"),
            R"({"reasoning_effort":"none","enable_thinking":false})");
  EXPECT_EQ(ChatError(R"(,"reasoning_effort":"huge")").param, "reasoning_effort");
  EXPECT_EQ(variables(R"(,"continue_final_message":true)"),
            R"({"continue_final_message":true,"add_generation_prompt":false})");
  EXPECT_EQ(variables(R"(,"continue_final_message":false,"add_generation_prompt":true)"), "none");
  EXPECT_EQ(ChatError(R"(,"continue_final_message":true,"add_generation_prompt":true)").param,
            "continue_final_message");
}

TEST(RequestFieldsTest, ToolsGoToTheModelUnlessItMayNotCallThem) {
  const std::string tools = R"(,"tools":[{"type":"function","function":{"name":"f"}}])";
  EXPECT_EQ(TextsOf(Chat(tools).inputs(), "tools"),
            std::vector<std::string>{R"([{"type":"function","function":{"name":"f"}}])"});
  EXPECT_EQ(TextsOf(Chat(tools + R"(,"tool_choice":"auto")").inputs(), "tools").size(), 1u);
  EXPECT_EQ(FindTensor(Chat(tools + R"(,"tool_choice":"none")").inputs(), "tools"), nullptr);
  EXPECT_EQ(ChatError(R"(,"tools":[{"type":"function"}])").param, "tools[0].function.name");
  EXPECT_EQ(ChatError(R"(,"tools":[{"type":"web_search"}])").param, "tools[0].type");
  EXPECT_EQ(ChatError(R"(,"tools":[3])").message, "tools[0]: expected an object, got a number");
}

TEST(RequestFieldsTest, AForcedToolCallGoesToTheModelWithTheTools) {
  const std::string tools = R"(,"tools":[{"type":"function","function":{"name":"f"}}])";
  const std::string named = R"(,"tool_choice":{"type":"function","function":{"name":"f"}})";
  const Outcome required = Chat(tools + R"(,"tool_choice":"required","parallel_tool_calls":false)");
  EXPECT_EQ(TextsOf(required.inputs(), "tool_choice"), std::vector<std::string>{"required"});
  EXPECT_EQ(ValuesOf<uint8_t>(required.inputs(), "parallel_tool_calls"), std::vector<uint8_t>{0});
  EXPECT_EQ(TextsOf(required.inputs(), "tools").size(), 1u);
  EXPECT_EQ(ValuesOf<uint8_t>(required.inputs(), "parse_output"), std::vector<uint8_t>{1});
  const Outcome function = Chat(tools + named);
  EXPECT_EQ(TextsOf(function.inputs(), "tool_choice"),
            std::vector<std::string>{R"({"type":"function","function":{"name":"f"}})"});
  EXPECT_EQ(FindTensor(function.inputs(), "parallel_tool_calls"), nullptr);
  EXPECT_EQ(FindTensor(Chat(tools + R"(,"tool_choice":"auto")").inputs(), "tool_choice"), nullptr);

  const auto error = [&](const std::string& fields, const LlmSignature& model = FullModel()) {
    const ApiError refused = ChatError(fields, model);
    EXPECT_EQ(refused.param, "tool_choice") << fields;
    return refused.message;
  };
  EXPECT_EQ(error(R"(,"tool_choice":"required")"), "tool_choice: there are no 'tools'");
  EXPECT_EQ(error(tools + R"(,"tool_choice":{"type":"function","function":{"name":"g"}})"),
            "tool_choice: 'g' is not among the tools");
  EXPECT_EQ(error(tools + R"(,"tool_choice":{"type":"function"})"),
            "tool_choice: 'function.name' is required, a string");
  EXPECT_EQ(error(tools + R"(,"response_format":{"type":"json_object"})" + named),
            "tool_choice: forced tool calls, not beside 'response_format'");
  for (const char* const other : {R"("any")", R"({"type":"allowed_tools"})", "3", R"(["none"])"}) {
    error(tools + R"(,"tool_choice":)" + other);
  }
  error(tools + named, SmallModel());
}

TEST(RequestFieldsTest, TheFormOfTheAnswerBecomesAGuide) {
  const auto guide = [](const std::string& fields) {
    const Outcome chat = Chat(fields);
    const auto type = TextsOf(chat.inputs(), "guided_decoding_guide_type");
    const auto text = TextsOf(chat.inputs(), "guided_decoding_guide");
    return (type.empty() ? "none" : type[0]) + " " + (text.empty() ? "" : text[0]);
  };
  const std::string any_object = R"(json_schema {"type":"object"})";
  EXPECT_EQ(guide(R"(,"response_format":{"type":"json_object"})"), any_object);
  EXPECT_EQ(guide(R"(,"response_format":{"json_schema":{"schema":{ "b":1,"a":1e400 },"name":"n",
                   "strict":true},"type":"json_schema"})"),
            R"(json_schema { "b":1,"a":1e400 })");  // as the client wrote it
  EXPECT_EQ(guide(R"(,"response_format":{"type":"structural_tag","format":{}})"),
            R"(structural_tag {"type":"structural_tag","format":{}})");
  EXPECT_EQ(guide(R"(,"structured_outputs":{"json":"{}","regex":null})"), "json_schema {}");
  EXPECT_EQ(guide(R"(,"structured_outputs":{"json_object":true})"), any_object);
  EXPECT_EQ(guide(R"(,"structured_outputs":{"choice":["a","b"]})"), R"(choice ["a","b"])");
  EXPECT_EQ(guide(R"(,"structured_outputs":{"grammar":"root ::= \"a\""})"),
            R"(ebnf_grammar root ::= "a")");
  EXPECT_EQ(guide(R"(,"guided_json":{"type":"null"})"), R"(json_schema {"type":"null"})");
  EXPECT_EQ(guide(R"(,"guided_regex":"a+")"), "regex a+");
  EXPECT_EQ(guide(R"(,"guided_choice":["a"])"), R"(choice ["a"])");
  EXPECT_EQ(guide(R"(,"guided_grammar":"g")"), "ebnf_grammar g");
}

TEST(RequestFieldsTest, AnAnswerOfAGivenFormIsContentAsAWhole) {
  const auto is_parsed = [](const std::string& fields) {
    return FindTensor(Chat(fields).inputs(), "parse_output") != nullptr;
  };
  EXPECT_TRUE(is_parsed(""));
  EXPECT_TRUE(is_parsed(R"(,"response_format":{"type":"text"})"));
  EXPECT_TRUE(is_parsed(R"(,"response_format":{"type":"structural_tag"})"));
  EXPECT_FALSE(is_parsed(R"(,"response_format":{"type":"json_object"})"));
  EXPECT_FALSE(is_parsed(R"(,"guided_regex":"a")"));
}

TEST(RequestFieldsTest, AFormThatCannotBeHeldIsRefusedByName) {
  EXPECT_EQ(ChatError(R"(,"response_format":{"type":"json_object"})", SmallModel()).message,
            "field 'response_format' is not supported by model 'm': it has no input "
            "'guided_decoding_guide_type'");
  EXPECT_EQ(ChatError(R"(,"response_format":{"type":"json_schema"})").param,
            "response_format.json_schema.schema");
  EXPECT_EQ(
      ChatError(R"(,"response_format":{"type":"json_schema","json_schema":{"schema":3}})").message,
      "response_format.json_schema.schema: expected an object, got a number");
  EXPECT_EQ(ChatError(R"(,"response_format":{"type":"xml"})").param, "response_format.type");
  EXPECT_EQ(ChatError(R"(,"structured_outputs":[])").param, "structured_outputs");
  EXPECT_EQ(ChatError(R"(,"structured_outputs":{"json":{},"regex":"a"})").param,
            "structured_outputs");
  EXPECT_EQ(ChatError(R"(,"structured_outputs":{"regex":{}})").param, "structured_outputs.regex");
  EXPECT_EQ(ChatError(R"(,"structured_outputs":{"whitespace_pattern":" "})").code,
            "unsupported_parameter");
  EXPECT_EQ(ChatError(R"(,"structured_outputs":{"yaml":" "})").code, "unknown_parameter");
  EXPECT_EQ(ChatError(R"(,"guided_regex":"a","structured_outputs":{"regex":"a"})").param,
            "guided_regex");
}

TEST(RequestFieldsTest, AMessageIsCheckedByItsPath) {
  const auto error = [](const std::string& messages) {
    return BodyError(kChat, StrCat(R"({"messages":)", messages, "}"));
  };
  EXPECT_EQ(error("[]").message, "messages: expected at least one message");
  EXPECT_EQ(error("{}").message, "messages: expected an array, got an object");
  EXPECT_EQ(error("[1]").message, "messages[0]: expected an object, got a number");
  EXPECT_EQ(error(R"([{"content":"a"}])").param, "messages[0].role");
  EXPECT_EQ(error(R"([{"role":"user","content":"a"},{"role":"user","content":5}])").message,
            "messages[1].content: expected a string or an array of parts, got a number");
  const ApiError image =
      error(R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url"}]}])");
  EXPECT_EQ(image.param, "messages[0].content[1]");
  EXPECT_NE(image.message.find("'image_url' is not supported by model 'm'"), std::string::npos);
  EXPECT_EQ(error(R"([{"role":"user","content":[{"type":"text"}]}])").param,
            "messages[0].content[0].text");
  EXPECT_EQ(BodyError(kChat, "{}").param, "messages");
}

TEST(RequestFieldsTest, ReasoningOfAMessageIsGivenUnderTheNameThatTemplatesKnow) {
  const auto messages = [](const std::string& json) {
    const Outcome outcome = Read(kChat, StrCat(R"({"messages":)", json, "}"), FullModel());
    EXPECT_EQ(outcome.error.status, 0) << outcome.error.message;
    return TextsOf(outcome.inputs(), "messages").at(0);
  };
  EXPECT_EQ(
      messages(R"([{"role":"a","reasoning":"x\n"},{"role":"b"},{"reasoning":"y","role":"c" }])"),
      R"([{"role":"a","reasoning":"x\n","reasoning_content":"x\n"},{"role":"b"},)"
      R"({"reasoning":"y","role":"c" ,"reasoning_content":"y"}])");
  const std::string both = R"([{"role":"a","reasoning":"x","reasoning_content":"z"}])";
  EXPECT_EQ(messages(both), both);
}

TEST(RequestFieldsTest, PromptsAreTextsOrTokenIds) {
  const Outcome texts = Complete(R"("prompt":["a","b\n"],"echo":true,"max_tokens":3)");
  ASSERT_EQ(texts.request.prompts.size(), 2u);
  EXPECT_EQ(TextsOf(texts.request.prompts[1], "text_input"), std::vector<std::string>{"b\n"});
  EXPECT_EQ(ValuesOf<uint8_t>(texts.request.prompts[1], "exclude_input_in_output"),
            std::vector<uint8_t>{0});
  const Outcome ids = Complete(R"("prompt":[1,2,3])");
  ASSERT_EQ(ids.request.prompts.size(), 1u);
  EXPECT_EQ(ValuesOf<int32_t>(ids.inputs(), "prompt_token_ids"), (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(FindTensor(ids.inputs(), "text_input"), nullptr);
  const Outcome lists = Complete(R"("prompt":[[1],[2,3]])");
  EXPECT_EQ(ValuesOf<int32_t>(lists.request.prompts.at(1), "prompt_token_ids"),
            (std::vector<int32_t>{2, 3}));

  const auto error = [](const std::string& prompt) {
    return BodyError(kCompletions, StrCat(R"({"prompt":)", prompt, "}")).message;
  };
  EXPECT_EQ(error("[]"), "prompt: expected at least one prompt");
  EXPECT_EQ(error("[1,\"a\"]"), "prompt[1]: expected a token id, got a string");
  EXPECT_EQ(error("[[1],[]]"), "prompt[1]: expected at least one token id");
  EXPECT_EQ(error("[[-1]]"), "prompt[0][0]: expected a token id, from 0 to 2147483647");
  EXPECT_NE(BodyError(kCompletions, R"({"prompt":[1]})", SmallModel())
                .message.find("no input 'prompt_token_ids'"),
            std::string::npos);
}

TEST(RequestFieldsTest, TheBestOfSeveralAnswersAreKept) {
  const Outcome best = Complete(R"("prompt":"x","n":2,"best_of":3)");
  EXPECT_EQ(best.request.answers_per_prompt, 3u);
  EXPECT_EQ(best.request.kept_per_prompt, 2u);
  EXPECT_EQ(ValuesOf<int32_t>(best.inputs(), "num_return_sequences"), std::vector<int32_t>{3});
  EXPECT_EQ(ValuesOf<uint8_t>(best.inputs(), "return_log_probs"), std::vector<uint8_t>{1});
  EXPECT_EQ(Complete(R"("prompt":"x","n":2,"best_of":2)").request.kept_per_prompt, 0u);
  const auto error = [](const std::string& fields, const LlmSignature& model = FullModel()) {
    return BodyError(kCompletions, StrCat(R"({"prompt":"x",)", fields, "}"), model);
  };
  EXPECT_EQ(error(R"("n":2,"best_of":1)").message,
            "best_of: expected at least 2, the value of 'n', got 1");
  EXPECT_EQ(error(R"("best_of":2,"stream":true)").param, "best_of");
  EXPECT_EQ(error(R"("best_of":2)", SmallModel()).param, "best_of");
}

TEST(RequestFieldsTest, LogProbabilitiesOfThePromptAskForItsTokens) {
  const auto has_output = [](const Outcome& outcome, std::string_view name) {
    const std::vector<std::string>& outputs = outcome.request.outputs;
    return std::count(outputs.begin(), outputs.end(), name) == 1;
  };
  const Outcome echo = Complete(R"("prompt":"x","echo":true,"logprobs":2,"return_token_ids":true)");
  EXPECT_EQ(ValuesOf<uint8_t>(echo.inputs(), "return_prompt_log_probs"), std::vector<uint8_t>{1});
  EXPECT_EQ(ValuesOf<int32_t>(echo.inputs(), "num_prompt_logprobs"), std::vector<int32_t>{2});
  for (const char* const name :
       {"prompt_ids", "prompt_log_probs", "prompt_token_texts", "prompt_top_token_texts"}) {
    EXPECT_TRUE(has_output(echo, name)) << name;
  }
  const Outcome chosen = Chat(R"(,"prompt_logprobs":0)");
  EXPECT_TRUE(chosen.request.has_prompt_log_probs && has_output(chosen, "prompt_log_probs"));
  EXPECT_FALSE(has_output(chosen, "prompt_top_logprobs"));
  EXPECT_EQ(FindTensor(chosen.inputs(), "num_prompt_logprobs"), nullptr);
  EXPECT_EQ(FindTensor(Chat("").inputs(), "return_prompt_log_probs"), nullptr);
  EXPECT_EQ(ChatError(R"(,"prompt_logprobs":1,"stream":true)").param, "prompt_logprobs");
  EXPECT_EQ(ChatError(R"(,"prompt_logprobs":1)", SmallModel()).param, "prompt_logprobs");
  EXPECT_EQ(
      BodyError(kCompletions, R"({"prompt":"x","echo":true,"logprobs":1,"stream":true,"n":2})")
          .param,
      "logprobs");
}

TEST(RequestFieldsTest, AStreamEchoesThePromptItself) {
  EXPECT_EQ(Complete(R"("prompt":["x","y"],"echo":true,"stream":true)").request.echoes,
            (std::vector<std::string>{"x", "y"}));
  EXPECT_TRUE(Complete(R"("prompt":"x","echo":true)").request.echoes.empty());
  const Outcome ids = Complete(R"("prompt":[1,2],"echo":true,"stream":true)");
  EXPECT_EQ(ids.request.echoes, std::vector<std::string>{""});
  EXPECT_EQ(ValuesOf<uint8_t>(ids.inputs(), "return_prompt_log_probs"), std::vector<uint8_t>{1});
}

TEST(RequestFieldsTest, APromptIsTruncatedByTheModel) {
  EXPECT_EQ(ValuesOf<int32_t>(Complete(R"("prompt":"x","truncate_prompt_tokens":3)").inputs(),
                              "truncate_prompt_tokens"),
            std::vector<int32_t>{3});
  LlmSignature model = FullModel();
  EXPECT_EQ(BodyError(kCompletions, R"({"prompt":"x","truncate_prompt_tokens":-1})", model).param,
            "truncate_prompt_tokens");
  model.max_model_len = 100;
  EXPECT_EQ(
      ValuesOf<int32_t>(Chat(R"(,"truncate_prompt_tokens":-1,"max_tokens":30)", model).inputs(),
                        "truncate_prompt_tokens"),
      std::vector<int32_t>{70});
  EXPECT_EQ(ChatError(R"(,"truncate_prompt_tokens":0)").param, "truncate_prompt_tokens");
}

TEST(RequestFieldsTest, TheReasoningIsBoundedUnlessAGuideDecides) {
  const auto budget = [](const std::string& fields) {
    return ValuesOf<int32_t>(Chat(R"(,"thinking_token_budget":5)" + fields).inputs(),
                             "thinking_token_budget");
  };
  EXPECT_EQ(budget(""), std::vector<int32_t>{5});
  EXPECT_TRUE(budget(R"(,"guided_regex":"a")").empty());
  EXPECT_EQ(ChatError(R"(,"thinking_token_budget":5)", SmallModel()).param,
            "thinking_token_budget");
}

TEST(RequestFieldsTest, LogProbabilitiesAskForTheirOutputs) {
  const Outcome chat = Chat(R"(,"logprobs":true,"top_logprobs":2)");
  EXPECT_EQ(ValuesOf<int32_t>(chat.inputs(), "num_top_logprobs"), std::vector<int32_t>{2});
  EXPECT_EQ(ValuesOf<uint8_t>(chat.inputs(), "return_log_probs"), std::vector<uint8_t>{1});
  for (const char* const name :
       {"output_log_probs", "token_texts", "top_logprobs", "top_token_texts", "reasoning"}) {
    EXPECT_EQ(std::count(chat.request.outputs.begin(), chat.request.outputs.end(), name), 1)
        << name;
  }
  EXPECT_EQ(ChatError(R"(,"top_logprobs":2)").param, "top_logprobs");
  EXPECT_TRUE(Complete(R"("prompt":"a","logprobs":0)").request.has_log_probs);
}

TEST(RequestFieldsTest, AStreamHasOptions) {
  const Outcome chat = Chat(R"(,"stream":true,"stream_options":{"include_usage":true})");
  EXPECT_TRUE(chat.request.has_usage_event && !chat.request.has_usage_everywhere);
  EXPECT_EQ(FindTensor(Chat(R"(,"stream":true)", SmallModel()).inputs(), "stream"), nullptr);
  EXPECT_EQ(ChatError(R"(,"stream_options":{"include_usage":true})").param, "stream_options");
  EXPECT_EQ(ChatError(R"(,"stream":true,"stream_options":{"include_usage":1})").param,
            "stream_options.include_usage");
  EXPECT_EQ(ChatError(R"(,"stream":true,"stream_options":{"x":true})").code, "unknown_parameter");
}

TEST(RequestFieldsTest, FaultyBodiesNameTheFieldOrThePosition) {
  const auto error = [](const std::string& fields) { return ChatError("," + fields); };
  EXPECT_EQ(error(R"("top_kk":1)").message, "unknown field 'top_kk'; did you mean 'top_k'?");
  EXPECT_EQ(error(R"("zzz":1)").message, "unknown field 'zzz'");
  EXPECT_EQ(error(R"("temperature":"1")").message, "temperature: expected a number, got a string");
  EXPECT_EQ(error(R"("temperature":3)").message, "temperature: expected 0 to 2, got 3");
  EXPECT_EQ(error(R"("n":1.5)").param, "n");
  EXPECT_EQ(error(R"("stop":["a",1])").message, "stop[1]: expected a string, got a number");
  EXPECT_EQ(error(R"("stop":[)" +
                  [] {
                    std::string list = "\"a\"";
                    for (int i = 0; i < 16; ++i) list += ",\"a\"";
                    return list;
                  }() +
                  "]")
                .message,
            "stop: expected at most 16 strings");
  EXPECT_EQ(error(R"("logit_bias":{"x":1})").param, "logit_bias.x");
  EXPECT_EQ(error(R"("prediction":{"type":"content"})").code, "unsupported_parameter");
  EXPECT_EQ(error(R"("temperature":1,"temperature":1)").message,
            "invalid JSON at byte 74: member 'temperature' is given twice");
  EXPECT_EQ(BodyError(kChat, R"({"model":"m",})").message,
            "invalid JSON at byte 13: expected a member name, got '}'");
  EXPECT_EQ(BodyError(kChat, "").message,
            "invalid JSON at byte 0: expected an object, got the end of the text");
}

TEST(RequestFieldsTest, EveryFieldIsDescribedAndHasItsPartsForItsHandling) {
  for (const Field& field : Fields()) {
    EXPECT_FALSE(field.note.empty()) << field.name;
    EXPECT_TRUE(field.handling != Handling::kTensor || !field.tensor.empty()) << field.name;
    EXPECT_LE(field.min, field.max) << field.name;
    for (const Field& other : Fields()) {
      const bool is_same = &field == &other || field.name != other.name;
      EXPECT_TRUE(is_same || (field.routes & other.routes) == 0) << field.name;
    }
  }
}

}  // namespace
}  // namespace nereid::openai
