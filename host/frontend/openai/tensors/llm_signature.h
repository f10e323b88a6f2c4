// What a language model offers: its tensors, by which the routes decide which fields they can
// honour, and the models that turn text to token ids and back. [any thread]
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "host/frontend/http/bodies/generate_body.h"
#include "nereid/status.h"

namespace nereid::openai {

struct LlmInput : http::InputSignature {
  bool is_optional = true;
};

// A step of an ensemble that can also be called alone. The maps lead from the ensemble's tensors to
// those of the step's model.
struct LlmStep {
  std::string model;  // empty: there is no such step
  std::map<std::string, std::string, std::less<>> inputs, outputs;
};

struct LlmSignature {
  std::string name;     // as the client knows it
  std::string model;    // that is called: another one if `name` is that of an adapter
  std::string adapter;  // the LoRA adapter that `name` stands for; empty: none
  // The LoRA adapters that the model offers as models of their own: those of its engine's
  // parameter lora_adapters.
  std::vector<std::string> adapters;
  std::vector<LlmInput> inputs;
  std::vector<std::string> outputs;
  std::string engine;      // the model of the step that reads lora_name; empty: none
  LlmStep preprocessing;   // the step that reads text_input or messages
  LlmStep postprocessing;  // the step that writes text_output
  // It can answer with several responses. A stream of one that cannot has the whole answer in one
  // piece.
  bool is_decoupled = false;
  // The engine takes what a request leaves open from the checkpoint's generation_config.json, and
  // the model does not say itself what it recommends.
  bool has_sampling_defaults = false;
  // What the model recommends, by input: the parameters default_<input> of its configuration.
  std::map<std::string, double, std::less<>> recommended;

  // The most tokens of a sequence, prompt and answer: the parameter max_model_len of its
  // configuration, or what the engine's parameter max_seq_len leaves of it. 0: not known.
  int64_t max_model_len = 0;

  const LlmInput* FindInput(std::string_view name) const;
  bool HasOutput(std::string_view name) const;
  // Absent if the model recommends nothing.
  std::optional<double> Recommended(std::string_view input) const;
  bool can_complete() const { return HasOutput("text_output") && FindInput("text_input"); }
  bool can_chat() const { return HasOutput("text_output") && FindInput("messages"); }
  // A model that /v1/models lists.
  bool is_language_model() const { return can_complete() || can_chat(); }
};

// Returns the JSON of a model's configuration.
using ConfigOf = std::function<Result<std::string>(const std::string& model)>;

// `metadata` is the result of the C API's metadata call. A model that is no language model has
// neither steps nor defaults. `config_of` is called for the model and
// for the steps of an ensemble; a step without a configuration is left out.
Result<LlmSignature> MakeLlmSignature(std::string_view metadata, const ConfigOf& config_of);

}  // namespace nereid::openai
