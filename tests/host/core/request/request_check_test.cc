#include "host/core/request/request_check.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/host/core/support/schema_of.h"

namespace nereid::core {
namespace {

using test::SchemaOf;

constexpr char kVector[] = R"({"backend": "b", "max_batch_size": 0,
  "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
  "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1]}]})";
constexpr char kBatch[] = R"({"backend": "b", "max_batch_size": 8,
  "input": [{"name": "A", "data_type": "TYPE_FP32", "dims": [16]},
            {"name": "B", "data_type": "TYPE_INT32", "dims": [1], "optional": true}],
  "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [16]}]})";
constexpr char kTwo[] = R"({"backend": "b", "max_batch_size": 8,
  "input": [{"name": "A", "data_type": "TYPE_FP32", "dims": [1]},
            {"name": "B", "data_type": "TYPE_FP32", "dims": [1]}],
  "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [1]}]})";
constexpr char kOneText[] = R"({"backend": "b", "max_batch_size": 0,
  "input": [{"name": "TEXT", "data_type": "TYPE_STRING", "dims": [1]}],
  "output": [{"name": "OUTPUT0", "data_type": "TYPE_STRING", "dims": [1]}]})";
constexpr char kText[] = R"({"backend": "b", "max_batch_size": 0,
  "input": [{"name": "TEXT", "data_type": "TYPE_STRING", "dims": [-1]}],
  "output": [{"name": "OUTPUT0", "data_type": "TYPE_STRING", "dims": [-1]}]})";

// Zeros, as many as the largest test needs.
const std::vector<char> kData(4096, 0);

InputTensor Input(const char* name, DataType type, const std::vector<int64_t>& shape,
                  size_t byte_size, const char* data = kData.data()) {
  InputTensor input;
  input.name = name;
  input.data_type = type;
  input.client_shape.assign(shape);
  if (byte_size > 0) {
    InputBuffer buffer{data, {}};
    buffer.attributes.byte_size = byte_size;
    input.buffers.push_back(buffer);
  }
  return input;
}

// Adds data that is only for instances of one host policy.
InputTensor WithPolicyData(InputTensor input, size_t byte_size) {
  InputBuffer buffer{kData.data(), {}};
  buffer.attributes.byte_size = byte_size;
  input.policy_buffers.push_back({"numa_0", InputBuffers()});
  input.policy_buffers.back().second.push_back(buffer);
  return input;
}

struct Checked {
  Status status;
  int64_t batch_size = 0;
  std::vector<InputTensor> inputs;
  std::string message() const { return status.message(); }
};

Checked Check(const RequestSchema& schema, std::vector<InputTensor> inputs,
              const std::string& request_id = "") {
  Checked checked;
  checked.status = CheckInputs(schema, request_id, inputs, &checked.batch_size);
  checked.inputs = std::move(inputs);
  return checked;
}

TEST(RequestCheckTest, AcceptsWhatTheModelExpects) {
  const Checked checked = Check(SchemaOf(kVector), {Input("INPUT0", DataType::kFp32, {3}, 12)});
  ASSERT_TRUE(checked.status.ok()) << checked.message();
  EXPECT_EQ(checked.batch_size, 1);
  EXPECT_EQ(checked.inputs[0].byte_size, 12U);
  EXPECT_EQ(checked.inputs[0].shape, Shape({3}));
}

TEST(RequestCheckTest, NamesMissingInputs) {
  const Checked checked = Check(SchemaOf(kVector), {}, "r1");
  EXPECT_EQ(checked.status.code(), StatusCode::kInvalidArg);
  EXPECT_EQ(checked.message(),
            "[request id: r1] expected 1 inputs but got 0 inputs for model 'm'. Got input(s) [], "
            "but missing required input(s) ['INPUT0']. Please provide all required input(s).");
}

TEST(RequestCheckTest, CountsOptionalInputsInTheMessage) {
  const Checked checked = Check(SchemaOf(kBatch), {Input("B", DataType::kInt32, {1, 1}, 4)});
  EXPECT_EQ(
      checked.message(),
      "[request id: <id_unknown>] expected number of inputs between 1 and 2 but got 1 inputs "
      "for model 'm'. Got input(s) ['B'], but missing required input(s) ['A']. Please provide "
      "all required input(s).");
}

