// Fuzzes ModelInferRequest messages and the conversion of their typed contents to each data type.
// Arbitrary bytes must not crash. The message is parsed as protobuf parses it, except that raw
// tensors are not copied.
#include <google/protobuf/stubs/logging.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "host/frontend/grpc/infer_message.h"
#include "host/frontend/grpc/tensor_contents.h"

namespace nereid {
namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

void CheckContents(const inference::ModelInferRequest& request) {
  for (const auto& input : request.inputs()) {
    for (int type = 0; type <= TRITONSERVER_TYPE_BF16; ++type) {
      const auto datatype = static_cast<DataType>(type);
      InputStorage storage;
      const auto bytes =
          ContentsAsBytes(input.contents(), datatype, input.name(), request.model_name(), storage);
      if (!bytes.ok()) continue;
      if (ByteSize(datatype) > 0) Require(bytes->size() % ByteSize(datatype) == 0);
      volatile char sum = 0;
      for (const char byte : *bytes) sum = static_cast<char>(sum + byte);
    }
  }
}

}  // namespace
}  // namespace nereid

// Silences protobuf, which would log every string that is not UTF-8.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  google::protobuf::SetLogHandler(nullptr);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nereid;
  const std::string copy(reinterpret_cast<const char*>(data), size);
  InferMessage message;
  const bool is_read = message.Parse(Slice::Of(copy)).ok();
  inference::ModelInferRequest whole;
  Require(is_read == whole.ParseFromString(copy));
  if (!is_read) return 0;
  Require(message.raw_count() == static_cast<size_t>(whole.raw_input_contents_size()));
  for (size_t i = 0; i < message.raw_count(); ++i) {
    Require(message.raw(i) == whole.raw_input_contents(static_cast<int>(i)));
  }
  CheckContents(message.message());
  return 0;
}
