#include "host/core/request/sequence_states.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "host/core/request/infer_request.h"
#include "tests/host/core/support/schema_of.h"
#include "tests/support/test_folder.h"

namespace nereid::core {
namespace {

// A model with this max_batch_size and one state of type FP32, to which `more` adds fields.
ModelConfig Config(int max_batch_size, const std::string& dims, const std::string& more) {
  return test::ConfigOf(StrCat(R"({"backend": "b", "max_batch_size": )", max_batch_size, R"(,
    "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [1]}],
    "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [1]}],
    "sequence_batching": {"state": [{"input_name": "SI", "output_name": "SO",
      "data_type": "TYPE_FP32", "dims": )",
                               dims, more, "}]}}"));
}

class SequenceStatesTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directory(folder_ / "initial_state"); }
  void Use(const ModelConfig& config) {
    auto specs = MakeStateSpecs(config, folder_);
    ASSERT_TRUE(specs.ok()) << specs.status().message();
    specs_ = std::move(*specs);
    states_ = std::make_unique<SequenceStates>(specs_);
  }
  StateTensor* State() { return *states_->FindOutput("SO"); }
  // The state as the next request would read it: "[1,2]: 3 4".
  std::string Input() {
    HostInputs inputs;
    states_->AddInputs(&inputs);
    const InputTensor& tensor = inputs.tensors[0];
    EXPECT_EQ(tensor.name, "SI");
    std::string text = ShapeText(tensor.shape.span()) + ":";
    std::vector<float> values(tensor.byte_size / sizeof(float));
    std::memcpy(values.data(), tensor.buffers[0].base, tensor.byte_size);
    for (const float value : values) text += StrCat(" ", value);
    return text;
  }
  void Write(std::vector<int64_t> shape, const std::vector<float>& values) {
    ASSERT_TRUE(State()->SetNextTypeAndShape(DataType::kFp32, shape).ok());
    const size_t byte_size = values.size() * sizeof(float);
    std::memcpy(*State()->Buffer(byte_size), values.data(), byte_size);
  }

  const TestFolder parent_;
  const std::filesystem::path folder_ = parent_.path();
  std::vector<StateSpec> specs_;
  std::unique_ptr<SequenceStates> states_;
};

TEST_F(SequenceStatesTest, StartWithZerosAndVariableSizesOfOne) {
  Use(Config(0, "[2]", ""));
  EXPECT_EQ(Input(), "[2]: 0 0");
  Use(Config(4, "[2, -1]", ""));
  EXPECT_EQ(Input(), "[1,2,1]: 0 0");
}

TEST_F(SequenceStatesTest, StartWithTheContentOfAFile) {
  const float values[] = {1, 2, 3};
  std::ofstream(folder_ / "initial_state/s.bin")
      .write(reinterpret_cast<const char*>(values), sizeof(values));
  const char* file = R"(, "initial_state": [{"name": "x", "data_type": "TYPE_FP32", "dims": ["3"],
                          "data_file": "s.bin"}])";
  Use(Config(4, "[-1]", file));
  EXPECT_EQ(Input(), "[1,3]: 1 2 3");
  Write({1, 1}, {9});
  State()->Update();
  EXPECT_EQ(Input(), "[1,1]: 9");
  states_->Reset();
  EXPECT_EQ(Input(), "[1,3]: 1 2 3");
}

TEST_F(SequenceStatesTest, StartWithTheStringsOfAFileOrWithEmptyOnes) {
  const auto initial = [&](std::string_view content) {
    std::ofstream(folder_ / "initial_state/texts") << content;
    auto specs = MakeStateSpecs(test::ConfigOf(R"({"backend": "b", "max_batch_size": 0,
      "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [1]}],
      "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [1]}],
      "sequence_batching": {"state": [{"input_name": "SI", "output_name": "SO",
        "data_type": "TYPE_STRING", "dims": [2], "initial_state": [{"name": "x",
          "data_type": "TYPE_STRING", "dims": ["2"], "data_file": "texts"}]}]}})"),
                                folder_);
    EXPECT_TRUE(specs.ok()) << specs.status().message();
    return std::string(specs->at(0).initial_data.begin(), specs->at(0).initial_data.end());
  };
  const std::string two("\2\0\0\0ab\0\0\0\0", 10), empty(8, '\0');
  EXPECT_EQ(initial(two), two);
  EXPECT_EQ(initial(two.substr(0, 8)), empty) << "ends in a length";
  EXPECT_EQ(initial(two + two), empty) << "four";
  EXPECT_EQ(initial(std::string("\x64\0\0\0\0\0\0\0", 8)), empty) << "ends in a text";
}