TEST(RequestCheckTest, NamesUnexpectedInputs) {
  const Checked checked = Check(SchemaOf(kVector), {Input("NOPE", DataType::kFp32, {1}, 4)});
  EXPECT_EQ(checked.message(), "unexpected inference input 'NOPE' for model 'm'");
}

TEST(RequestCheckTest, ChecksTheNumberOfInputsBeforeTheirNames) {
  EXPECT_EQ(Check(SchemaOf(kVector), {Input("INPUT0", DataType::kFp32, {1}, 4),
                                      Input("NOPE", DataType::kFp32, {1}, 4)})
                .message(),
            "[request id: <id_unknown>] expected 1 inputs but got 2 inputs for model 'm'. Got "
            "input(s) ['INPUT0','NOPE'], but missing required input(s) []. Please provide all "
            "required input(s).");
  EXPECT_EQ(Check(SchemaOf(kTwo), {Input("NOPE", DataType::kFp32, {1, 1}, 4)}).message(),
            "[request id: <id_unknown>] expected 2 inputs but got 1 inputs for model 'm'. Got "
            "input(s) ['NOPE'], but missing required input(s) ['A','B']. Please provide all "
            "required input(s).");
}

// The request has an optional input instead of a required one, so the number of inputs matches.
TEST(RequestCheckTest, ReportsAMissingInputEvenIfTheNumberOfInputsMatches) {
  EXPECT_EQ(Check(SchemaOf(kBatch), {Input("B", DataType::kInt32, {1, 1}, 4)}).status.code(),
            StatusCode::kInvalidArg);
}

TEST(RequestCheckTest, ChecksTheBatchSizeOfAllInputsBeforeTheirTypes) {
  const RequestSchema schema = SchemaOf(kTwo);
  EXPECT_EQ(Check(schema, {Input("A", DataType::kInt32, {2, 1}, 8),
                           Input("B", DataType::kFp32, {3, 1}, 12)})
                .message(),
            "[request id: <id_unknown>] input 'B' batch size does not match other inputs for 'm'");
  EXPECT_EQ(Check(schema, {Input("A", DataType::kInt32, {9, 1}, 36),
                           Input("B", DataType::kFp32, {9, 1}, 36)})
                .message(),
            "[request id: <id_unknown>] inference request batch-size must be <= 8 for 'm'");
}

TEST(RequestCheckTest, NamesBothDataTypes) {
  const Checked checked = Check(SchemaOf(kVector), {Input("INPUT0", DataType::kInt32, {1}, 4)});
  EXPECT_EQ(checked.message(),
            "[request id: <id_unknown>] inference input 'INPUT0' data-type is 'INT32', but model "
            "'m' expects 'FP32'");
}

TEST(RequestCheckTest, NamesBothShapes) {
  EXPECT_EQ(Check(SchemaOf(kVector), {Input("INPUT0", DataType::kFp32, {2, 2}, 16)}).message(),
            "[request id: <id_unknown>] unexpected shape for input 'INPUT0' for model 'm'. "
            "Expected [-1], got [2,2]. ");
  const std::string batched =
      Check(SchemaOf(kBatch), {Input("A", DataType::kFp32, {1, 4}, 16)}).message();
  EXPECT_EQ(batched.rfind("[request id: <id_unknown>] unexpected shape for input 'A' for model "
                          "'m'. Expected [-1,16], got [1,4]. NOTE: Setting a non-zero "
                          "max_batch_size",
                          0),
            0U)
      << batched;
}

TEST(RequestCheckTest, RejectsNegativeDimensions) {
  EXPECT_EQ(Check(SchemaOf(kVector), {Input("INPUT0", DataType::kFp32, {-1}, 4)}).message(),
            "[request id: <id_unknown>] All input dimensions should be specified for input "
            "'INPUT0' for model 'm', got [-1]");
}

