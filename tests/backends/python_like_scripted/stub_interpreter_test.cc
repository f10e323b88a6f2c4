#include "backends/python_like_scripted/stub_interpreter.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/support/test_folder.h"

namespace nereid::python {
namespace {

namespace fs = std::filesystem;

class StubInterpreterTest : public testing::Test {
 protected:
  std::string VersionIn(const std::string& bytes) const {
    folder_.Write("stub", bytes);
    return StubPythonVersion(folder_ / "stub");
  }

  const TestFolder folder_;
};

TEST_F(StubInterpreterTest, ReadsThePythonVersionOfAStub) {
  using std::string_literals::operator""s;
  EXPECT_EQ(VersionIn("\x7f"
                      "ELF\0libc.so.6\0libpython3.so\0libpython3.10.so.1.0\0"s),
            "3.10");
  EXPECT_EQ(VersionIn("libpython3.9.so"), "3.9");
  for (const char* bytes : {"", "libpython", "libpython3", "libpython3.", "libpython3.10.s",
                            "libpython.so", "libpython3.so", "libpythonx.so"}) {
    EXPECT_EQ(VersionIn(bytes), "") << bytes;
  }
  EXPECT_EQ(StubPythonVersion(folder_ / "nosuch"), "");
}

TEST_F(StubInterpreterTest, KeepsAnInterpreterWithTheSameVersion) {
  std::ofstream(folder_ / "python9.8") << "";
  fs::create_symlink(folder_ / "python9.8", folder_ / "python3");
  const std::string interpreter = folder_ / "python3";
  for (const bool is_configured : {false, true}) {
    EXPECT_EQ(InterpreterForVersion("9.8", interpreter, is_configured), interpreter);
    EXPECT_EQ(InterpreterForVersion("9.7", interpreter, is_configured), "python9.7");
    EXPECT_EQ(InterpreterForVersion("9.8", "/nosuch/python3", is_configured), "python9.8");
  }
  EXPECT_EQ(VersionInName(interpreter), "9.8");
}

TEST_F(StubInterpreterTest, KeepsAConfiguredInterpreterWithoutAVersionInItsName) {
  for (const char* name : {"python3", "python", "python3.10-config", "pypy3.10", "python3.13t"}) {
    std::ofstream(folder_ / name) << "#!/bin/sh";
    const std::string interpreter = folder_ / name;
    EXPECT_EQ(VersionInName(interpreter), "") << name;
    EXPECT_EQ(InterpreterForVersion("9.8", interpreter, /*is_configured=*/true), interpreter);
    EXPECT_EQ(InterpreterForVersion("9.8", interpreter, /*is_configured=*/false), "python9.8");
  }
}

}  // namespace
}  // namespace nereid::python
