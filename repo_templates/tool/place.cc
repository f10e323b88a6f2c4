#include "repo_templates/tool/place.h"

#include <fstream>

namespace nereid::repo {
namespace {

config::Fault Locate(const config::ModelFolder& folder, config::Fault fault) {
  config::Faults faults{std::move(fault)};
  config::LocateFaults(folder, &faults);
  if (faults.front().file.empty()) faults.front().file = folder.path;  // there is no configuration
  return std::move(faults.front());
}

std::string LineOf(const config::Fault& fault) {
  std::ifstream file(fault.file);
  std::string line;
  for (int i = 0; i < fault.line && std::getline(file, line); ++i) {
  }
  return line;
}

// Whether `fault`, placed at the key of a map's entry, stands before `key: "<entry>"`.
bool IsAtKey(const config::Fault& fault, const std::string& entry, bool& is_key) {
  const std::string line = LineOf(fault);
  const auto column = static_cast<size_t>(fault.column);
  is_key = column > 0 && column <= line.size() && line.compare(column - 1, 3, "key") == 0;
  if (!is_key) return false;
  const size_t value = line.find_first_not_of(" \t:", column + 2);
  return value != std::string::npos &&
         (line.compare(value, entry.size() + 2, "\"" + entry + "\"") == 0 ||
          line.compare(value, entry.size() + 2, "'" + entry + "'") == 0);
}

}  // namespace

Finding At(const config::ModelFolder& folder, const std::string& key, const std::string& message) {
  return {Locate(folder, {"", 0, 0, key, message}), false};
}

Finding AtEntry(const config::ModelFolder& folder, const std::string& map, const std::string& entry,
                const std::string& message) {
  const std::string key = StrCat(map, "[\"", entry, "\"]");
  bool is_key = true;
  for (int i = 0; is_key; ++i) {
    config::Fault fault = Locate(folder, {"", 0, 0, StrCat(map, "[", i, "].key"), message});
    fault.key = key;
    if (IsAtKey(fault, entry, is_key)) return {std::move(fault), false};
  }
  return {Locate(folder, {"", 0, 0, key, message}), false};
}

Finding Warning(Finding finding) {
  finding.is_warning = true;
  return finding;
}

}  // namespace nereid::repo
