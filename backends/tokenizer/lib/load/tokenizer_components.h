// The components of a loaded tokenizer, and the loaders that create them. [any thread]
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/tokenizer/lib/decode/decoder.h"
#include "backends/tokenizer/lib/model/tokenization_model.h"
#include "backends/tokenizer/lib/normalize/normalizer.h"
#include "backends/tokenizer/lib/post_process/encoding.h"
#include "backends/tokenizer/lib/post_process/post_processor.h"
#include "backends/tokenizer/lib/pre_tokenize/added_tokens.h"
#include "backends/tokenizer/lib/pre_tokenize/pre_tokenizer.h"
#include "backends/tokenizer/lib/vocabulary/token_table.h"

namespace nereid::tokenizer {

struct TokenizerComponents {
  TokenTable vocabulary;  // of the model, without added tokens
  AddedTokens added;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::unique_ptr<const TokenizationModel> model;  // set by every loader; refers to `vocabulary`
  PostProcessor post;
  std::optional<Truncation> truncation;
  std::optional<Padding> padding;
  std::optional<TokenDecoder> decoder;  // set by every loader
  int32_t vocab_size = 0;
  int32_t model_vocab_size = 0;  // excludes tokens that only a role names
  // An added token and a vocabulary token may have the same content and different ids. The added
  // token is then decoded as bytes, and only it is special.
  bool has_separate_added_ids = false;
  SpecialIds special_ids;
  bool cleans_up_spaces = false;  // clean_up_tokenization_spaces of tokenizer_config.json

  std::optional<int32_t> IdOfToken(std::string_view token, bool include_role_only = true) const;
};

// The components are not moved once created, because the model refers to the vocabulary.
using ComponentsResult = Result<std::unique_ptr<TokenizerComponents>>;

// Loads the bytes of a tokenizer.json.
struct SideFileOptions;
ComponentsResult LoadTokenizerJson(std::string_view json, const SideFileOptions& side);

// Loads the bytes of a SentencePiece model of type BPE or Unigram. Control pieces are recognised in
// the text. Unless `side` says otherwise, BOS is added; EOS is added if there is no BOS.
ComponentsResult LoadSentencePiece(std::string_view model, const SideFileOptions& side);

// Compiles the decoder and computes the vocabulary size. All other components must be set.
Status FinalizeComponents(const nlohmann::json& decoder_spec, TokenizerComponents& components);
void FinalizeComponents(DecoderSteps decoder_steps, TokenizerComponents& components);

}  // namespace nereid::tokenizer
