// Mode "postprocessing": decodes token ids into text. It keeps no state between the responses of a
// stream: each request carries the preceding ids (PRIOR_IDS), from which the undecoded bytes are
// recomputed. Only the parsers of answers (PARSE_OUTPUT) have a state, which their requests name.
// [instance threads, concurrently]
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backends/tokenizer/lib/tokenizer.h"
#include "backends/tokenizer/parsed_outputs.h"
#include "backends/tokenizer/request_tensors.h"
#include "nereid/model_config.h"
#include "nereid/request.h"
#include "nereid/status.h"

namespace nereid::tokenizer {

class Postprocessing {
 public:
  // `parsed_outputs` may be null: then all text is content.
  Postprocessing(std::shared_ptr<const Tokenizer> tokenizer, DecodeOptions options,
                 std::unique_ptr<ParsedOutputs> parsed_outputs)
      : tokenizer_(std::move(tokenizer)),
        options_(options),
        parsed_outputs_(std::move(parsed_outputs)) {}

  // Fills the outputs of one request. The caller sends a returned error as the response.
  Status Process(Request& request, const ModelConfig& config) const;

 private:
  struct Sequences;
  Result<Sequences> ReadSequences(RequestTensors& tensors, Request& request,
                                  const ModelConfig& config) const;
  static Status ReadLengths(const RequestTensors& tensors, Sequences& sequences);
  Status ReadStreamInputs(const RequestTensors& tensors, Sequences& sequences) const;
  // The client's choice of each row, else the model's.
  Status ReadSkips(const RequestTensors& tensors, Sequences& sequences) const;
  std::vector<std::string> DecodeAll(const Sequences& sequences) const;
  Status WriteTexts(RequestTensors& tensors, Request& request, const Sequences& sequences) const;
  // The bytes of each generated token if the request has OUTPUT_LOG_PROBS or TOP_LOGPROB_IDS, and
  // of the tokens that the latter lists.
  Status WriteTokenTexts(RequestTensors& tensors, const Sequences& sequences) const;
  Status WritePromptTexts(RequestTensors& tensors, int64_t num_rows) const;

  const std::shared_ptr<const Tokenizer> tokenizer_;
  const DecodeOptions options_;
  const std::unique_ptr<ParsedOutputs> parsed_outputs_;
};

}  // namespace nereid::tokenizer
