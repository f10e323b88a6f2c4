#include "backends/bls/chain.h"

#include <algorithm>
#include <cctype>
#include <vector>

namespace nereid::bls {
namespace {

using ensemble::ModelSpec;
using ensemble::StepConfig;
using ensemble::TensorSpec;

// A tensor of a called model and its name in the chain. Names that no client sees begin with '_'.
struct Connection {
  const char* of_model;
  const char* in_chain;
};

// Tensors of called models that have another name in the chain. All others have the same name in
// lower-case letters.
struct StepConnections {
  std::vector<Connection> inputs;
  std::vector<Connection> outputs;
};

const StepConnections& ConnectionsOf(int step) {
  static const StepConnections connections[kNumChainSteps] = {
      {{{"QUERY", "text_input"},
        {"DECODER_QUERY", "decoder_text_input"},
        {"REQUEST_OUTPUT_LEN", "max_tokens"},
        {"BAD_WORDS_DICT", "bad_words"},
        {"STOP_WORDS_DICT", "stop_words"}},
       {{"INPUT_ID", "_INPUT_ID"},
        {"REQUEST_INPUT_LEN", "_REQUEST_INPUT_LEN"},
        {"REQUEST_OUTPUT_LEN", "_REQUEST_OUTPUT_LEN"},
        {"BAD_WORDS_IDS", "_BAD_WORDS_IDS"},
        {"STOP_WORDS_IDS", "_STOP_WORDS_IDS"},
        {"EMBEDDING_BIAS", "_EMBEDDING_BIAS"},
        {"OUT_END_ID", "_END_ID"},
        {"OUT_PAD_ID", "_PAD_ID"},
        {"DECODER_INPUT_ID", "_DECODER_INPUT_ID"},
        {"REQUEST_DECODER_INPUT_LEN", "_REQUEST_DECODER_INPUT_LEN"},
        {"OUT_PROMPT_TABLE_EXTRA_IDS", "_PROMPT_TABLE_EXTRA_IDS"}}},
      {{{"input_ids", "_INPUT_ID"},
        {"input_lengths", "_REQUEST_INPUT_LEN"},
        {"request_output_len", "_REQUEST_OUTPUT_LEN"},
        {"bad_words_list", "_BAD_WORDS_IDS"},
        {"stop_words_list", "_STOP_WORDS_IDS"},
        {"embedding_bias", "_EMBEDDING_BIAS"},
        {"end_id", "_END_ID"},
        {"pad_id", "_PAD_ID"},
        {"decoder_input_ids", "_DECODER_INPUT_ID"},
        {"decoder_input_lengths", "_REQUEST_DECODER_INPUT_LEN"},
        {"prompt_table_extra_ids", "_PROMPT_TABLE_EXTRA_IDS"},
        {"runtime_top_k", "top_k"},
        {"runtime_top_p", "top_p"},
        {"len_penalty", "length_penalty"},
        {"streaming", "stream"}},
       {{"output_ids", "_TOKENS_BATCH"},
        {"sequence_length", "_SEQUENCE_LENGTH"},
        {"prior_ids", "_PRIOR_IDS"},
        {"finish_reason", "finish_reason"}}},
      {{{"TOKENS_BATCH", "_TOKENS_BATCH"},
        {"SEQUENCE_LENGTH", "_SEQUENCE_LENGTH"},
        {"PRIOR_IDS", "_PRIOR_IDS"},
        {"FINISH_REASON", "finish_reason"}},
       {{"OUTPUT", "text_output"}}}};
  return connections[step];
}

std::string LowerCase(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// The names in the chain that a tensor of a called model may have, the preferred one first.
std::vector<std::string> NamesInChain(const std::vector<Connection>& connections,
                                      const std::string& name) {
  std::vector<std::string> names;
  for (const Connection& connection : connections) {
    if (name == connection.of_model) names.push_back(connection.in_chain);
  }
  names.push_back(LowerCase(name));
  return names;
}

void ConnectInputs(const ModelSpec& called, int step, const std::set<std::string>& known,
                   std::set<std::string>& used, StepConfig& config) {
  for (const TensorSpec& input : called.inputs) {
    for (const std::string& name : NamesInChain(ConnectionsOf(step).inputs, input.name)) {
      if (known.count(name) == 0) continue;
      config.input_map.emplace_back(input.name, name);
      used.insert(name);
      break;
    }
  }
}

// Connects outputs that the chain passes on under a name of its own or that the client may ask for.
void ConnectOutputs(const ModelSpec& model, const ModelSpec& called, int step,
                    std::set<std::string>& known, StepConfig& config) {
  const std::vector<Connection>& connections = ConnectionsOf(step).outputs;
  for (const TensorSpec& output : called.outputs) {
    const std::vector<std::string> names = NamesInChain(connections, output.name);
    const bool is_passed_on = names.size() > 1;
    if (!is_passed_on && model.FindOutput(names.front()) == nullptr) continue;
    if (known.insert(names.front()).second) config.output_map.emplace_back(output.name, names[0]);
  }
}

// Moves the names of tensors that are not in `connected` from `tensors` to the result.
std::set<std::string> TakeUnconnected(std::vector<TensorSpec>& tensors,
                                      const std::set<std::string>& connected) {
  std::set<std::string> names;
  std::erase_if(tensors, [&](const TensorSpec& tensor) {
    return connected.count(tensor.name) == 0 && names.insert(tensor.name).second;
  });
  return names;
}

}  // namespace

Chain MakeChain(const ModelSpec& model, const ChainModels& names,
                std::span<const ModelSpec> called) {
  Chain chain;
  chain.config.model = model;
  std::set<std::string> known, used;
  for (const TensorSpec& input : model.inputs) known.insert(input.name);
  for (int step = 0; step < kNumChainSteps; ++step) {
    StepConfig config;
    config.model_name = config.target = names[step];
    ConnectInputs(called[step], step, known, used, config);
    ConnectOutputs(model, called[step], step, known, config);
    chain.config.steps.push_back(std::move(config));
  }
  chain.unused_inputs = TakeUnconnected(chain.config.model.inputs, used);
  chain.absent_outputs = TakeUnconnected(chain.config.model.outputs, known);
  return chain;
}

ensemble::Shape ShapeOfClient(const TensorSpec& input, bool is_batching,
                              const ensemble::Shape& given) {
  const size_t num_batch_dims = is_batching ? 1 : 0;
  const bool is_fixed =
      std::all_of(input.dims.begin(), input.dims.end(), [](int64_t dim) { return dim >= 0; });
  if (!is_fixed || given.size() < num_batch_dims ||
      given.size() == num_batch_dims + input.dims.size()) {
    return given;
  }
  ensemble::Shape shape(given.span().first(num_batch_dims));
  shape.Append(input.dims);
  return shape;
}

}  // namespace nereid::bls
