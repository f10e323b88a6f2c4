// To add a field, add a line. Where routes give a name different meanings, each has a line.
#include "host/frontend/openai/fields/field_table.h"

#include <algorithm>
#include <climits>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace nereid::openai {
namespace {

using enum FieldKind;
using enum Handling;

constexpr double kMaxInt = INT32_MAX;
constexpr double kMaxSeed = 9223372036854775807.0;

constexpr Field kFields[] = {
    {"model", kGenerate | kTokenize | kDetokenize | kMessages | kResponses, kText, kRoute, "", 0, 0,
     "", "the model that answers"},
    {"messages", kChat | kTokenize, kArray, kRoute, "messages", 0, 0, "",
     "the conversation: objects with `role` and `content`, which is a text or a list of parts of "
     "type text"},
    {"prompt", kCompletions | kTokenize, kAny, kRoute, "text_input", 0, 0, "",
     "a text, a list of texts, a list of token ids, or a list of lists of token ids"},
    {"prompt_embeds", kCompletions, kTextOrTexts, kRoute, "prompt_embeds", 0, 64, "",
     "embeddings in place of a prompt: a tensor [tokens, hidden size] as `torch.save` writes it, "
     "in "
     "base64, or a list of them. The answers of these prompts come first. `prompt` may then be "
     "empty"},
    {"stream", kGenerate | kMessages | kResponses, kBool, kRoute, "stream", 0, 0, "false",
     "send the answer as server-sent events"},
    {"stream_options", kGenerate, kObject, kRoute, "", 0, 0, "",
     "`include_usage`: a last event with the usage; `continuous_usage_stats`: usage in every "
     "event"},

    // ---- how many tokens, how many answers
    {"max_tokens", kChat, kInteger, kRoute, "max_tokens", 1, kMaxInt, "",
     "the most tokens of an answer. Default: what the model's context leaves"},
    {"max_tokens", kCompletions, kInteger, kRoute, "max_tokens", 0, kMaxInt, "16",
     "the most tokens of an answer; 0 with `echo`: the answer is the prompt alone"},
    {"max_completion_tokens", kChat, kInteger, kRoute, "max_tokens", 1, kMaxInt, "",
     "the newer name of `max_tokens`"},
    {"min_tokens", kGenerate, kInteger, kTensor, "min_tokens", 0, kMaxInt, "0",
     "the fewest tokens of an answer"},
    {"n", kGenerate, kInteger, kRoute, "num_return_sequences", 1, 128, "1",
     "the number of answers to each prompt"},
    {"best_of", kCompletions, kInteger, kRoute, "", 1, 128, "",
     "so many answers are made, and those `n` returned whose tokens have the highest mean log "
     "probability; not with `stream`"},

    // ---- sampling
    {"temperature", kGenerate, kNumber, kRoute, "temperature", 0, 2, "",
     "0: the most likely token. Default: 1"},
    {"top_p", kGenerate, kNumber, kRoute, "top_p", 0, 1, "", "nucleus sampling. Default: 1"},
    {"top_k", kGenerate, kInteger, kRoute, "top_k", -1, kMaxInt, "",
     "sample from so many most likely tokens; 0 and -1: from all"},
    {"min_p", kGenerate, kNumber, kTensor, "min_p", 0, 1, "0",
     "the least probability of a token, relative to the most likely one"},
    {"seed", kGenerate, kInteger, kTensor, "seed", -kMaxSeed, kMaxSeed, "",
     "the same seed gives the same answer. Default: another one for each request"},
    {"presence_penalty", kGenerate, kNumber, kTensor, "presence_penalty", -2, 2, "0",
     "lowers the score of tokens that have occurred"},
    {"frequency_penalty", kGenerate, kNumber, kTensor, "frequency_penalty", -2, 2, "0",
     "lowers the score of tokens as often as they have occurred"},
    {"repetition_penalty", kGenerate, kNumber, kTensor, "repetition_penalty", 0.01, 10, "1",
     "divides the score of tokens that have occurred, also in the prompt"},
    {"length_penalty", kGenerate, kNumber, kRefused, "", 0, 0, "1", "it belongs to beam search"},
    {"logit_bias", kGenerate, kObject, kRoute, "logit_bias_ids", -100, 100, "",
     "token ids and what is added to their scores"},
    {"allowed_token_ids", kGenerate, kIntegers, kTensor, "allowed_token_ids", 0, kMaxInt, "",
     "only these tokens are sampled"},
    {"bad_words", kGenerate, kTexts, kTensor, "bad_words", 0, 64, "[]",
     "texts that the answer must not contain"},
    {"use_beam_search", kGenerate, kBool, kRefused, "", 0, 0, "false",
     "beam search is not offered by this API"},

    // ---- where an answer ends
    {"stop", kGenerate, kTextOrTexts, kTensor, "stop_words", 0, 16, "[]",
     "up to 16 texts before which the answer ends"},
    {"stop_token_ids", kGenerate, kIntegers, kTensor, "stop_token_ids", 0, kMaxInt, "[]",
     "tokens at which the answer ends"},
    {"include_stop_str_in_output", kGenerate, kBool, kTensor, "include_stop_str_in_output", 0, 0,
     "false", "the answer contains the text that ended it"},
    {"ignore_eos", kGenerate, kBool, kTensor, "ignore_eos", 0, 0, "false",
     "go on after the model's own end"},

    // ---- what an answer contains
    {"logprobs", kChat, kBool, kRoute, "return_log_probs", 0, 0, "false",
     "the log probability of each token"},
    {"top_logprobs", kChat, kInteger, kRoute, "num_top_logprobs", 0, 20, "",
     "with `logprobs`: so many of the most likely tokens at each place"},
    {"logprobs", kCompletions, kInteger, kRoute, "num_top_logprobs", 0, 20, "",
     "the log probability of each token and of so many of the most likely tokens"},
    {"prompt_logprobs", kGenerate, kInteger, kRoute, "num_prompt_logprobs", 0, 20, "",
     "the log probability of each token of the prompt, and so many of the most likely tokens at "
     "its "
     "place; not with `stream`"},
    {"echo", kCompletions, kBool, kRoute, "exclude_input_in_output", 0, 0, "false",
     "the answer begins with the prompt, with its log probabilities if there are `logprobs`"},
    {"skip_special_tokens", kGenerate, kBool, kTensor, "skip_special_tokens", 0, 0, "true",
     "leave special tokens out of the text"},
    {"spaces_between_special_tokens", kGenerate, kBool, kRefused, "", 0, 0, "true",
     "special tokens are written as the tokenizer writes them"},
    {"return_token_ids", kGenerate, kBool, kTensor, "return_token_ids", 0, 0, "false",
     "the ids of the prompt and of the answer"},
    {"suffix", kCompletions, kText, kRefused, "", 0, 0, "",
     "the text after a gap is not supported"},

    // ---- chats
    {"tools", kChat | kTokenize, kArray, kRoute, "tools", 0, 0, "[]",
     "the functions that the model may call; refused where the chat template does not know tools"},
    {"tool_choice", kChat, kAny, kRoute, "", 0, 0, "",
     "`auto`; `none`: the model does not see the tools; `required`: it must call one; or "
     "`{\"type\": "
     "\"function\", \"function\": {\"name\": ...}}`: it must call this one"},
    {"parallel_tool_calls", kChat, kBool, kRoute, "", 0, 0, "true",
     "false: only the first call of an answer is returned"},
    {"functions", kChat, kAny, kRefused, "", 0, 0, "[]", "send `tools`"},
    {"function_call", kChat, kAny, kRefused, "", 0, 0, "", "send `tool_choice`"},
    {"reasoning_effort", kChat, kText, kRoute, "chat_template_kwargs", 0, 0, "",
     "`none`, `minimal`, `low`, `medium`, `high` or `xhigh`, for templates that know it; `none` "
     "also "
     "sets "
     "`enable_thinking` to false"},
    {"include_reasoning", kChat, kBool, kRoute, "", 0, 0, "true",
     "false: the answer contains no reasoning"},
    {"thinking_token_budget", kChat, kInteger, kRoute, "thinking_token_budget", 0, kMaxInt, "",
     "the most tokens of the reasoning, which is then ended"},
    {"chat_template_kwargs", kChat | kTokenize, kObject, kRoute, "chat_template_kwargs", 0, 0, "{}",
     "variables of the chat template, such as `enable_thinking`"},
    {"add_generation_prompt", kChat | kTokenize, kBool, kRoute, "chat_template_kwargs", 0, 0,
     "true", "the prompt ends with what begins the model's turn"},
    {"continue_final_message", kChat | kTokenize, kBool, kRoute, "chat_template_kwargs", 0, 0,
     "false",
     "the answer continues the text of the last message; not with `add_generation_prompt`"},
    {"documents", kChat, kArray, kRoute, "chat_template_kwargs", 0, 0, "[]",
     "documents for the chat template; refused where it does not know them"},
    {"echo", kChat, kBool, kRefused, "", 0, 0, "false",
     "the answer is what is new; the client has the message that it continues"},
    {"chat_template", kChat | kTokenize, kText, kRefused, "", 0, 0, "",
     "the template comes with the model"},
    {"response_format", kGenerate, kObject, kRoute, "guided_decoding_guide", 0, 0, "",
     "the form of the answer: `type` text, json_object, json_schema (with `json_schema.schema`, "
     "always enforced) or structural_tag"},
    {"structured_outputs", kGenerate, kAny, kRoute, "guided_decoding_guide", 0, 0, "",
     "the form of the answer: one of `json` (a schema), `regex`, `choice`, `grammar`, "
     "`json_object` and `structural_tag`"},
    {"guided_json", kGenerate, kAny, kRoute, "guided_decoding_guide", 0, 0, "",
     "as `structured_outputs.json`"},
    {"guided_regex", kGenerate, kText, kRoute, "guided_decoding_guide", 0, 0, "",
     "as `structured_outputs.regex`"},
    {"guided_choice", kGenerate, kTexts, kRoute, "guided_decoding_guide", 0, 100000, "",
     "as `structured_outputs.choice`"},
    {"guided_grammar", kGenerate, kText, kRoute, "guided_decoding_guide", 0, 0, "",
     "as `structured_outputs.grammar`"},
    {"modalities", kChat, kTexts, kRoute, "", 0, 4, "[\"text\"]", "only [\"text\"]"},
    {"audio", kChat, kAny, kRefused, "", 0, 0, "", "the model writes text only"},
    {"prediction", kChat, kAny, kRefused, "", 0, 0, "", "predicted outputs are not supported"},
    {"web_search_options", kChat, kAny, kRefused, "", 0, 0, "", "there is no web search"},
    {"verbosity", kChat, kText, kRefused, "", 0, 0, "\"medium\"", "say it in the prompt"},

    // ---- tokenize and detokenize
    {"add_special_tokens", kTokenize, kBool, kRefused, "", 0, 0, "",
     "the parameter add_special_tokens of the tokenizer's model decides"},
    {"add_special_tokens", kGenerate, kBool, kRefused, "", 0, 0, "",
     "the parameter add_special_tokens of the tokenizer's model decides"},
    {"return_token_strs", kTokenize, kBool, kRefused, "", 0, 0, "false",
     "send single tokens to /detokenize"},
    {"tokens", kDetokenize, kIntegers, kRoute, "", 0, kMaxInt, "", "the token ids"},

    // ---- messages (Anthropic's form)
    {"messages", kMessages, kArray, kRoute, "messages", 0, 0, "",
     "the conversation: objects with `role` and `content`, a text or a list of blocks of type "
     "text, "
     "thinking, tool_use and tool_result"},
    {"system", kMessages, kAny, kRoute, "messages", 0, 0, "",
     "the system prompt: a text or a list of blocks of type text"},
    {"max_tokens", kMessages, kInteger, kRoute, "max_tokens", 1, kMaxInt, "",
     "the most tokens of the answer"},
    {"temperature", kMessages, kNumber, kRoute, "temperature", 0, 1, "",
     "0: the most likely token. Default: 1"},
    {"top_p", kMessages, kNumber, kRoute, "top_p", 0, 1, "", "nucleus sampling. Default: 1"},
    {"top_k", kMessages, kInteger, kRoute, "top_k", 0, kMaxInt, "",
     "sample from so many most likely tokens"},
    {"stop_sequences", kMessages, kTexts, kRoute, "stop_words", 0, 16, "[]",
     "up to 16 texts before which the answer ends"},
    {"tools", kMessages, kArray, kRoute, "tools", 0, 0, "[]",
     "the functions that the model may call: `name`, `description`, `input_schema`"},
    {"tool_choice", kMessages, kObject, kRoute, "", 0, 0, "",
     "`type`: auto; none: the model does not see the tools; any: it must call one; tool: it must "
     "call the one of this `name`; `disable_parallel_tool_use`"},
    {"thinking", kMessages, kObject, kRoute, "chat_template_kwargs", 0, 0, "",
     "`type`: enabled or disabled, for templates that know `enable_thinking`; adaptive leaves it "
     "to "
     "the template. `budget_tokens`: the most tokens of the reasoning"},
    {"output_config", kMessages, kObject, kRoute, "chat_template_kwargs", 0, 0, "{}",
     "`effort`, for templates that know `reasoning_effort`"},
    {"metadata", kMessages, kObject, kNoEffect, "", 0, 0, "", "names and values of the client"},
    {"service_tier", kMessages, kText, kNoEffect, "", 0, 0, "", "there is one tier"},
    {"context_management", kMessages, kObject, kNoEffect, "", 0, 0, "",
     "a conversation is never shortened"},
    {"container", kMessages, kAny, kRefused, "", 0, 0, "", "there are no containers"},
    {"mcp_servers", kMessages, kArray, kRefused, "", 0, 0, "[]",
     "the server does not call other servers"},

    // ---- responses
    {"input", kResponses, kAny, kRoute, "messages", 0, 0, "",
     "a text, or a list of items of type message, function_call, function_call_output and "
     "reasoning"},
    {"instructions", kResponses, kText, kRoute, "messages", 0, 0, "", "the system prompt"},
    {"max_output_tokens", kResponses, kInteger, kRoute, "max_tokens", 1, kMaxInt, "",
     "the most tokens of the answer"},
    {"temperature", kResponses, kNumber, kRoute, "temperature", 0, 2, "",
     "0: the most likely token. Default: 1"},
    {"top_p", kResponses, kNumber, kRoute, "top_p", 0, 1, "", "nucleus sampling. Default: 1"},
    {"store", kResponses, kBool, kRoute, "", 0, 0, "",
     "false: the response is not kept. Default: true"},
    {"previous_response_id", kResponses, kText, kRoute, "", 0, 0, "",
     "the response that the conversation continues"},
    {"tools", kResponses, kArray, kRoute, "tools", 0, 0, "[]",
     "the functions that the model may call: `type` function, `name`, `description`, `parameters`"},
    {"tool_choice", kResponses, kAny, kRoute, "", 0, 0, "",
     "`auto`; `none`: the model does not see the tools; `required`: it must call one; or "
     "`{\"type\": "
     "\"function\", \"name\": ...}`: it must call this one"},
    {"parallel_tool_calls", kResponses, kBool, kRoute, "", 0, 0, "true",
     "false: only the first call of an answer is returned"},
    {"reasoning", kResponses, kObject, kRoute, "chat_template_kwargs", 0, 0, "{}",
     "`effort`, for templates that know `reasoning_effort`"},
    {"text", kResponses, kObject, kRoute, "", 0, 0, "{}",
     "`format`: the form of the answer, of `type` text, json_object or json_schema (with "
     "`schema`)"},
    {"metadata", kResponses, kObject, kRoute, "", 0, 0, "",
     "names and values, which are sent back"},
    {"truncation", kResponses, kText, kRefused, "", 0, 0, "\"disabled\"",
     "a conversation is never shortened"},
    {"background", kResponses, kBool, kRefused, "", 0, 0, "false",
     "a response is made while its client waits"},
    {"conversation", kResponses, kAny, kRefused, "", 0, 0, "", "send `previous_response_id`"},
    {"prompt", kResponses, kAny, kRefused, "", 0, 0, "", "there are no stored prompts"},
    {"max_tool_calls", kResponses, kInteger, kRefused, "", 0, 0, "",
     "the server calls no tools itself"},
    {"top_logprobs", kResponses, kInteger, kRefused, "", 0, 0, "0",
     "log probabilities are not offered by this route"},
    {"include", kResponses, kTexts, kNoEffect, "", 0, 64, "", "nothing more is included"},
    {"stream_options", kResponses, kObject, kNoEffect, "", 0, 0, "", "there is nothing to choose"},
    {"user", kResponses, kText, kNoEffect, "", 0, 0, "", "the client's end user"},
    {"safety_identifier", kResponses, kText, kNoEffect, "", 0, 0, "", "the client's end user"},
    {"prompt_cache_key", kResponses, kText, kNoEffect, "", 0, 0, "",
     "a hint where cached prompts may lie"},
    {"prompt_cache_retention", kResponses, kText, kNoEffect, "", 0, 0, "",
     "how long cached prompts stay"},
    {"service_tier", kResponses, kText, kNoEffect, "", 0, 0, "", "there is one tier"},

    // ---- the server
    {"priority", kGenerate, kInteger, kTensor, "priority", INT32_MIN, kMaxInt, "0",
     "requests with a lower number come first"},
    {"cache_salt", kGenerate, kText, kTensor, "cache_salt", 0, 0, "",
     "requests share cached prompts only if their salts are equal"},
    {"retention_token_range_starts", kGenerate, kIntegers, kTensor, "retention_token_range_starts",
     0, kMaxInt, "[]",
     "the prompt tokens at which ranges begin that stay cached longer or shorter"},
    {"retention_token_range_ends", kGenerate, kIntegers, kTensor, "retention_token_range_ends", -1,
     kMaxInt, "[]", "where the ranges end; -1: with the prompt"},
    {"retention_token_range_priorities", kGenerate, kIntegers, kTensor,
     "retention_token_range_priorities", 0, 100, "[]",
     "the lowest is evicted first; 35 is that of other blocks"},
    {"retention_token_range_durations_ms", kGenerate, kIntegers, kTensor,
     "retention_token_range_durations_ms", -1, kMaxInt, "[]",
     "how long the priorities hold once the blocks are unused; -1: without end"},
    {"retention_decode_priority", kGenerate, kInteger, kTensor, "retention_decode_priority", 0, 100,
     "35", "the same for the output"},
    {"retention_decode_duration_ms", kGenerate, kInteger, kTensor, "retention_decode_duration_ms",
     -1, kMaxInt, "-1", "the same for the output"},
    {"lora_name", kGenerate, kText, kTensor, "lora_name", 0, 0, "",
     "the LoRA adapter, where the model's name does not name it"},
    {"model", kLoadAdapter | kUnloadAdapter, kText, kRoute, "", 0, 0, "",
     "the model of the adapter, where several take adapters"},
    {"lora_name", kLoadAdapter | kUnloadAdapter, kText, kRoute, "", 0, 0, "",
     "the adapter, which requests name as their model"},
    {"lora_path", kLoadAdapter, kText, kRoute, "", 0, 0, "",
     "the folder of its files on the server, in PEFT's format"},
    {"load_inplace", kLoadAdapter, kBool, kRoute, "", 0, 0, "false",
     "whether an adapter of the same name is replaced"},
    {"lora_int_id", kUnloadAdapter, kInteger, kNoEffect, "", INT32_MIN, kMaxInt, "",
     "adapters have no numbers"},
    {"is_3d_lora_weight", kLoadAdapter, kBool, kRefused, "", 0, 0, "false",
     "experts are not adapted"},
    {"truncate_prompt_tokens", kGenerate, kInteger, kRoute, "truncate_prompt_tokens", -1, kMaxInt,
     "",
     "only so many last tokens of the prompt are read; -1: as many as the model's context leaves "
     "beside `max_tokens`"},
    {"request_id", kGenerate, kText, kRoute, "", 0, 0, "",
     "the id of the request; the header X-Request-Id comes first"},
    {"user", kGenerate, kText, kNoEffect, "", 0, 0, "", "the client's end user"},
    {"safety_identifier", kGenerate, kText, kNoEffect, "", 0, 0, "", "the client's end user"},
    {"prompt_cache_key", kGenerate, kText, kNoEffect, "", 0, 0, "",
     "a hint where cached prompts may lie"},
    {"prompt_cache_retention", kGenerate, kText, kNoEffect, "", 0, 0, "",
     "how long cached prompts stay"},
    {"service_tier", kGenerate, kText, kNoEffect, "", 0, 0, "", "there is one tier"},
    {"metadata", kGenerate, kObject, kNoEffect, "", 0, 0, "", "names and values of the client"},
    {"store", kGenerate, kBool, kRefused, "", 0, 0, "false", "answers of this route are not kept"},
    {"kv_transfer_params", kGenerate, kAny, kRefused, "", 0, 0, "",
     "caches are not passed between servers"},
};

// The number of insertions, deletions and replacements that turn `a` into `b`.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::span<const Field> Fields() {
  return kFields;
}

