// Files that torch.save wrote (torch 1.13 and a newer one), and what is not a tensor.
#include "host/frontend/openai/tensors/torch_tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "tests/support/source_path.h"

namespace nereid::openai {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string FileOf(const std::string& name) {
  std::ifstream in(SourcePath("tests/fuzz/torch_tensor/corpus/" + name), std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class TorchTensorTest : public ::testing::TestWithParam<const char*> {
 protected:
  std::string File(const std::string& name) const { return FileOf(name + "_" + GetParam()); }
  std::string ErrorOf(const std::string& name) const {
    const std::string file = File(name);
    const auto tensor = ReadTorchTensor(file);
    return tensor.ok() ? "" : tensor.status().message();
  }
};

TEST_P(TorchTensorTest, HasTheNumbersOfEachType) {
  for (const char* const name : {"float", "half", "bf16"}) {
    SCOPED_TRACE(name);
    const std::string file = File(name);
    const auto tensor = ReadTorchTensor(file);
    ASSERT_TRUE(tensor.ok()) << tensor.status().message();
    EXPECT_THAT(tensor->shape, ElementsAre(2, 3));
    EXPECT_THAT(FloatsOf(*tensor), ElementsAre(-0.5f, -0.25f, 0.0f, 0.25f, 0.5f, 0.75f));
  }
  const std::string file = File("view");  // the second row of a longer storage
  const auto tensor = ReadTorchTensor(file);
  ASSERT_TRUE(tensor.ok()) << tensor.status().message();
  EXPECT_THAT(FloatsOf(*tensor), ElementsAre(0.25f, 0.5f, 0.75f));
}

TEST_P(TorchTensorTest, RefusesWhatIsNoPlainTensor) {
  EXPECT_THAT(ErrorOf("transposed"), HasSubstr("not contiguous"));
  EXPECT_THAT(ErrorOf("long"), HasSubstr("a tensor of LongStorage, expected FloatStorage"));
  EXPECT_THAT(ErrorOf("dict"), HasSubstr("a pickle of something else"));
  EXPECT_THAT(ErrorOf("parameter"), HasSubstr("a pickle of something else"));
}

TEST_P(TorchTensorTest, NoBeginningOfAFileIsATensor) {
  const std::string file = File("float");
  for (size_t size = 0; size < file.size(); size += 7) {
    EXPECT_FALSE(ReadTorchTensor(std::string_view(file).substr(0, size)).ok()) << size;
  }
}

// A pickle that would call a function when Python reads it.
TEST_P(TorchTensorTest, NothingIsLookedUpByName) {
  std::string file = File("float");
  const size_t at = file.find("torch._utils\n_rebuild_tensor_v2\n");
  ASSERT_NE(at, std::string::npos);
  file.replace(at, 32, "posix\nsystem_________________v2\n");
  EXPECT_THAT(ReadTorchTensor(file).status().message(), HasSubstr("a pickle of something else"));
}

INSTANTIATE_TEST_SUITE_P(Versions, TorchTensorTest, ::testing::Values("v1", "v2"));

}  // namespace
}  // namespace nereid::openai
