#include "repo_templates/tool/check.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/file_content.h"

namespace nereid::repo {
namespace {

core::config::ConfigError Locate(const core::config::ConfigSource& folder,
                                 core::config::ConfigError error) {
  core::config::ConfigErrors errors{std::move(error)};
  core::config::LocateErrors(folder, &errors);
  if (errors.front().file.empty())
    errors.front().file = folder.path;  // the model has no config.pbtxt
  return std::move(errors.front());
}

std::string LineOf(const core::config::ConfigError& error) {
  Result<std::string> text = ReadFile(error.file, kMaxTextFileBytes);
  if (!text.ok()) return {};
  std::istringstream file(*std::move(text));
  std::string line;
  for (int i = 0; i < error.line && std::getline(file, line); ++i) {
  }
  return line;
}

// Whether `error`, located at the key of a map's entry, points to `key: "<entry>"`.
bool IsAtKey(const core::config::ConfigError& error, const std::string& entry, bool& is_key) {
  const std::string line = LineOf(error);
  const auto column = static_cast<size_t>(error.column);
  is_key = column > 0 && column <= line.size() && line.compare(column - 1, 3, "key") == 0;
  if (!is_key) return false;
  const size_t value = line.find_first_not_of(" \t:", column + 2);
  return value != std::string::npos &&
         (line.compare(value, entry.size() + 2, "\"" + entry + "\"") == 0 ||
          line.compare(value, entry.size() + 2, "'" + entry + "'") == 0);
}

}  // namespace

std::string ToText(const Findings& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    text += StrCat(finding.is_warning ? "warning: " : "error: ", finding.error.ToString(), "\n");
  }
  return text;
}

std::string ToJson(const Findings& findings) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"severity", finding.is_warning ? "warning" : "error"},
                    {"file", finding.error.file},
                    {"line", finding.error.line},
                    {"column", finding.error.column},
                    {"key", finding.error.key},
                    {"message", finding.error.message}});
  }
  return list.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string Summarize(size_t num_models, const Findings& findings) {
  const auto count_of = [](size_t count, const char* noun) {
    return StrCat(count, " ", noun, count == 1 ? "" : "s");
  };
  std::string text = count_of(num_models, "model");
  if (findings.empty()) return text + ", no faults";
  const auto num_warnings = static_cast<size_t>(
      std::count_if(findings.begin(), findings.end(), [](auto& one) { return one.is_warning; }));
  if (const size_t num_errors = findings.size() - num_warnings; num_errors > 0) {
    text += ", " + count_of(num_errors, "error");
  }
  if (num_warnings > 0) text += ", " + count_of(num_warnings, "warning");
  return text;
}

bool HasError(const Findings& findings) {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& finding) { return !finding.is_warning; });
}

Finding FindingAt(const core::config::ConfigSource& folder, const std::string& key,
                  const std::string& message) {
  return {Locate(folder, {"", 0, 0, key, message}), false};
}

Finding FindingAtMapEntry(const core::config::ConfigSource& folder, const std::string& map,
                          const std::string& entry, const std::string& message) {
  const std::string key = StrCat(map, "[\"", entry, "\"]");
  bool is_key = true;
  for (int i = 0; is_key; ++i) {
    core::config::ConfigError error =
        Locate(folder, {"", 0, 0, StrCat(map, "[", i, "].key"), message});
    error.key = key;
    if (IsAtKey(error, entry, is_key)) return {std::move(error), false};
  }
  return {Locate(folder, {"", 0, 0, key, message}), false};
}

Finding AsWarning(Finding finding) {
  finding.is_warning = true;
  return finding;
}

}  // namespace nereid::repo
