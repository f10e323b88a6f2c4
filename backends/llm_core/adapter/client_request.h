// What a client's request asks of the engine, item by item, as its tensors and parameters say.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/llm_core/adapter/extra_outputs.h"
#include "backends/llm_core/adapter/item_output_sink.h"
#include "backends/llm_core/adapter/lazy_tokenizer.h"
#include "backends/llm_core/adapter/llm_parameters.h"
#include "backends/llm_core/adapter/lora_requests.h"
#include "backends/llm_core/adapter/stop_string_detector.h"
#include "backends/llm_core/engine/request.h"
#include "backends/llm_core/grammar/guide.h"
#include "backends/llm_core/prompt/prompt_embeddings.h"
#include "backends/llm_tables/engine_tensors.h"
#include "nereid/backend.h"

namespace nereid::llm {

// Defaults of a request; constant for the lifetime of the model.
struct RequestDefaults {
  llm::TokenIds end_ids;         // from the checkpoint
  llm::SamplingParams sampling;  // for parameters that the request leaves open
  int32_t max_positions = 0;
  int32_t vocab_size = 0;
  int32_t hidden_size = 0;  // of the prompt's embeddings
  int32_t max_beam_width = 1;
  int32_t max_num_sequences = 1;  // limit for one request
  DecodingMode decoding_mode = DecodingMode::kAny;
  std::optional<LookaheadSizes> lookahead;  // the greatest ones; absent: another drafter or none
  // Whether the model declares the inputs return_num_input_tokens and return_num_output_tokens. If
  // not, the outputs are always sent.
  bool asks_for_num_input = false, asks_for_num_output = false;
  size_t num_outputs = 0;                                          // that the model declares
  bool has_context_logits = false, has_generation_logits = false;  // whether it declares these
  bool exclude_input_in_output = false;
  LazyTokenizer* tokenizer = nullptr;  // must outlive the defaults
  LoraRequests* lora = nullptr;        // must outlive the defaults
  bool matches_words_as_text = true;   // stop_words_list is also matched in the text
  // A request with a temperature and without top-k, top-p and min-p samples from all tokens. False:
  // it is greedy, as in the `tensorrt_llm` model.
  bool temperature_samples = false;
};

struct RequestItem {
  // What the engine gets, still without embeddings, a grammar and a sink.
  std::unique_ptr<llm::GenerationRequest> generation = std::make_unique<llm::GenerationRequest>();
  std::shared_ptr<PromptEmbeddings> embeddings;     // without virtual tokens; null: none
  std::shared_ptr<const StopStrings> stop_strings;  // null: none
  StopReasons stop_reasons;
  std::optional<grammar::Guide> guide;
  ExtraOutputs extras;
};

struct ClientRequest {
  std::string id;
  bool is_stop = false;  // cancels the requests with this id; has no items
  bool is_streaming = false;
  bool exclude_input = false;
  bool returns_num_input_tokens = true, returns_num_output_tokens = true;
  // Inputs of the rule kNoted that the request has. Most requests have the same few.
  std::vector<const EngineInput*> noted_inputs;
  // A temperature that has no effect, because the request is greedy without top-k, top-p and min-p.
  std::optional<float> unused_temperature;
  std::vector<RequestItem> items;
};

}  // namespace nereid::llm