TEST(RequestCheckTest, RejectsAByteSizeThatDoesNotMatchTheShape) {
  EXPECT_EQ(Check(SchemaOf(kVector), {Input("INPUT0", DataType::kFp32, {16}, 32)}).message(),
            "[request id: <id_unknown>] input byte size mismatch for input 'INPUT0' for model 'm'. "
            "Expected 64, got 32");
}

TEST(RequestCheckTest, RejectsShapesWhoseByteSizeOverflows) {
  const int64_t huge = int64_t{1} << 62;
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{huge}, {INT64_MAX}}) {
    const Checked checked = Check(SchemaOf(kVector), {Input("INPUT0", DataType::kFp32, shape, 4)});
    EXPECT_EQ(checked.status.code(), StatusCode::kInvalidArg);
    EXPECT_NE(checked.message().find("needs more than 2^63-1 bytes, got 4"), std::string::npos)
        << checked.message();
  }
}

TEST(RequestCheckTest, LimitsTheBatchSize) {
  const RequestSchema schema = SchemaOf(kBatch);
  EXPECT_EQ(Check(schema, {Input("A", DataType::kFp32, {9, 16}, 576)}).message(),
            "[request id: <id_unknown>] inference request batch-size must be <= 8 for 'm'");
  EXPECT_EQ(Check(schema, {Input("A", DataType::kFp32, {0, 16}, 0)}).message(),
            "[request id: <id_unknown>] input byte size mismatch for input 'A' for model 'm'. "
            "Expected 64, got 0");
  EXPECT_EQ(Check(schema, {Input("A", DataType::kFp32, {0, 16}, 64)}).message(),
            "[request id: <id_unknown>] inference request batch-size must be >= 1 for 'm'");
  EXPECT_EQ(Check(schema, {Input("A", DataType::kFp32, {}, 4)}).message(),
            "[request id: <id_unknown>] input 'A' has no shape but model requires batch dimension "
            "for 'm'");
}

TEST(RequestCheckTest, RequiresTheSameBatchSizeInAllInputs) {
  const Checked checked = Check(SchemaOf(kBatch), {Input("A", DataType::kFp32, {2, 16}, 128),
                                                   Input("B", DataType::kInt32, {3, 1}, 12)});
  EXPECT_EQ(checked.message(),
            "[request id: <id_unknown>] input 'B' batch size does not match other inputs for "
            "'m'");
}

TEST(RequestCheckTest, AppliesReshapeAndKeepsTheOrderOfVariableDimensions) {
  const RequestSchema schema = SchemaOf(R"({"backend": "b", "max_batch_size": 4,
    "input": [{"name": "S", "data_type": "TYPE_INT32", "dims": [1], "reshape": {"shape": []}},
              {"name": "V", "data_type": "TYPE_INT32", "dims": [-1, 1, -1],
               "reshape": {"shape": [-1, -1]}}],
    "output": [{"name": "O", "data_type": "TYPE_INT32", "dims": [1]}]})");
  const Checked checked = Check(schema, {Input("S", DataType::kInt32, {2, 1}, 8),
                                         Input("V", DataType::kInt32, {2, 3, 1, 5}, 120)});
  ASSERT_TRUE(checked.status.ok()) << checked.message();
  EXPECT_EQ(checked.batch_size, 2);
  EXPECT_EQ(checked.inputs[0].shape, Shape({2}));
  EXPECT_EQ(checked.inputs[1].shape, Shape({2, 3, 5}));
}

