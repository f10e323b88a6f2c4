// Checks of an accepted tokenizer, shared by the fuzz targets of tokenizer files.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "backends/tokenizer/lib/tokenizer.h"

namespace nereid::tokenizer {

// Checks that every list of an encoding has one element per id, in overflowing parts, too.
inline void CheckLists(const Encoding& encoding) {
  const size_t count = encoding.ids.size();
  if (encoding.offsets.size() != count || encoding.attention_mask.size() != count ||
      encoding.special_mask.size() != count || encoding.type_ids.size() != count) {
    std::abort();
  }
  for (const Encoding& overflow : encoding.overflowing) CheckLists(overflow);
}

// Encodes with the file's truncation and padding. An error is allowed.
inline void CheckEncodesFully(const Tokenizer& tokenizer) {
  const std::string_view texts[] = {"", "a b\u00e9c <s>d"};
  if (const auto batch = tokenizer.EncodeBatch(texts); batch.ok()) {
    for (const Encoding& encoding : *batch) CheckLists(encoding);
  }
  const auto pair = tokenizer.EncodePair("hello a 12", texts[1]);
  if (pair.ok()) CheckLists(*pair);
}

// Checks that streamed decoding yields the same text as Decode.
inline void CheckEncodesAndStreams(const Tokenizer& tokenizer) {
  for (const char* text : {"", "Hello, World's end  12\n", "\u00e9\u4f60<s>\xff\xe4\xbd z"}) {
    const auto ids = tokenizer.Encode(text);
    if (!ids.ok()) continue;
    std::string streamed;
    IncrementalDecoder decoder(tokenizer, {.skip_special_tokens = false});
    for (const int32_t& id : *ids) decoder.Push({&id, 1}, streamed);
    decoder.Finish(streamed);
    if (streamed != tokenizer.Decode(*ids, {.skip_special_tokens = false})) std::abort();
  }
}

}  // namespace nereid::tokenizer
