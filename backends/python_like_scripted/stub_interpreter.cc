#include "backends/python_like_scripted/stub_interpreter.h"

#include <cstdlib>
#include <regex>
#include <sstream>
#include <system_error>

#include "base/file_content.h"

namespace nereid::python {
namespace {

namespace fs = std::filesystem;

// Finds the program as a shell does; empty if it does not exist.
fs::path FindProgram(const std::string& program) {
  if (program.find('/') != std::string::npos) return program;
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  std::error_code error;
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (fs::path path = fs::path(folder) / program; fs::exists(path, error)) return path;
  }
  return {};
}

}  // namespace

std::string StubPythonVersion(const fs::path& stub) {
  constexpr size_t kMaxProgramBytes = size_t{256} << 20;
  const Result<std::string> content = ReadFile(stub.string(), kMaxProgramBytes);
  if (!content.ok()) return {};
  const std::string& bytes = *content;
  const std::string name = "libpython";
  for (size_t at = bytes.find(name); at != std::string::npos; at = bytes.find(name, at + 1)) {
    const size_t begin = at + name.size();
    const size_t end = bytes.find_first_not_of("0123456789.", begin);
    if (end == std::string::npos || bytes.compare(end - 1, 3, ".so") != 0) continue;
    std::string version = bytes.substr(begin, end - 1 - begin);
    if (version.find('.') != std::string::npos) return version;
  }
  return {};
}

std::string VersionInName(const std::string& interpreter) {
  static const std::regex kName("python([0-9]+\\.[0-9]+)");
  std::error_code error;
  const std::string name = fs::canonical(FindProgram(interpreter), error).filename().string();
  std::smatch match;
  return !error && std::regex_match(name, match, kName) ? match[1].str() : "";
}

std::string InterpreterForVersion(const std::string& version, const std::string& interpreter,
                                  bool is_configured) {
  const std::string named = VersionInName(interpreter);
  if (named == version) return interpreter;
  std::error_code error;
  if (named.empty() && is_configured && fs::exists(FindProgram(interpreter), error))
    return interpreter;
  return "python" + version;
}

}  // namespace nereid::python