TEST(RequestCheckTest, ChecksEachStringOfATextTensor) {
  const RequestSchema schema = SchemaOf(kText);
  const char text[] = "\3\0\0\0abc\1\0\0\0z";
  const auto check = [&](std::vector<int64_t> shape, size_t byte_size) {
    return Check(schema, {Input("TEXT", DataType::kBytes, shape, byte_size, text)}).message();
  };
  EXPECT_EQ(check({2}, 12), "");
  EXPECT_EQ(check({2}, 7),
            "[request id: <id_unknown>] expected 2 string elements for inference input 'TEXT' for "
            "model 'm', got 1");
  EXPECT_EQ(check({1}, 12),
            "[request id: <id_unknown>] unexpected number of string elements 2 for inference input "
            "'TEXT' for model 'm', expecting 1");
  EXPECT_EQ(
      check({2}, 9),
      "[request id: <id_unknown>] incomplete string length indicator for inference input "
      "'TEXT' for model 'm', expecting 4 bytes but only 2 bytes available. Please make sure the "
      "string length indicator is in one buffer.");
  EXPECT_EQ(check({2}, 6),
            "[request id: <id_unknown>] expected 2 string elements for inference input 'TEXT' for "
            "model 'm', got 1");
  EXPECT_EQ(check({1}, 6),
            "incomplete string data for inference input 'TEXT', expecting string of length 3 but "
            "only 2 bytes available");
}

TEST(RequestCheckTest, ReadsStringsThatSpanSeveralBuffers) {
  const char text[] = "\3\0\0\0abc\1\0\0\0z";
  for (size_t cut = 1; cut < 12; ++cut) {
    InputTensor input = Input("TEXT", DataType::kBytes, {2}, cut, text);
    InputBuffer rest{text + cut, {}};
    rest.attributes.byte_size = 12 - cut;
    input.buffers.push_back(rest);
    EXPECT_EQ(Check(SchemaOf(kText), {input}).message(), "") << "cut at " << cut;
  }
}

TEST(RequestCheckTest, DeducesTheShapeOfARawInput) {
  InputTensor raw = Input("raw_input", DataType::kInvalid, {}, 12);
  raw.raw = true;
  const Checked checked = Check(SchemaOf(kVector), {raw});
  ASSERT_TRUE(checked.status.ok()) << checked.message();
  EXPECT_EQ(checked.inputs[0].name, "INPUT0");
  EXPECT_EQ(checked.inputs[0].shape, Shape({3}));

  raw = Input("raw_input", DataType::kInvalid, {}, 5);
  raw.raw = true;
  EXPECT_EQ(Check(SchemaOf(kVector), {raw}).message(),
            "[request id: <id_unknown>] input byte size mismatch for input 'raw_input' for model "
            "'m'. Expected 4, got 5");
  EXPECT_EQ(Check(SchemaOf(kBatch), {raw}).message(),
            "[request id: <id_unknown>] Raw request must only have 1 input (found 1) to be deduced "
            "but got 2 inputs in 'm' model configuration");
}

TEST(RequestCheckTest, PrependsTheLengthToARawString) {
  InputTensor raw = Input("raw_input", DataType::kInvalid, {}, 5);
  raw.raw = true;
  const Checked once = Check(SchemaOf(kOneText), {raw});
  ASSERT_TRUE(once.status.ok()) << once.message();
  const InputTensor& input = once.inputs[0];
  EXPECT_EQ(input.shape, Shape({1}));
  EXPECT_EQ(input.byte_size, 9u);
  ASSERT_EQ(input.buffers.size(), 2u);
  EXPECT_EQ(*static_cast<const uint32_t*>(input.buffers[0].base), 5u);

  InputTensor again = input;
  EXPECT_EQ(Check(SchemaOf(kOneText), {again}).inputs[0].byte_size, 9u);
  EXPECT_EQ(Check(SchemaOf(kText), {raw}).message(),
            "[request id: <id_unknown>] For BYTE datatype raw input 'TEXT', the model must have "
            "input shape [1]");
}

TEST(RequestCheckTest, DataOfOneHostPolicyIsNotEnoughForOtherPolicies) {
  const RequestSchema schema = SchemaOf(kVector);
  const InputTensor bare = Input("INPUT0", DataType::kFp32, {4}, 0);
  EXPECT_NE(Check(schema, {WithPolicyData(bare, 16)}).message().find("Expected 16, got 0"),
            std::string::npos);
  const InputTensor full = Input("INPUT0", DataType::kFp32, {4}, 16);
  EXPECT_TRUE(Check(schema, {WithPolicyData(full, 16)}).status.ok());
}

}  // namespace
}  // namespace nereid::core
