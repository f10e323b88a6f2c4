// Any bytes as a tiktoken rank file: a verdict, never a crash; what is accepted encodes, and
// streams as it decodes.
#include <cstdint>

#include "tests/fuzz/support/tokenizer_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nereid::tokenizer;
  const auto tokenizer = Tokenizer::FromTiktoken({reinterpret_cast<const char*>(data), size});
  if (!tokenizer.ok()) return 0;
  CheckEncodesAndStreams(**tokenizer);
  return 0;
}
