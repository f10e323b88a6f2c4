// Tests of ParseInferBody: every member of the protocol, and invalid bodies.
#include "host/frontend/http/bodies/infer_body.h"

#include <gtest/gtest.h>

namespace nereid::http {
namespace {

Status ParseInferBody(std::string_view json, InferBody& body, std::string_view binary = {}) {
  return ParseInferBody(json, binary, "m", 64, body);
}

std::string InferBodyError(std::string_view json, std::string_view binary = {}) {
  InferBody body;
  const Status status = ParseInferBody(json, body, binary);
  return status.ok() ? "no error" : status.message();
}

// Returns a body with one valid input, followed by the `extra` members.
std::string WithInput(const std::string& extra) {
  return R"({"inputs":[{"name":"A","datatype":"INT32","shape":[1],"data":[1]}])" + extra + "}";
}

TEST(InferBodyTest, CountsParsedTensorsInTheBudget) {
  std::string json = R"({"inputs":[{"name":"a","datatype":"FP64","shape":[10000],"data":[1)";
  for (int i = 1; i < 10'000; ++i) json += ",1";
  json += "]}]}";
  InferBody body;
  ASSERT_TRUE(ParseInferBody(json, "", "m", 8, body).ok());
  ByteBudget budget(100'000);
  ByteReservation reservation(&budget);
  ASSERT_TRUE(ReserveInputs(body.inputs, reservation).ok());
  EXPECT_EQ(reservation.bytes(), 80'000u);
  EXPECT_EQ(ReserveInputs(body.inputs, reservation).code(), StatusCode::kUnavailable);
}

TEST(InferBodyTest, ReadsEveryMemberOfTheProtocol) {
  InferBody body;
  const Status status = ParseInferBody(
      R"({"id":"r1","parameters":{"sequence_id":7,"sequence_start":true,"sequence_end":false,
          "priority":2,"timeout":500,"binary_data_output":true,"a":"x","b":3,"c":1.5,"d":true},
          "inputs":[{"name":"A","shape":[2],"datatype":"FP32","data":[1,2]}],
          "outputs":[{"name":"Y"},{"name":"Z","parameters":{"binary_data":false}},
                     {"name":"K","parameters":{"classification":3}}]})",
      body);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(body.options.id, "r1");
  EXPECT_EQ(body.options.sequence_id, 7u);
  EXPECT_TRUE(body.options.sequence_start);
  EXPECT_FALSE(body.options.sequence_end);
  EXPECT_EQ(body.options.priority, 2u);
  EXPECT_EQ(body.options.timeout_us, 500u);
  ASSERT_EQ(body.options.parameters.size(), 4u);
  EXPECT_EQ(std::get<std::string>(body.options.parameters[0].value), "x");
  EXPECT_EQ(std::get<int64_t>(body.options.parameters[1].value), 3);
  EXPECT_EQ(std::get<double>(body.options.parameters[2].value), 1.5);
  EXPECT_TRUE(std::get<bool>(body.options.parameters[3].value));
  ASSERT_EQ(body.inputs.size(), 1u);
  EXPECT_EQ(body.inputs[0].bytes().size(), 8u);
  ASSERT_EQ(body.outputs.size(), 3u);
  EXPECT_TRUE(body.binary_outputs);
  EXPECT_FALSE(body.outputs[0].is_binary)
      << "as Triton answers: the default is of outputs that are not listed";
  EXPECT_FALSE(body.outputs[1].is_binary);
  EXPECT_EQ(body.outputs[2].num_classes, 3u);
}

TEST(InferBodyTest, IgnoresTheDataOfATensorWithoutElements) {
  for (const char* json :
       {R"({"inputs":[{"name":"A","shape":[0],"datatype":"FP32","data":[1,2]}]})",
        R"({"inputs":[{"data":"x","name":"A","datatype":"FP16","shape":[2,0]}]})",
        R"({"inputs":[{"name":"A","shape":[0],"datatype":"BYTES","data":[]}]})"}) {
    InferBody body;
    const Status status = ParseInferBody(json, body);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(body.inputs[0].bytes().empty());
  }
}

TEST(InferBodyTest, AcceptsTheMembersOfAnInputInAnyOrder) {
  for (const char* json :
       {R"({"inputs":[{"data":[[1,2]],"shape":[1,2],"datatype":"INT32","name":"A"}]})",
        R"({"inputs":[{"shape":[1,2],"data":[1,2],"name":"A","datatype":"INT32"}]})"}) {
    InferBody body;
    const Status status = ParseInferBody(json, body);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(body.inputs[0].bytes(), std::string_view("\1\0\0\0\2\0\0\0", 8));
  }
}

TEST(InferBodyTest, AssignsBinaryDataInTheOrderOfTheInputs) {
  InferBody body;
  const std::string_view binary = "aaaabbbbbbbb";
  const Status status = ParseInferBody(
      R"({"inputs":[{"name":"A","datatype":"INT32","shape":[1],"parameters":{"binary_data_size":4}},
                    {"name":"J","datatype":"INT32","shape":[1],"data":[5]},
                    {"name":"B","datatype":"INT64","shape":[1],"parameters":{"binary_data_size":8}}]})",
      body, binary);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(body.inputs[0].bytes().data(), binary.data());
  EXPECT_EQ(body.inputs[0].bytes(), "aaaa");
  EXPECT_EQ(body.inputs[2].bytes(), "bbbbbbbb");
}

