// See parsed_outputs.h.
#include "backends/tokenizer/parsed_outputs.h"

#include <algorithm>
#include <optional>
#include <random>

#include "nereid/tensor_view.h"

namespace nereid::tokenizer {

// The inputs that only parsing needs. Each has no element, or one for each row.
struct ParsedOutputs::Inputs {
  std::optional<TensorView> tools, prompt_ends, positions;  // own the memory of the views below
  std::vector<std::string_view> tool_texts, prompt_end_texts;
  std::vector<StreamPosition> stream_positions;
};

namespace {

Status CheckRows(const RequestTensors& tensors, const TensorView& view, size_t num_elements,
                 size_t per_row) {
  if (num_elements == static_cast<size_t>(tensors.batch_size()) * per_row) return {};
  return InvalidArgError("input '", view.name(), "': expected ", per_row,
                         " elements per row, got shape ", ToString(view.shape()));
}

Status ReadTexts(const RequestTensors& tensors, const char* name, std::optional<TensorView>& view,
                 std::vector<std::string_view>& texts) {
  NEREID_ASSIGN_OR_RETURN(view, tensors.OptionalInput(name));
  if (!view) return {};
  NEREID_ASSIGN_OR_RETURN(texts, view->Strings());
  return CheckRows(tensors, *view, texts.size(), 1);
}

// A number that no client can guess.
uint64_t RandomNumber() {
  static thread_local std::random_device device;
  return uint64_t{device()} << 32 | device();
}

}  // namespace

Result<bool> ParsedOutputs::IsRequested(const RequestTensors& tensors) {
  NEREID_ASSIGN_OR_RETURN(std::optional<TensorView> view, tensors.OptionalInput("PARSE_OUTPUT"));
  if (!view) return false;
  NEREID_ASSIGN_OR_RETURN(const std::span<const Bool> rows, view->As<Bool>());
  NEREID_RETURN_IF_ERROR(CheckRows(tensors, *view, rows.size(), 1));
  const auto is_set = [](Bool row) { return static_cast<bool>(row); };
  if (std::none_of(rows.begin(), rows.end(), is_set)) return false;
  if (std::all_of(rows.begin(), rows.end(), is_set)) return true;
  return InvalidArgError("input 'PARSE_OUTPUT': expected the same value in all rows");
}

Result<ParsedOutputs::Inputs> ParsedOutputs::ReadInputs(const RequestTensors& tensors) {
  Inputs inputs;
  NEREID_RETURN_IF_ERROR(ReadTexts(tensors, "TOOLS", inputs.tools, inputs.tool_texts));
  NEREID_RETURN_IF_ERROR(
      ReadTexts(tensors, "PROMPT_END", inputs.prompt_ends, inputs.prompt_end_texts));
  NEREID_ASSIGN_OR_RETURN(inputs.positions, tensors.OptionalInput("STREAM_POSITION"));
  if (!inputs.positions) return inputs;
  NEREID_ASSIGN_OR_RETURN(const std::span<const uint64_t> numbers,
                          inputs.positions->As<uint64_t>());
  NEREID_RETURN_IF_ERROR(CheckRows(tensors, *inputs.positions, numbers.size(), 2));
  for (size_t i = 0; i < numbers.size(); i += 2) {
    inputs.stream_positions.push_back({.stream = numbers[i], .index = numbers[i + 1]});
  }
  return inputs;
}

Status ParsedOutputs::Write(RequestTensors& tensors, Request& request,
                            std::span<const AnswerIds> answers, DecodeOptions options) {
  NEREID_ASSIGN_OR_RETURN(const Inputs inputs, ReadInputs(tensors));
  std::vector<std::string> contents, reasonings, calls;
  std::vector<int32_t> counts(answers.size());
  const bool counts_tokens = tensors.IsRequestedOutput("NUM_REASONING_TOKENS");
  for (const AnswerIds& answer : answers) {
    options.skip_special_tokens = answer.skips_special_tokens;
    int32_t* const count = counts_tokens ? &counts[contents.size()] : nullptr;
    NEREID_ASSIGN_OR_RETURN(AnswerDelta delta, Parse(answer, inputs, options, count));
    contents.push_back(std::move(delta.content));
    reasonings.push_back(std::move(delta.reasoning));
    calls.push_back(ToolCallsJson(delta.tool_calls));
  }
  // Like OUTPUT, the outputs are flat over rows and beams.
  const auto write = [&](const char* name, const std::vector<std::string>& texts) -> Status {
    if (!tensors.IsRequestedOutput(name)) return {};
    return request.SetStrings(name, {static_cast<int64_t>(texts.size())}, texts);
  };
  NEREID_RETURN_IF_ERROR(write("OUTPUT", contents));
  NEREID_RETURN_IF_ERROR(write("REASONING", reasonings));
  NEREID_RETURN_IF_ERROR(write("TOOL_CALLS", calls));
  if (!counts_tokens) return {};
  return request.SetOutput<int32_t>("NUM_REASONING_TOKENS", {static_cast<int64_t>(counts.size())},
                                    std::span<const int32_t>(counts));
}

Result<AnswerDelta> ParsedOutputs::Parse(const AnswerIds& answer, const Inputs& inputs,
                                         DecodeOptions options, int32_t* num_reasoning) {
  const bool has_position = answer.row < inputs.stream_positions.size();
  const StreamPosition position =
      has_position ? inputs.stream_positions[answer.row] : StreamPosition{};
  const bool is_whole = answer.is_final && position.index == 0;
  if (!is_whole && !has_position) {
    return InvalidArgError(
        "input 'STREAM_POSITION' is missing: a stream cannot be parsed without it");
  }
  ParserOptions parser_options = {.id_seed = is_whole ? RandomNumber() : position.stream};
  if (answer.row < inputs.prompt_end_texts.size()) {
    parser_options.prompt_end = inputs.prompt_end_texts[answer.row];
  }
  if (position.index == 0 && answer.row < inputs.tool_texts.size()) {
    NEREID_ASSIGN_OR_RETURN(parser_options.tools,
                            ToolSchemas::Parse(inputs.tool_texts[answer.row]));
  }
  const auto begin = [&] { return parsing_.Begin(parser_options, options); };
  if (is_whole) return begin()->Push(answer.ids, true, num_reasoning);
  return streams_.Push(position, answer.ids, answer.is_final, begin, num_reasoning);
}

}  // namespace nereid::tokenizer
