// Fuzzes SentencePiece models. Arbitrary bytes must not crash. An accepted tokenizer encodes, and
// streamed decoding equals decoding.
#include <cstdint>

#include "tests/fuzz/support/tokenizer_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nereid::tokenizer;
  const auto tokenizer = Tokenizer::FromSentencePiece({reinterpret_cast<const char*>(data), size});
  if (!tokenizer.ok()) return 0;
  CheckEncodesAndStreams(**tokenizer);
  return 0;
}
