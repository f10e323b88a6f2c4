// Mode "preprocessing": encodes prompts, or conversations through the chat template, into the
// tensors that an LLM engine takes. Prompts of token ids are passed through. [instance threads,
// concurrently]
#pragma once

#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "backends/tokenizer/lib/chat/chat_template.h"
#include "backends/tokenizer/lib/chat/parsers/parser_family.h"
#include "backends/tokenizer/lib/tokenizer.h"
#include "backends/tokenizer/request_tensors.h"
#include "nereid/model_config.h"
#include "nereid/request.h"
#include "nereid/status.h"

namespace nereid::tokenizer {

class Preprocessing {
 public:
  // `chat_template` and `family`, the form of the model's answers, may be null. If
  // `trusts_special_tokens`, special tokens are also recognised in what clients write in
  // conversations, as they always are in plain prompts.
  Preprocessing(std::shared_ptr<const Tokenizer> tokenizer,
                std::shared_ptr<const ChatTemplate> chat_template, const ParserFamily* family,
                EncodeOptions options, bool trusts_special_tokens);

  // Fills the outputs of one request. The caller sends a returned error as the response.
  Status Process(Request& request, const ModelConfig& config) const;

 private:
  using Rows = std::vector<std::vector<int32_t>>;        // token ids of each batch row
  using JsonRows = std::vector<nlohmann::ordered_json>;  // of each batch row; null: empty or absent

  // --- the prompts of a request (preprocessing_prompts.cc) ---

  // The JSON texts of an optional input.
  static Result<JsonRows> ReadJsonRows(const RequestTensors& tensors, const char* input);
  // Encodes the conversations of the input MESSAGES or the texts of QUERY, or takes the ids of
  // PROMPT_TOKEN_IDS. INVALID_ARG if a request has more than one of them, or none.
  Result<Rows> ReadPrompts(RequestTensors& tensors, Request& request) const;
  // INVALID_ARG names an id outside the vocabulary. Greater ones pass with PROMPT_VOCAB_SIZE.
  Result<Rows> ReadTokenIds(const RequestTensors& tensors, TensorView& view) const;
  Result<Rows> EncodeConversations(const RequestTensors& tensors) const;
  Result<std::vector<int32_t>> EncodeConversation(Conversation conversation,
                                                  const std::tm& now) const;
  Result<Rows> EncodeTexts(const RequestTensors& tensors, TensorView& view) const;
  // Keeps the last TRUNCATE_PROMPT_TOKENS ids of each row.
  Status TruncatePrompts(const RequestTensors& tensors, Rows& rows) const;

  // --- the outputs ---

  Status WriteExtraIds(RequestTensors& tensors, const Rows& ids) const;
  Status WriteIds(RequestTensors& tensors, const char* ids_name, const char* length_name,
                  const Rows& rows, const std::vector<int32_t>& pad_ids) const;
  // The text of the last few ids of a prompt.
  std::string PromptEnd(const std::vector<int32_t>& ids) const;
  Status WritePromptEnds(RequestTensors& tensors, const Rows& rows) const;
  Status WriteReasoningMarkers(RequestTensors& tensors, const Rows& prompts) const;
  // Passes the guide of the request on, or writes the one that forces tool calls.
  Status WriteGuide(RequestTensors& tensors, const Rows& prompts) const;
  // The guides of the rows in which TOOL_CHOICE forces calls.
  Result<std::vector<std::string>> ForcedGuides(const RequestTensors& tensors,
                                                const Rows& prompts) const;
  Result<std::string> CallGuide(std::string_view tool_choice, const nlohmann::ordered_json& tools,
                                bool has_one_call, const std::vector<int32_t>& prompt) const;
  Status WriteDecoderIds(RequestTensors& tensors, const std::vector<int32_t>& pad_ids) const;
  Status WriteWordList(RequestTensors& tensors, const char* output, const char* input) const;
  Status WriteEmbeddingBias(RequestTensors& tensors) const;
  // Returns the ids of the client's input, or `fallback` once per text if the input is absent.
  Result<std::vector<int32_t>> ReadIdsOr(const RequestTensors& tensors, const char* input,
                                         int32_t fallback) const;

  const std::shared_ptr<const Tokenizer> tokenizer_;
  const std::shared_ptr<const ChatTemplate> chat_template_;
  const ParserFamily* const family_;
  const EncodeOptions options_;
  const bool trusts_special_tokens_;
  const int32_t end_id_;  // -1 if the tokenizer defines none
  const int32_t pad_id_;
};

}  // namespace nereid::tokenizer
