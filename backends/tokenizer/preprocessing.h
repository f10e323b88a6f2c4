// Mode preprocessing: text in, what the engine needs out. [instance threads, concurrently]
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "backends/tokenizer/lib/tokenizer.h"
#include "backends/tokenizer/request_io.h"
#include "nereid/model_config.h"
#include "nereid/request.h"
#include "nereid/status.h"

namespace nereid::tokenizer {

class Preprocessing {
 public:
  Preprocessing(std::shared_ptr<const Tokenizer> tokenizer, EncodeOptions options);

  // Fills the outputs of one request; an error is its answer.
  Status Answer(Request& request, const ModelConfig& config) const;

 private:
  using Rows = std::vector<std::vector<int32_t>>;

  Result<Rows> EncodeTexts(const RequestIo& io, TensorView& view) const;
  Status EmitIds(RequestIo& io, const char* ids_name, const char* length_name, const Rows& rows,
                 const std::vector<int32_t>& pad_ids) const;
  Status EmitDecoderIds(RequestIo& io, const std::vector<int32_t>& pad_ids) const;
  Status EmitWordList(RequestIo& io, const char* output, const char* input) const;
  Status EmitEmbeddingBias(RequestIo& io) const;
  // The ids that the client gave, else `fallback` for each row.
  Result<std::vector<int32_t>> IdsOr(const RequestIo& io, const char* input,
                                     int32_t fallback) const;

  const std::shared_ptr<const Tokenizer> tokenizer_;
  const EncodeOptions options_;
  const int32_t end_id_;  // -1: the tokenizer has none
  const int32_t pad_id_;
};

}  // namespace nereid::tokenizer