TEST(InferBodyTest, EveryByteOfTheBinaryPartMustBelongToAnInput) {
  const std::string json =
      R"({"inputs":[{"name":"A","datatype":"INT32","shape":[1],"parameters":{"binary_data_size":4}}]})";
  EXPECT_EQ(InferBodyError(json, "aaaab"), "unexpected additional input data for model 'm'");
  EXPECT_EQ(InferBodyError(json, "aaa"),
            "unexpected size for input 'A', expecting 1 additional bytes for model 'm'");
}

TEST(InferBodyTest, AnEmptyBinaryInputIsEmptyNotAbsent) {
  InferBody body;
  ASSERT_TRUE(
      ParseInferBody(
          R"({"inputs":[{"name":"A","datatype":"INT32","shape":[0],"parameters":{"binary_data_size":0}}]})",
          body)
          .ok());
  EXPECT_EQ(body.inputs[0].bytes().size(), 0u);
}

TEST(InferBodyTest, SequencesMayHaveNames) {
  InferBody body;
  ASSERT_TRUE(ParseInferBody(WithInput(R"(,"parameters":{"sequence_id":"abc"})"), body).ok());
  EXPECT_EQ(body.options.sequence_name, "abc");
}

TEST(InferBodyTest, UnknownMembersAreIgnored) {
  EXPECT_EQ(InferBodyError(WithInput(R"(,"zzz":{"deep":[1,2,{}]})")), "no error");
}

TEST(InferBodyTest, NamesTheMissingMember) {
  EXPECT_EQ(InferBodyError("{}"), "the request has no 'inputs'");
  EXPECT_EQ(InferBodyError(R"({"inputs":[{"datatype":"INT32","shape":[1],"data":[1]}]})"),
            "an input has no 'name'");
  EXPECT_EQ(InferBodyError(R"({"inputs":[{"name":"A","shape":[1],"data":[1]}]})"),
            "input 'A': no 'datatype'");
  EXPECT_EQ(InferBodyError(R"({"inputs":[{"name":"A","datatype":"INT32","data":[1]}]})"),
            "input 'A': no 'shape'");
  EXPECT_EQ(InferBodyError(WithInput(R"(,"outputs":[{}])")), "an output has no 'name'");
}

