// Mode postprocessing: ids in, text out. It keeps no state between the responses of a stream: each
// brings the ids before it (PRIOR_IDS), from which the bytes that are still held back follow.
// [instance threads, concurrently]
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backends/tokenizer/lib/tokenizer.h"
#include "backends/tokenizer/request_io.h"
#include "nereid/model_config.h"
#include "nereid/request.h"
#include "nereid/status.h"

namespace nereid::tokenizer {

class Postprocessing {
 public:
  Postprocessing(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special_tokens)
      : tokenizer_(std::move(tokenizer)), skip_special_tokens_(skip_special_tokens) {}

  // Fills the outputs of one request; an error is its answer.
  Status Answer(Request& request, const ModelConfig& config) const;

 private:
  struct Sequences;
  Result<Sequences> ReadSequences(RequestIo& io, Request& request, const ModelConfig& config) const;
  Status ReadStream(const RequestIo& io, Sequences& sequences) const;
  std::vector<std::string> DecodeAll(const Sequences& sequences) const;

  const std::shared_ptr<const Tokenizer> tokenizer_;
  const bool skip_special_tokens_;
};

}  // namespace nereid::tokenizer
