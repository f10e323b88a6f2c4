// Mode postprocessing: ids in, text out. It keeps no state between the responses of a stream: each
// brings the ids before it (PRIOR_IDS), from which the bytes that are still held back follow.
// [instance threads, concurrently]
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "nereid/model_config.h"
#include "nereid/request.h"
#include "nereid/status.h"
#include "request_io.h"
#include "tokenizer.h"

namespace nereid::tokenizer {

// Text may be held back for so many ids: what an engine gives of the past at least, when there is
// so much.
inline constexpr size_t kMaxHeldIds = 16;

// The text that `ids` add behind `prior_ids`, the last ids of the stream so far (all of them, or at
// least kMaxHeldIds). Bytes of an unfinished character wait for the next call unless `is_final`.
// The pieces of a stream, put together, are the decode of its ids.
std::string DecodePiece(const Tokenizer& tokenizer, bool skip_special_tokens,
                        std::span<const int32_t> prior_ids, std::span<const int32_t> ids,
                        bool is_final);

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
