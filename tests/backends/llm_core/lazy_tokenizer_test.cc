// A tokenizer of another folder is checked against the size of the checkpoint's vocabulary.
#include "backends/llm_core/adapter/lazy_tokenizer.h"

#include <gtest/gtest.h>

#include "tests/support/source_path.h"

namespace nereid::llm {
namespace {

const std::string kDemo = SourcePath("demo/model");  // 4,096 tokens

TEST(LazyTokenizerTest, ATokenizerOfAnotherFolderHasToFitTheVocabulary) {
  LazyTokenizer tokenizer(kDemo, true, std::nullopt);
  const auto fault = tokenizer.FaultBeside("/other/checkpoint", 4096);
  ASSERT_TRUE(fault.ok()) << fault.status().message();
  EXPECT_EQ(*fault, "");
  const auto refused = tokenizer.FaultBeside("/other/checkpoint", 100);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().message().rfind("parameter 'tokenizer_dir': ", 0), 0u);
}

TEST(LazyTokenizerTest, TheTokenizerOfTheCheckpointAndAMissingOneAreNotJudged) {
  LazyTokenizer own(kDemo, true, std::nullopt);
  EXPECT_TRUE(own.FaultBeside(std::string(kDemo) + "/../model", 100).ok());
  LazyTokenizer missing("/no/such/tokenizer", true, std::nullopt);
  EXPECT_TRUE(missing.FaultBeside("/other/checkpoint", 100).ok());
  EXPECT_FALSE(missing.Get().ok());
  EXPECT_FALSE(missing.Get().ok());  // again
}

}  // namespace
}  // namespace nereid::llm
