// Any bytes as a sentencepiece model: a verdict, never a crash; what is accepted encodes, and
// streams as it decodes.
#include <cstdint>
#include <cstdlib>

#include "tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nereid::tokenizer;
  const auto tokenizer = Tokenizer::FromSentencePiece({reinterpret_cast<const char*>(data), size});
  if (!tokenizer.ok()) return 0;
  for (const char* text : {"", "Hello, World's end  12\n", "\u00e9\u4f60<s>\xff\xe4\xbd z"}) {
    const auto ids = (*tokenizer)->Encode(text);
    if (!ids.ok()) continue;
    std::string streamed;
    IncrementalDecoder decoder(**tokenizer, false);
    for (const int32_t& id : *ids) decoder.Push({&id, 1}, streamed);
    decoder.Finish(streamed);
    if (streamed != (*tokenizer)->Decode(*ids, false)) std::abort();
  }
  return 0;
}
