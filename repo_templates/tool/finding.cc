#include "repo_templates/tool/finding.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace nereid::repo {

std::string ToText(const Findings& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    text += StrCat(finding.is_warning ? "warning: " : "error: ", finding.fault.ToString(), "\n");
  }
  return text;
}

std::string ToJson(const Findings& findings) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"severity", finding.is_warning ? "warning" : "error"},
                    {"file", finding.fault.file},
                    {"line", finding.fault.line},
                    {"column", finding.fault.column},
                    {"key", finding.fault.key},
                    {"message", finding.fault.message}});
  }
  return list.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

bool HasError(const Findings& findings) {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& finding) { return !finding.is_warning; });
}

}  // namespace nereid::repo
