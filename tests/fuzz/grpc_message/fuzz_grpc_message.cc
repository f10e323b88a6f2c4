// Fuzzes the bytes that a gRPC client sends on a stream. The first byte selects their type: M
// messages, Z gzip-compressed messages, D deflate-compressed messages, T a grpc-timeout, P a status
// text. Arbitrary bytes must not crash, and the messages must not depend on how the bytes are
// fragmented.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "host/frontend/grpc/transport/header_text.h"
#include "host/frontend/grpc/transport/message_reader.h"

namespace nereid::grpc {
namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

constexpr size_t kMaxMessageBytes = 1 << 16;

struct ReadResult {
  std::deque<ReceivedMessage> messages;
  GrpcCode code = GrpcCode::kOk;
};

ReadResult Read(std::string_view bytes, http::Encoding encoding, size_t step) {
  static ByteBudget budget(0);
  MessageReader reader(kMaxMessageBytes, encoding, &budget);
  ReadResult result;
  while (!bytes.empty() && result.code == GrpcCode::kOk) {
    const std::string_view fragment = bytes.substr(0, step);
    result.code = reader.Feed(fragment, result.messages).code;
    bytes.remove_prefix(fragment.size());
  }
  return result;
}

// The output must not depend on the size of the steps.
void CheckDecompression(std::string_view packed) {
  http::Decompression at_once(packed, kMaxMessageBytes, nullptr);
  http::Decompression in_steps(packed, kMaxMessageBytes, nullptr);
  const Result<bool> whole = at_once.Step(kMaxMessageBytes + 1);
  Result<bool> stepped = in_steps.Step(100);
  while (stepped.ok() && !*stepped) stepped = in_steps.Step(100);
  Require(whole.ok() == stepped.ok());
  if (whole.ok()) Require(at_once.TakeOutput().view() == in_steps.TakeOutput().view());
}

void CheckMessages(std::string_view bytes, http::Encoding encoding) {
  const ReadResult whole = Read(bytes, encoding, bytes.size());
  const ReadResult fragmented = Read(bytes, encoding, 3);
  Require(whole.code == fragmented.code && whole.messages.size() == fragmented.messages.size());
  for (size_t i = 0; i < whole.messages.size(); ++i) {
    Require(whole.messages[i].bytes.bytes == fragmented.messages[i].bytes.bytes);
    Require(whole.messages[i].is_compressed == fragmented.messages[i].is_compressed);
    if (whole.messages[i].is_compressed) CheckDecompression(whole.messages[i].bytes.bytes);
  }
}

void CheckEncoded(std::string_view text) {
  for (const char letter : PercentEncode(text)) Require(letter >= 0x20 && letter <= 0x7e);
}

}  // namespace
}  // namespace nereid::grpc

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nereid::grpc;
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0]) {
    case 'M':
      CheckMessages(bytes, nereid::http::Encoding::kIdentity);
      break;
    case 'Z':
      CheckMessages(bytes, nereid::http::Encoding::kGzip);
      break;
    case 'D':
      CheckMessages(bytes, nereid::http::Encoding::kDeflate);
      break;
    case 'T':
      (void)ParseTimeout(bytes);
      break;
    case 'P':
      CheckEncoded(bytes);
      break;
    default:
      break;
  }
  return 0;
}
