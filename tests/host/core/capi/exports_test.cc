// Compares the symbol table of libtritonserver.so with the C headers: it must export every host
// function, and besides TRITON* only the functions in leased_output.h, posted_input_buffer.h and
// response_room.h.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

#include "tests/support/source_path.h"
#include "triton/core/tritoncache.h"
#include "triton/core/tritonrepoagent.h"
#include "triton/core/tritonserver.h"

namespace {

const std::set<std::string> kExtensions = {"NEREID_InputMemoryDelete",
                                           "NEREID_InputMemoryIsFor",
                                           "NEREID_OutputLend",
                                           "NEREID_ServerOfferInput",
                                           "NEREID_ResponseAllocatorSetAdoptFunction",
                                           "NEREID_ResponseFactoryHasRoom",
                                           "NEREID_ResponseFactorySetSenderWaits",
                                           "NEREID_InferenceRequestSetRoom",
                                           "NEREID_InferenceRequestSetRoomSource",
                                           "NEREID_ForbidWaitingOnThisThread"};

std::set<std::string> DeclaredIn(const std::string& header) {
  std::set<std::string> names;
  std::ifstream file(nereid::SourcePath("backend_api/" + header));
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const std::regex declaration(
      R"(\n(TRITON[A-Z]+)_DECLSPEC[^();]*?\b((TRITON[A-Z]+|NEREID)_[A-Za-z0-9]+)\()");
  for (std::sregex_iterator it(text.begin(), text.end(), declaration), end; it != end; ++it) {
    names.insert((*it)[2]);
  }
  return names;
}

std::set<std::string> DeclaredForHosts() {
  std::set<std::string> names = DeclaredIn("include/nereid/ext/leased_output.h");
  names.merge(DeclaredIn("include/nereid/ext/posted_input_buffer.h"));
  names.merge(DeclaredIn("include/nereid/ext/response_room.h"));
  for (const char* header : {"tritonserver", "tritonbackend", "tritonrepoagent", "tritoncache"}) {
    names.merge(DeclaredIn(std::string("include/triton/core/") + header + ".h"));
  }
  return names;
}

std::set<std::string> Exported() {
  std::set<std::string> names;
  FILE* nm = popen("nm -D --defined-only " NEREID_CORE_LIBRARY, "r");
  char line[1024];
  while (nm != nullptr && fgets(line, sizeof(line), nm) != nullptr) {
    const std::string text(line, strcspn(line, "\n"));
    names.insert(text.substr(text.rfind(' ') + 1));
  }
  if (nm != nullptr) pclose(nm);
  return names;
}

TEST(ExportsTest, ExportsEveryFunctionOfTheHeaders) {
  const auto declared = DeclaredForHosts();
  ASSERT_GT(declared.size(), 270u);
  const auto exported = Exported();
  for (const std::string& name : declared) EXPECT_EQ(exported.count(name), 1u) << name;
}

TEST(ExportsTest, ExportsOnlyTheApi) {
  const auto exported = Exported();
  ASSERT_FALSE(exported.empty());
  for (const std::string& name : exported) {
    EXPECT_TRUE(name.rfind("TRITON", 0) == 0 || kExtensions.count(name) == 1) << name;
  }
}

TEST(ExportsTest, SonameIsLibtritonserver) {
  void* handle = dlopen("libtritonserver.so", RTLD_NOW | RTLD_NOLOAD);
  EXPECT_NE(handle, nullptr) << dlerror();
}

}  // namespace
