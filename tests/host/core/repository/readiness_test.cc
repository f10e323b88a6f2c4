// Which versions a server misses, so that it is not ready without them.
#include "tests/host/core/repository/fake_models.h"

namespace nereid {
namespace {

using ReadinessTest = RepositoryTest;

TEST_F(ReadinessTest, AModelThatServesIsNotMissedForWhatItsPolicyDoesNotFind) {
  AddModel("m", {2}, "backend: 'b' version_policy { specific { versions: [ 1 ] } }");
  EXPECT_FALSE(repository_.Load("m", {}).ok());
  EXPECT_FALSE(repository_.AllServing());
  AddModel("m", {1}, "backend: 'b' version_policy { specific { versions: [ 1 ] } }");
  ASSERT_TRUE(repository_.Load("m", {}).ok());
  EXPECT_TRUE(repository_.AllServing()) << "version 2 was never wanted";
  AddModel("m", {3}, "backend: 'b' version_policy { specific { versions: [ 7 ] } }");
  EXPECT_FALSE(repository_.Load("m", {}).ok());
  EXPECT_EQ(Index(true), "m:1 READY");
  EXPECT_TRUE(repository_.AllServing());
  ASSERT_TRUE(repository_.Unload("m", false).ok());
  EXPECT_FALSE(repository_.Load("m", {}).ok());
  EXPECT_TRUE(repository_.AllServing()) << "it was unloaded before";
}

TEST_F(ReadinessTest, AServerMissesAModelThatAClientLoadsAndThatHasNoVersion) {
  AddModel("none", {});
  EXPECT_FALSE(repository_.Load("none", {}).ok());
  EXPECT_FALSE(repository_.AllServing()) << "its configuration was taken";
}

}  // namespace
}  // namespace nereid
