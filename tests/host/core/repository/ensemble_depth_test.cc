// Ensembles whose steps are ensembles: their nesting depth is bounded.
#include "host/core/repository/model_repository.h"
#include "tests/host/core/repository/fake_models.h"

namespace nereid::core {
namespace {

using EnsembleDepthTest = RepositoryTest;

TEST_F(EnsembleDepthTest, RefusesEnsemblesThatAreNestedTooDeep) {
  AddModel("e0");
  const auto name = [](size_t depth) { return StrCat("e", depth); };
  for (size_t depth = 1; depth <= kMaxEnsembleDepth + 2; ++depth) {
    AddEnsemble(name(depth), {name(depth - 1)});
  }
  const std::string message = repository_.LoadAll().message();
  EXPECT_NE(message.find(StrCat("load failed for model '", name(kMaxEnsembleDepth + 1),
                                "': its ensembles are nested ", kMaxEnsembleDepth + 1,
                                " levels deep, limit ", kMaxEnsembleDepth)),
            std::string::npos)
      << message;
  EXPECT_NE(Find(name(kMaxEnsembleDepth)), nullptr);
  EXPECT_EQ(Find(name(kMaxEnsembleDepth + 1)), nullptr);
  EXPECT_EQ(Find(name(kMaxEnsembleDepth + 2)), nullptr);
  EXPECT_FALSE(repository_.Load(name(kMaxEnsembleDepth + 2), {}).ok());
}

TEST_F(EnsembleDepthTest, RefusesAReloadThatNestsItsCallersTooDeep) {
  AddModel("leaf");
  AddModel("e0");
  AddEnsemble("e1", {"e0"});
  for (size_t depth = 2; depth <= kMaxEnsembleDepth; ++depth) {
    AddEnsemble(StrCat("e", depth), {StrCat("e", depth - 1)});
  }
  ASSERT_TRUE(repository_.LoadAll().ok());
  const Parameter config = EnsembleOver("leaf");
  ASSERT_TRUE(repository_.Load("e0", {&config}).ok());
  EXPECT_NE(Find(StrCat("e", kMaxEnsembleDepth - 1)), nullptr);
  EXPECT_EQ(Find(StrCat("e", kMaxEnsembleDepth)), nullptr);
}

TEST_F(EnsembleDepthTest, RefusesALongChainOfEnsembles) {
  AddModel("e0");
  constexpr size_t kDepth = 300;
  for (size_t depth = 1; depth <= kDepth; ++depth) {
    AddEnsemble(StrCat("e", depth), {StrCat("e", depth - 1)});
  }
  const Status status = repository_.Load(StrCat("e", kDepth), {});
  EXPECT_NE(status.message().find("its ensembles are nested 300 levels deep, limit 32"),
            std::string::npos)
      << status.message().substr(0, 200);
}

}  // namespace
}  // namespace nereid::core
