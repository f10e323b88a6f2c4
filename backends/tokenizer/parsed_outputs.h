// The outputs of requests that ask for parsed answers (PARSE_OUTPUT): content in OUTPUT, REASONING
// and TOOL_CALLS, and NUM_REASONING_TOKENS. [instance threads, concurrently]
#pragma once

#include <span>
#include <string>
#include <vector>

#include "backends/tokenizer/answer_parsing.h"
#include "backends/tokenizer/answer_streams.h"
#include "backends/tokenizer/request_tensors.h"
#include "nereid/request.h"
#include "nereid/status.h"

namespace nereid::tokenizer {

// The ids of one sequence in a request: a whole answer, or what a response adds to it.
struct AnswerIds {
  size_t row = 0;  // of the batch
  std::span<const int32_t> ids;
  bool is_final = true;
  bool skips_special_tokens = true;
};

class ParsedOutputs {
 public:
  ParsedOutputs(std::shared_ptr<const Tokenizer> tokenizer, const ParserFamily& family,
                const AnswerStreams::Limits& limits)
      : parsing_(std::move(tokenizer), family), streams_(limits) {}

  // Whether the client asks for a parsed answer. INVALID_ARG if only some rows do.
  static Result<bool> IsRequested(const RequestTensors& tensors);

  // Parses the answers and writes the outputs, one element for each answer. `options` are those of
  // the model.
  Status Write(RequestTensors& tensors, Request& request, std::span<const AnswerIds> answers,
               DecodeOptions options);

 private:
  struct Inputs;
  static Result<Inputs> ReadInputs(const RequestTensors& tensors);
  // `num_reasoning`: see ParsedAnswer::Push.
  Result<AnswerDelta> Parse(const AnswerIds& answer, const Inputs& inputs, DecodeOptions options,
                            int32_t* num_reasoning);

  const AnswerParsing parsing_;
  AnswerStreams streams_;
};

}  // namespace nereid::tokenizer
