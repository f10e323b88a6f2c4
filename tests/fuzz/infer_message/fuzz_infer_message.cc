// Fuzzes ModelInferRequest messages and the conversion of their typed contents to each data type.
// Arbitrary bytes must not crash. The message is parsed as protobuf parses it, except that raw
// tensors are not copied. Most mutations change fields of a parsed message, so that its structure
// stays intact; the others change bytes.
#include <google/protobuf/message.h>
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <random>
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

// ---- mutations

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

class Mutator {
 public:
  explicit Mutator(unsigned seed) : random_(seed) {}

  // Changes one field of the message or of one within it.
  void Change(Message& message) {
    const auto* const descriptor = message.GetDescriptor();
    if (descriptor->field_count() == 0) return;
    const FieldDescriptor* const field = descriptor->field(Below(descriptor->field_count()));
    const Reflection& reflection = *message.GetReflection();
    if (Below(8) == 0) return reflection.ClearField(&message, field);
    if (field->is_repeated()) {
      ChangeRepeated(message, reflection, field);
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      Change(*reflection.MutableMessage(&message, field));
    } else {
      SetOrAdd(message, reflection, field, /*is_new=*/false);
    }
  }

  int Below(int end) { return std::uniform_int_distribution<int>(0, end - 1)(random_); }

 private:
  void ChangeRepeated(Message& message, const Reflection& reflection,
                      const FieldDescriptor* field) {
    const int count = reflection.FieldSize(message, field);
    const bool is_message = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (count > 0 && Below(5) == 0) return reflection.RemoveLast(&message, field);
    if (count > 1 && Below(5) == 0) {
      return reflection.SwapElements(&message, field, Below(count), Below(count));
    }
    if (is_message && count > 0 && Below(3) != 0) {
      return Change(*reflection.MutableRepeatedMessage(&message, field, Below(count)));
    }
    if (is_message) return Change(*reflection.AddMessage(&message, field));
    SetOrAdd(message, reflection, field, /*is_new=*/true);
  }

  void SetOrAdd(Message& message, const Reflection& reflection, const FieldDescriptor* field,
                bool is_new) {
    switch (field->cpp_type()) {
#define NEREID_CASE(type, Name, value)                               \
  case FieldDescriptor::CPPTYPE_##type:                              \
    if (is_new) return reflection.Add##Name(&message, field, value); \
    return reflection.Set##Name(&message, field, value)
      NEREID_CASE(INT32, Int32, Number<int32_t>());
      NEREID_CASE(INT64, Int64, Number<int64_t>());
      NEREID_CASE(UINT32, UInt32, Number<uint32_t>());
      NEREID_CASE(UINT64, UInt64, Number<uint64_t>());
      NEREID_CASE(FLOAT, Float, static_cast<float>(Number<int32_t>()));
      NEREID_CASE(DOUBLE, Double, static_cast<double>(Number<int64_t>()));
      NEREID_CASE(BOOL, Bool, Below(2) == 0);
      NEREID_CASE(STRING, String, Text());
#undef NEREID_CASE
      default:
        return;
    }
  }

  template <typename T>
  T Number() {
    constexpr T kNumbers[] = {0,
                              1,
                              2,
                              4,
                              255,
                              T(-1),
                              T(-2),
                              std::numeric_limits<T>::max(),
                              std::numeric_limits<T>::min(),
                              std::numeric_limits<T>::max() / 2 + 1};
    return kNumbers[Below(std::size(kNumbers))];
  }

  std::string Text() {
    static const char* const kTexts[] = {"",      "INPUT0", "FP32", "BYTES",
                                         "INT8",  "BOOL",   "FP16", "BF16",
                                         "model", "1",      "-1",   "binary_data_size"};
    std::string text = kTexts[Below(std::size(kTexts))];
    if (Below(2) == 0) text.append(static_cast<size_t>(Below(40)), static_cast<char>(Below(256)));
    return text;
  }

  std::minstd_rand random_;
};

}  // namespace
}  // namespace nereid

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  nereid::Mutator mutator(seed);
  inference::ModelInferRequest message;
  if (mutator.Below(4) == 0 || !message.ParseFromArray(data, static_cast<int>(size))) {
    return LLVMFuzzerMutate(data, size, max_size);
  }
  const int num_changes = 1 + mutator.Below(4);
  for (int i = 0; i < num_changes; ++i) mutator.Change(message);
  const std::string text = message.SerializeAsString();
  if (text.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::copy(text.begin(), text.end(), data);
  return text.size();
}

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
