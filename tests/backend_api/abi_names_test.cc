// Compares the declarations of the C headers with the tables of abi/ by name: which functions
// exist, which side implements each, and whether the link stub has all functions of the host.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/source_path.h"

namespace {

const std::string kAbiDir = nereid::SourcePath("tests/backend_api/abi/");
const std::string kHeaderDir = nereid::SourcePath("backend_api/include/triton/core/");

// Functions that hosts export although the tables do not list them.
const std::set<std::string> kAdditions = {"TRITONCACHE_CacheEntryNew",
                                          "TRITONCACHE_CacheEntryDelete",
                                          "TRITONSERVER_ServerOptionsSetLogCallback"};

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::vector<std::string>> ReadTable(const std::string& name) {
  std::istringstream lines(ReadFile(kAbiDir + name));
  std::vector<std::vector<std::string>> rows;
  std::string line;
  std::getline(lines, line);  // the names of the columns
  while (std::getline(lines, line)) {
    std::istringstream cells(line);
    std::vector<std::string>& row = rows.emplace_back();
    for (std::string cell; std::getline(cells, cell, '\t');) row.push_back(cell);
  }
  return rows;
}

using SideByFunction = std::map<std::string, std::string>;

SideByFunction FunctionsOfTables() {
  SideByFunction functions;
  for (const std::vector<std::string>& row : ReadTable("functions.tsv")) {
    functions[row.at(1) + " " + row.at(2)] = row.at(6);
  }
  return functions;
}

SideByFunction FunctionsOfHeaders() {
  SideByFunction functions;
  const std::regex declaration(R"(TRITON[A-Z]+_(DECLSPEC|ISPEC)\s[^();]*?\b(TRITON[A-Z]+_\w+)\()");
  for (const char* header :
       {"tritonserver.h", "tritonbackend.h", "tritonrepoagent.h", "tritoncache.h"}) {
    const std::string text = ReadFile(kHeaderDir + header);
    for (std::sregex_iterator match(text.begin(), text.end(), declaration), end; match != end;
         ++match) {
      functions[std::string(header) + " " + (*match)[2].str()] =
          (*match)[1] == "ISPEC" ? "entry" : "host";
    }
  }
  return functions;
}

TEST(AbiNamesTest, TheTablesAreComplete) {
  EXPECT_EQ(FunctionsOfTables().size(), 304u);
  EXPECT_EQ(ReadTable("callbacks.tsv").size(), 10u);
  EXPECT_EQ(ReadTable("enums.tsv").size(), 86u);
}

TEST(AbiNamesTest, EveryFunctionOfTheTablesIsDeclaredOnItsSide) {
  const SideByFunction declared = FunctionsOfHeaders();
  for (const auto& [function, side] : FunctionsOfTables()) {
    const auto found = declared.find(function);
    ASSERT_NE(found, declared.end()) << function << " is not declared";
    EXPECT_EQ(found->second, side) << function;
  }
}

TEST(AbiNamesTest, NoFunctionIsDeclaredThatTheTablesDoNotHave) {
  const SideByFunction tables = FunctionsOfTables();
  std::set<std::string> beyond;
  for (const auto& [function, side] : FunctionsOfHeaders()) {
    if (!tables.contains(function)) beyond.insert(function.substr(function.find(' ') + 1));
  }
  EXPECT_EQ(beyond, kAdditions);
}

TEST(AbiNamesTest, NoEnumeratorIsDeclaredThatTheTablesDoNotHave) {
  std::set<std::string> tables, declared;
  for (const std::vector<std::string>& row : ReadTable("enums.tsv")) tables.insert(row.at(3));
  const std::regex enumerator(R"((TRITON[A-Z]+_\w+) =\s+\d+,)");
  for (const char* header :
       {"tritonserver.h", "tritonbackend.h", "tritonrepoagent.h", "tritoncache.h"}) {
    const std::string text = ReadFile(kHeaderDir + header);
    for (std::sregex_iterator match(text.begin(), text.end(), enumerator), end; match != end;
         ++match) {
      declared.insert((*match)[1]);
    }
  }
  EXPECT_EQ(declared, tables);
}

TEST(AbiNamesTest, EveryDeclarationIsDocumented) {
  const std::regex declaration(
      R"(\n([^\n]*)\n(?:TRITON[A-Z]+_(?:DECLSPEC|ISPEC)|typedef)\s[^;{]*)");
  for (const char* header :
       {"tritonserver.h", "tritonbackend.h", "tritonrepoagent.h", "tritoncache.h"}) {
    const std::string text = ReadFile(kHeaderDir + header);
    for (std::sregex_iterator match(text.begin(), text.end(), declaration), end; match != end;
         ++match) {
      const std::string before = (*match)[1];
      const bool is_documented = before.starts_with("//") && !before.starts_with("// ----");
      const bool is_enum = match->str().find("typedef enum") != std::string::npos;
      EXPECT_TRUE(is_documented || is_enum) << header << ": " << match->str();
    }
  }
}

TEST(StubTest, HasEveryFunctionOfTheHostAndNoneOfAPlugin) {
  void* stub = dlopen(NEREID_STUB_PATH, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(stub, nullptr) << dlerror();
  for (const auto& [function, side] : FunctionsOfHeaders()) {
    const std::string name = function.substr(function.find(' ') + 1);
    EXPECT_EQ(dlsym(stub, name.c_str()) != nullptr, side == "host") << name;
  }
  dlclose(stub);
}

}  // namespace