const Field* FindField(RouteSet route, std::string_view name) {
  for (const Field& field : kFields) {
    if ((field.routes & route) != 0 && field.name == name) return &field;
  }
  return nullptr;
}

std::string_view ClosestField(RouteSet route, std::string_view name) {
  constexpr size_t kMaxName = 64;  // a longer name is no misspelling
  if (name.size() > kMaxName) return {};
  std::string_view closest;
  size_t least = 1 + std::min<size_t>(2, name.size() / 3);
  for (const Field& field : kFields) {
    if ((field.routes & route) == 0 || field.handling == kRefused) continue;
    const size_t distance = EditDistance(name, field.name);
    if (distance >= least) continue;
    least = distance;
    closest = field.name;
  }
  return closest;
}

std::string_view Describe(FieldKind kind) {
  switch (kind) {
    case kBool:
      return "a boolean";
    case kInteger:
      return "an integer";
    case kNumber:
      return "a number";
    case kText:
      return "a string";
    case kTextOrTexts:
      return "a string or an array of strings";
    case kTexts:
      return "an array of strings";
    case kIntegers:
      return "an array of integers";
    case kObject:
      return "an object";
    case kArray:
      return "an array";
    case kAny:
      break;
  }
  return "a value";
}

}  // namespace nereid::openai
