// What the fuzz targets of tokenizer files ask of a tokenizer that was accepted.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>

#include "tokenizer.h"

namespace nereid::tokenizer {

// It encodes, and what it streams is what it decodes.
inline void CheckEncodesAndStreams(const Tokenizer& tokenizer) {
  for (const char* text : {"", "Hello, World's end  12\n", "\u00e9\u4f60<s>\xff\xe4\xbd z"}) {
    const auto ids = tokenizer.Encode(text);
    if (!ids.ok()) continue;
    std::string streamed;
    IncrementalDecoder decoder(tokenizer, false);
    for (const int32_t& id : *ids) decoder.Push({&id, 1}, streamed);
    decoder.Finish(streamed);
    if (streamed != tokenizer.Decode(*ids, false)) std::abort();
  }
}

}  // namespace nereid::tokenizer
