// What a loaded tokenizer consists of, and the loaders that put it together. [any thread]
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/tokenizer/lib/decode/decoder.h"
#include "backends/tokenizer/lib/finish/encoding.h"
#include "backends/tokenizer/lib/finish/post_processor.h"
#include "backends/tokenizer/lib/model/text_model.h"
#include "backends/tokenizer/lib/normalize/normalizer.h"
#include "backends/tokenizer/lib/split/added_tokens.h"
#include "backends/tokenizer/lib/split/pre_tokenizer.h"
#include "backends/tokenizer/lib/vocabulary/special_ids.h"
#include "backends/tokenizer/lib/vocabulary/token_table.h"

namespace nereid::tokenizer {

struct TokenizerParts {
  TokenTable vocabulary;  // of the model, without added tokens
  AddedTokens added;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::unique_ptr<const TextModel> model;  // set by every loader; refers to `vocabulary`
  PostProcessor post;
  std::optional<Truncation> truncation;
  std::optional<Padding> padding;
  std::optional<TokenDecoder> decoder;  // set by every loader
  int32_t vocab_size = 0;
  int32_t model_vocab_size = 0;  // without the tokens that are there for their role only
  // An added token and one of the vocabulary may have one spelling: the added one is decoded byte
  // by byte, and it alone is special.
  bool added_are_apart = false;
  SpecialIds special_ids;

  // The token of `id` as the decoder sees it.
  std::optional<TokenDecoder::Token> TokenOfId(int32_t id) const;
  std::optional<int32_t> IdOfToken(std::string_view token, bool with_role_only = true) const;
};

// Parts do not move once made: the model refers to the vocabulary.
using PartsResult = Result<std::unique_ptr<TokenizerParts>>;

// The model of a tokenizer.json into `parts`, whose pre-tokenizer must be in place.
struct TokenizerDocument;
Status LoadModel(const TokenizerDocument& document, const nlohmann::json& model,
                 TokenizerParts& parts);

// From the bytes of a tokenizer.json.
struct SideOptions;
PartsResult LoadTokenizerJson(std::string_view json, const SideOptions& side);

// From the bytes of a sentencepiece model of type BPE or Unigram. Control pieces are recognised in
// the text. Where `side` does not say so, BOS is added, and EOS where there is no BOS.
PartsResult LoadSentencePiece(std::string_view model, const SideOptions& side);

// Compiles the decoder and works out the vocabulary's size, once the other parts are in place.
Status FinishParts(const nlohmann::json& decoder_spec, TokenizerParts& parts);
void FinishParts(DecoderSteps decoder_steps, TokenizerParts& parts);

}  // namespace nereid::tokenizer
