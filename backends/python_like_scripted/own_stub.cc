#include "backends/python_like_scripted/own_stub.h"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>
#include <system_error>

namespace nereid::scripted {
namespace {

namespace fs = std::filesystem;

// As a shell finds it; empty when there is no such program.
fs::path PlaceOf(const std::string& program) {
  if (program.find('/') != std::string::npos) return program;
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  std::error_code error;
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (fs::path place = fs::path(folder) / program; fs::exists(place, error)) return place;
  }
  return {};
}

}  // namespace

std::string PythonVersionOf(const fs::path& stub) {
  std::ifstream file(stub, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
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

std::string VersionNamedBy(const std::string& interpreter) {
  static const std::regex kName("python([0-9]+\\.[0-9]+)");
  std::error_code error;
  const std::string name = fs::canonical(PlaceOf(interpreter), error).filename().string();
  std::smatch match;
  return !error && std::regex_match(name, match, kName) ? match[1].str() : "";
}

std::string InterpreterOf(const std::string& version, const std::string& interpreter,
                          bool is_chosen) {
  const std::string named = VersionNamedBy(interpreter);
  if (named == version) return interpreter;
  std::error_code error;
  if (named.empty() && is_chosen && fs::exists(PlaceOf(interpreter), error)) return interpreter;
  return "python" + version;
}

}  // namespace nereid::scripted
