// Memory that models offer for inputs, as those who receive them get it.
#include <memory>

#include "nereid/input_memory.h"
#include "tests/host/core/capi/server_fixture.h"

namespace nereid {
namespace {

constexpr char kOffering[] =
    "backend: 'offering'\n"
    "input [ { name: 'INPUT0' data_type: TYPE_FP32 dims: [ -1 ] } ]\n"
    "output [ { name: 'OUTPUT0' data_type: TYPE_FP32 dims: [ -1 ] } ]\n"
    "instance_group [ { count: 1 kind: KIND_CPU } ]\n";

class OfferedInputTest : public ServerTest {
 protected:
  void StartOffering() {
    AddModel("offering", kOffering);
    AddModel("identity");
    ServerOptions options = Explicit();
    ASSERT_TRUE(options.AddStartupModel("offering").ok());
    ASSERT_TRUE(options.AddStartupModel("identity").ok());
    const Status status = Start(options);
    ASSERT_TRUE(status.ok()) << status.message();
    num_given_back_ = NumGivenBack();
  }
  float NumGivenBack() const { return Infer("offering", {0}).value()[0] - num_given_back_; }
  std::unique_ptr<InputMemory> Offered(const char* model, uint64_t size_bytes = 100) const {
    return InputMemory::Of(server_->get(), model, -1, size_bytes);
  }
  bool IsFor(const InputMemory& memory, const char* model) const {
    const auto request = server_->NewRequest(model);
    return request.ok() && memory.IsFor(*request);
  }

  float num_given_back_ = 0;  // by the tests before
};

TEST_F(OfferedInputTest, WhatAModelOffersIsTheOwnersUntilItEnds) {
  StartOffering();
  std::unique_ptr<InputMemory> memory = Offered("offering");
  ASSERT_NE(memory, nullptr);
  memory->base()[99] = 'x';
  EXPECT_EQ(NumGivenBack(), 0);
  memory.reset();
  EXPECT_EQ(NumGivenBack(), 1);
}

TEST_F(OfferedInputTest, NothingIsThereWhereNothingIsOffered) {
  StartOffering();
  EXPECT_EQ(Offered("identity"), nullptr);
  EXPECT_EQ(Offered("offering", 1 << 20), nullptr);
  EXPECT_EQ(Offered("no such model"), nullptr);
  EXPECT_EQ(NumGivenBack(), 0);
}

TEST_F(OfferedInputTest, ItIsForTheModelThatOfferedItUntilThatIsLoadedAnew) {
  StartOffering();
  const std::unique_ptr<InputMemory> memory = Offered("offering");
  ASSERT_NE(memory, nullptr);
  EXPECT_TRUE(IsFor(*memory, "offering"));
  EXPECT_FALSE(IsFor(*memory, "identity"));
  ASSERT_TRUE(server_->UnloadModel("offering").ok());
  ASSERT_TRUE(server_->LoadModel("offering").ok());
  EXPECT_FALSE(IsFor(*memory, "offering"));
  const std::unique_ptr<InputMemory> anew = Offered("offering");
  ASSERT_NE(anew, nullptr);
  EXPECT_TRUE(IsFor(*anew, "offering"));
}

}  // namespace
}  // namespace nereid