TEST(InferBodyTest, UsesTritonsErrorMessages) {
  const auto input = [](const std::string& rest) {
    return R"({"inputs":[{"name":"A","datatype":"INT32","shape":[1])" + rest + "}]}";
  };
  const std::string sources =
      "Input must set only one of the following fields: 'data', 'binary_data_size' in "
      "'parameters', 'shared_memory_region' in 'parameters'. But ";
  EXPECT_EQ(InferBodyError(input("")), sources + "no field is set");
  EXPECT_EQ(InferBodyError(input(R"(,"data":[1],"parameters":{"binary_data_size":4})")),
            sources + "set 'data' 'binary_data_size'");
  EXPECT_EQ(
      InferBodyError(input(R"(,"parameters":{"binary_data_size":4,"shared_memory_region":"r"})")),
      sources + "set 'binary_data_size' 'shared_memory_region'");
  EXPECT_EQ(
      InferBodyError(R"({"inputs":[{"datatype":"FLOAT","shape":[1],"data":[1],"name":"A"}]})"),
      "invalid datatype for input A");
  EXPECT_EQ(InferBodyError(R"({"inputs":[{"data":[1],"datatype":"BF16","shape":[1],"name":"A"}]})"),
            "receiving BF16 data via JSON is not supported. Please use the binary data format for "
            "input A");
  const auto output = [](const std::string& key) {
    return WithInput(StrCat(R"(,"outputs":[{"name":"O","parameters":{"shared_memory_region":"r",)",
                            R"("shared_memory_byte_size":4,")", key, "}}]"));
  };
  EXPECT_EQ(InferBodyError(output(R"(classification":1)")),
            "Output can't set both 'shared_memory_region' and 'classification'");
  EXPECT_EQ(InferBodyError(output(R"(binary_data":true)")),
            "Output can't set both 'shared_memory_region' and 'binary_data'");
  EXPECT_EQ(InferBodyError(output(R"(binary_data":false)")), "no error");
}

TEST(InferBodyTest, AParameterBeyond64BitsBecomesADouble) {
  InferBody body;
  ASSERT_TRUE(ParseInferBody(WithInput(R"(,"parameters":{"x":99999999999999999999})"), body).ok());
  ASSERT_EQ(body.options.parameters.size(), 1u);
  EXPECT_EQ(std::get<double>(body.options.parameters[0].value), 1e20);
}

TEST(InferBodyTest, RejectsInvalidBodies) {
  for (
      const std::string& json :
      {std::string("[]"),
       std::string("{\"inputs\":{}}"),
       std::string("{\"inputs\":[1]}"),
       std::string(R"({"inputs":[{"name":"A","datatype":"FLOAT","shape":[1],"data":[1]}]})"),
       std::string(R"({"inputs":[{"name":"A","datatype":"INT32","shape":[-1],"data":[1]}]})"),
       std::string(R"({"inputs":[{"name":"A","datatype":"INT32","shape":[1.5],"data":[1]}]})"),
       std::string(R"({"inputs":[{"name":"A","datatype":"INT32","shape":"x","data":[1]}]})"),
       std::string(
           R"({"inputs":[{"name":"A","name":"B","datatype":"INT32","shape":[1],"data":[1]}]})"),
       std::string(R"({"inputs":[{"name":"A\u0000B","datatype":"INT32","shape":[1],"data":[1]}]})"),
       std::string(
           R"({"inputs":[{"name":"A","datatype":"INT32","shape":[9223372036854775808],"data":[1]}]})"),
       WithInput(R"(,"id":7)"),
       WithInput(R"(,"parameters":[])"),
       WithInput(R"(,"parameters":{"sequence_id":"a\u0000b"})"),
       WithInput(R"(,"parameters":{"a\u0000b":1})"),
       WithInput(R"(,"parameters":{"a":"b\u0000c"})"),
       WithInput(R"(,"parameters":{"x":null})"),
       WithInput(R"(,"parameters":{"x":[1]})"),
       WithInput(R"(,"parameters":{"triton_x":1})"),
       WithInput(R"(,"parameters":{"timeout":-1})"),
       WithInput(R"(,"parameters":{"priority":"high"})"),
       WithInput(R"(,"outputs":{})"),
       WithInput(R"(,"inputs":[])"),
       WithInput("") + " x"}) {
    EXPECT_NE(InferBodyError(json), "no error") << json;
  }
}

TEST(InferBodyTest, ManyDimensionsOrTensorsAreRefused) {
  std::string shape = "1";
  for (int i = 0; i < 100; ++i) shape += ",1";
  EXPECT_NE(InferBodyError(R"({"inputs":[{"name":"A","datatype":"INT32","shape":[)" + shape +
                           R"(],"data":[1]}]})"),
            "no error");
  std::string outputs;
  for (int i = 0; i < 5000; ++i) outputs += (i ? "," : "") + std::string(R"({"name":"Y"})");
  EXPECT_NE(InferBodyError(WithInput(",\"outputs\":[" + outputs + "]")), "no error");
}

}  // namespace
}  // namespace nereid::http
