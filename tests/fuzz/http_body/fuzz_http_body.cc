// Fuzzes the bytes that an HTTP client sends. The first byte selects the parser: I an infer body
// (JSON, then the binary part after byte 0x1f), G a generate body, H a request head, C a chunked
// body, Z a gzip body, D a deflate body, S a registration of shared memory. Arbitrary bytes must
// not crash. Accepted tensors survive the round trip through JSON, and a chunked body does not
// depend on how its bytes are fragmented.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "host/frontend/http/bodies/compression.h"
#include "host/frontend/http/bodies/control_bodies.h"
#include "host/frontend/http/bodies/data_type.h"
#include "host/frontend/http/bodies/generate_body.h"
#include "host/frontend/http/bodies/infer_body.h"
#include "host/frontend/http/bodies/tensor_json.h"
#include "host/frontend/http/router.h"
#include "host/frontend/http/transport/chunked_decoder.h"
#include "host/frontend/http/transport/http_request.h"

namespace nereid::http {
namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

void CheckJsonRoundTrip(const InputTensor& input) {
  if (input.binary.data() != nullptr || input.shared) return;
  if (ElementCount(input.shape) == 0) return;  // data and type of an empty tensor are not checked
  std::string json = "[";
  size_t num_elements = 0;
  const Status written =
      AppendJsonElements(json, input.datatype, input.bytes(), TextPolicy::kRefuse, num_elements);
  Require(written.ok());
  json += ']';
  JsonReader reader(json, 4);
  ByteBuffer parsed;
  Require(ReadJsonTensor(reader, input.datatype, input.shape, parsed).ok());
  Require(parsed.view() == input.bytes());
}

void FuzzInfer(std::string_view text) {
  const size_t split = text.find('\x1f');
  InferBody body;
  const std::string_view binary =
      split == std::string_view::npos ? std::string_view() : text.substr(split + 1);
  if (!ParseInferBody(text.substr(0, split), binary, "m", 64, body).ok()) return;
  for (const InputTensor& input : body.inputs) CheckJsonRoundTrip(input);
}

void FuzzGenerate(std::string_view text) {
  static const ModelSignature model{{{"t", TRITONSERVER_TYPE_BYTES, {-1, 1}},
                                     {"n", TRITONSERVER_TYPE_INT32, {1}},
                                     {"f", TRITONSERVER_TYPE_FP32, {-1, 2, -1}},
                                     {"z", TRITONSERVER_TYPE_FP64, {0, -1}},
                                     {"b", TRITONSERVER_TYPE_BOOL, {-1}}}};
  GenerateBody body;
  if (!ParseGenerateBody(text, model, 64, body).ok()) return;
  for (const InputTensor& input : body.inputs) {
    if (ElementBytes(input.datatype) == 0) continue;
    const std::optional<int64_t> count = ElementCount(input.shape);
    Require(count && *count * ElementBytes(input.datatype) == input.bytes().size());
  }
}

void FuzzHead(std::string_view text) {
  const HttpLimits limits;
  const std::optional<size_t> end = FindHeadEnd(text, 0);
  if (!end) return;
  RequestHead head;
  if (ParseHead(text.substr(0, *end), limits, head)) return;
  (void)FindRoute(head.path);
  (void)head.Header("content-type");
}

void FuzzChunks(std::string_view text) {
  ChunkedDecoder whole(4096);
  ChunkedDecoder split(4096);
  ByteBuffer whole_body;
  ByteBuffer split_body;
  const size_t consumed = whole.Consume(text, whole_body);
  size_t at = 0;
  while (at < text.size() && split.state() < ChunkedDecoder::State::kDone) {
    const size_t count = split.Consume(text.substr(at, 1), split_body);
    if (count == 0) break;
    at += count;
  }
  Require(whole.state() == split.state());
  Require(whole_body.view() == split_body.view());
  if (whole.state() == ChunkedDecoder::State::kDone) Require(consumed == at);
}

Result<ByteBuffer> Decompress(std::string_view bytes, size_t max_bytes) {
  Decompression decompression(bytes, max_bytes, nullptr);
  NEREID_RETURN_IF_ERROR(decompression.Step(max_bytes + 1).status());
  return decompression.TakeOutput();
}

void FuzzCompressed(Encoding encoding, std::string_view text) {
  constexpr size_t kMaxBytes = 1 << 20;
  const Result<ByteBuffer> plain = Decompress(text, kMaxBytes);
  if (!plain.ok()) return;
  Require(plain->size() <= kMaxBytes);
  const std::string_view pieces[] = {plain->view()};
  const std::string packed = Compress(encoding, pieces);
  const Result<ByteBuffer> parsed = Decompress(packed, kMaxBytes);
  Require(parsed.ok() && parsed->view() == plain->view());
}

}  // namespace
}  // namespace nereid::http

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nereid::http;
  if (size == 0) return 0;
  // A copy of the exact size, so that sanitizers detect a read beyond the end.
  const std::string copy(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0]) {
    case 'I':
      FuzzInfer(copy);
      break;
    case 'G':
      FuzzGenerate(copy);
      break;
    case 'H':
      FuzzHead(copy);
      break;
    case 'C':
      FuzzChunks(copy);
      break;
    case 'Z':
      FuzzCompressed(Encoding::kGzip, copy);
      break;
    case 'D':
      FuzzCompressed(Encoding::kDeflate, copy);
      break;
    case 'S':
      (void)ReadRegistration(copy, 64);
      break;
  }
  return 0;
}
