// Any bytes as what a gRPC client sends on a stream: a verdict, never a crash. The first byte
// chooses what they are: M messages, Z gzip-compressed ones, D deflate-compressed ones, T a
// grpc-timeout, P the text of a status. Messages must come out the same however the network cut
// them.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "host/frontend/grpc/transport/header_text.h"
#include "host/frontend/grpc/transport/message_reader.h"

namespace nereid::rpc {
namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

struct Reading {
  std::deque<Slice> messages;
  GrpcCode code = GrpcCode::kOk;
};

Reading Read(std::string_view bytes, http::Encoding encoding, size_t step) {
  constexpr size_t kMaxMessageBytes = 1 << 16;
  MessageReader reader(kMaxMessageBytes, encoding);
  Reading reading;
  while (!bytes.empty() && reading.code == GrpcCode::kOk) {
    const std::string_view part = bytes.substr(0, step);
    reading.code = reader.Feed(part, reading.messages).code;
    bytes.remove_prefix(part.size());
  }
  return reading;
}

void CheckMessages(std::string_view bytes, http::Encoding encoding) {
  const Reading whole = Read(bytes, encoding, bytes.size());
  const Reading cut = Read(bytes, encoding, 3);
  Require(whole.code == cut.code && whole.messages.size() == cut.messages.size());
  for (size_t i = 0; i < whole.messages.size(); ++i) {
    Require(whole.messages[i].bytes == cut.messages[i].bytes);
  }
}

void CheckEncoded(std::string_view text) {
  for (const char letter : PercentEncode(text)) Require(letter >= 0x20 && letter <= 0x7e);
}

}  // namespace
}  // namespace nereid::rpc

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nereid::rpc;
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
