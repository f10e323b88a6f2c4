#include "repo_templates/tool/template.h"

#include <algorithm>

namespace nereid::repo {
namespace {

std::string Escape(const std::string& value) {
  std::string escaped;
  for (const char c : value) {
    if (c == '"' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

}  // namespace

Result<std::string> FillTemplate(std::string_view text, const TemplateValues& values,
                                 const std::string& name) {
  std::string filled;
  while (true) {
    const size_t start = text.find("${");
    filled += text.substr(0, start);
    if (start == std::string_view::npos) return filled;
    const size_t end = text.find('}', start);
    const auto line = 1 + std::count(filled.begin(), filled.end(), '\n');
    if (end == std::string_view::npos) {
      return InvalidArgError(name, ":", line, ": '${' without '}'");
    }
    const std::string key(text.substr(start + 2, end - start - 2));
    const auto value = values.find(key);
    if (value == values.end()) {
      return InvalidArgError(name, ":", line, ": no value for ${", key, "}");
    }
    filled += Escape(value->second);
    text.remove_prefix(end + 1);
  }
}

}  // namespace nereid::repo
