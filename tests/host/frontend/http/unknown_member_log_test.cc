// Tests of UnknownMemberLog: each name once, and a bound of their number.
#include "host/frontend/http/bodies/generate_members.h"

#include <gtest/gtest.h>

#include <string>

namespace nereid::http {
namespace {

TEST(UnknownMemberLogTest, AMemberIsNamedOncePerModel) {
  UnknownMemberLog log;
  EXPECT_EQ(log.LineFor("llm", "wonder"),
            "model 'llm' has no input 'wonder': generate passes this member on as a request "
            "parameter, which language models do not read; it is not named again");
  EXPECT_EQ(log.LineFor("llm", "wonder"), "");
  EXPECT_NE(log.LineFor("llm", "other"), "");
  EXPECT_NE(log.LineFor("second", "wonder"), "");
}

TEST(UnknownMemberLogTest, NamesOfClientsUseLimitedMemory) {
  UnknownMemberLog log;
  const std::string line = log.LineFor("llm", std::string(1 << 20, 'x'));
  EXPECT_LT(line.size(), 512u);
  EXPECT_NE(line.find("'" + std::string(64, 'x') + "'"), std::string::npos);
  for (size_t i = 2; i < UnknownMemberLog::kMaxNames; ++i) log.LineFor("llm", std::to_string(i));
  EXPECT_NE(log.LineFor("llm", "last").find("nor is any further member"), std::string::npos);
  EXPECT_EQ(log.LineFor("llm", "one more"), "");
}

}  // namespace
}  // namespace nereid::http