TEST_F(SequenceStatesTest, NameAFileWithInvalidContent) {
  std::ofstream(folder_ / "initial_state/s.bin") << "12345";
  const auto fault = [&](const char* file) {
    return MakeStateSpecs(Config(0, "[2]",
                                 StrCat(R"(, "initial_state": [{"name": "x",
      "data_type": "TYPE_FP32", "dims": ["2"], "data_file": ")",
                                        file, R"("}])")),
                          folder_)
        .status()
        .message();
  };
  EXPECT_EQ(fault("s.bin"), StrCat("state 'SI': initial_state setting expects 8 bytes, but the "
                                   "data in '",
                                   folder_.string(), "/initial_state/s.bin' has 5 bytes"));
  std::ofstream(folder_ / "initial_state/longer.bin") << "123456789";
  EXPECT_EQ(fault("longer.bin"), "") << "its beginning is taken";
  EXPECT_NE(fault("..").find("expected a path inside of"), std::string::npos);
  EXPECT_NE(fault(".").find("got a directory"), std::string::npos);
  EXPECT_NE(fault("none").find("cannot open"), std::string::npos);
}

TEST_F(SequenceStatesTest, ChangeOnlyWhenTheyAreUpdated) {
  Use(Config(0, "[-1]", ""));
  State()->Update();
  EXPECT_EQ(Input(), "[1]: 0") << "nothing was written";
  Write({2}, {1, 2});
  EXPECT_EQ(Input(), "[1]: 0");
  State()->Update();
  EXPECT_EQ(Input(), "[2]: 1 2");
  State()->Update();
  EXPECT_EQ(Input(), "[2]: 1 2") << "the second call finds nothing new";
}

TEST_F(SequenceStatesTest, ReuseTheirMemory) {
  Use(Config(0, "[2]", ""));
  Write({2}, {1, 2});
  void* const first = *State()->Buffer(8);
  State()->Update();
  Write({2}, {3, 4});
  State()->Update();
  EXPECT_EQ(*State()->Buffer(8), first);
}

TEST_F(SequenceStatesTest, GrowInPlaceIfInputAndOutputShareABuffer) {
  Use(Config(0, "[-1]", R"(, "use_same_buffer_for_input_output": true,
                            "use_growable_memory": true)"));
  Write({1}, {7});
  EXPECT_EQ(Input(), "[1]: 7") << "written over what it follows";
  State()->Update();
  ASSERT_TRUE(State()->SetNextTypeAndShape(DataType::kFp32, std::vector<int64_t>{3}).ok());
  auto* const before = static_cast<float*>(*State()->Buffer(sizeof(float)));
  auto* const grown = static_cast<float*>(*State()->Buffer(3 * sizeof(float)));
  EXPECT_EQ(grown, before) << "it stays where it is";
  EXPECT_EQ(grown[0], 7) << "it keeps its content";
  grown[2] = 9;
  State()->Update();
  EXPECT_EQ(Input(), "[3]: 7 0 9");
  constexpr size_t kLarge = size_t{3} << 20;
  EXPECT_EQ(*State()->Buffer(kLarge), static_cast<void*>(before));
  before[kLarge / sizeof(float) - 1] = 1;
  EXPECT_EQ(State()->Buffer((uint64_t{1} << 30) + 1).status().message(),
            "state 'SO': memory cannot grow to 1073741825 bytes: addresses are reserved for "
            "1073741824");
}

TEST_F(SequenceStatesTest, MoveIfTheSharedBufferCannotGrow) {
  Use(Config(0, "[-1]", R"(, "use_same_buffer_for_input_output": true)"));
  Write({1}, {7});
  State()->Update();
  HostInputs before;  // of a request in flight
  states_->AddInputs(&before);
  Write({3}, {7, 8, 9});
  State()->Update();
  EXPECT_EQ(Input(), "[3]: 7 8 9");
  EXPECT_EQ(*static_cast<const float*>(before.tensors[0].buffers[0].base), 7);
}

TEST_F(SequenceStatesTest, ReportInvalidTypesAndShapesOfABackend) {
  Use(Config(4, "[2]", ""));
  EXPECT_EQ(states_->FindOutput("SI").status().message(), "state 'SI' is not a valid state name.");
  const int64_t right[] = {1, 2}, wrong[] = {1, 3};
  EXPECT_EQ(State()->SetNextTypeAndShape(DataType::kInt8, right).message(),
            "unexpected datatype for state 'SO'. Expected FP32, got INT8");
  EXPECT_EQ(State()->SetNextTypeAndShape(DataType::kFp32, wrong).message(),
            "unexpected shape for state 'SO'. Expected [1,2], got [1,3]");
}

}  // namespace
}  // namespace nereid::core
