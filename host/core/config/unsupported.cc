// The fields that the schema knows and the host does not act on yet. One row a field; delete a row
// when its feature is built.
#include <array>
#include <nlohmann/json.hpp>

#include "config/validate.h"

namespace nereid::config {
namespace {

struct Row {
  const char* path;  // segments joined by '.'; "[]" after a segment: every element
  const char* feature;
};

// A field counts as used when its value is a non-empty object or array, a non-empty string, true or
// not 0.
constexpr std::array<Row, 1> kRows = {{
    {"instance_group[].secondary_devices", "secondary devices"},
}};

bool IsUsed(const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number()) return value != 0;
  if (value.is_string()) return !value.get_ref<const std::string&>().empty();
  return !value.empty();
}

void Visit(const Json& value, std::string_view rest, const std::string& key, const Row& row,
           Faults* faults) {
  if (rest.empty()) {
    if (IsUsed(value)) {
      faults->push_back(
          {"", 0, 0, key, StrCat(row.feature, " is not supported by this server yet")});
    }
    return;
  }
  std::string_view segment = rest.substr(0, rest.find('.'));
  rest.remove_prefix(std::min(rest.size(), segment.size() + 1));
  const bool each = segment.size() > 2 && segment.substr(segment.size() - 2) == "[]";
  if (each) segment.remove_suffix(2);
  const auto it = value.find(std::string(segment));
  if (it == value.end()) return;
  const std::string own = key.empty() ? std::string(segment) : StrCat(key, ".", segment);
  if (!each) return Visit(*it, rest, own, row, faults);
  for (size_t i = 0; i < it->size(); ++i) {
    Visit((*it)[i], rest, StrCat(own, "[", i, "]"), row, faults);
  }
}

}  // namespace

void RefuseUnsupported(const Json& config, Faults* faults) {
  for (const Row& row : kRows) Visit(config, row.path, "", row, faults);
}

}  // namespace nereid::config
