#include "host/cli/metrics_text.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

namespace nereid::cli {
namespace {

// Takes `{name="value",...}` from the beginning of `line`. False if it is malformed.
bool TakeLabels(std::string_view& line, std::map<std::string, std::string>& labels) {
  line.remove_prefix(1);
  while (!line.empty() && line.front() != '}') {
    const size_t equals = line.find("=\"");
    if (equals == std::string_view::npos) return false;
    const std::string name(line.substr(0, equals));
    line.remove_prefix(equals + 2);
    std::string value;
    while (!line.empty() && line.front() != '"') {
      const bool is_escape = line.front() == '\\' && line.size() > 1;
      const char c = line[is_escape ? 1 : 0];
      value += is_escape && c == 'n' ? '\n' : c;
      line.remove_prefix(is_escape ? 2 : 1);
    }
    if (line.empty()) return false;
    line.remove_prefix(1);
    labels[name] = std::move(value);
    if (!line.empty() && line.front() == ',') line.remove_prefix(1);
  }
  if (line.empty()) return false;
  line.remove_prefix(1);
  return true;
}

std::optional<MetricSample> ParseSample(std::string_view line) {
  MetricSample sample;
  const size_t name_end = line.find_first_of("{ ");
  if (name_end == 0 || name_end == std::string_view::npos || line.front() == '#') return {};
  sample.name = line.substr(0, name_end);
  line.remove_prefix(name_end);
  if (line.front() == '{' && !TakeLabels(line, sample.labels)) return {};
  const std::string value(line);
  char* end = nullptr;
  sample.value = std::strtod(value.c_str(), &end);
  if (end == value.c_str()) return {};
  return sample;
}

}  // namespace

std::string MetricSample::Label(const std::string& label) const {
  const auto found = labels.find(label);
  return found == labels.end() ? std::string() : found->second;
}

std::vector<MetricSample> ParseMetrics(std::string_view text) {
  std::vector<MetricSample> samples;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    if (std::optional<MetricSample> sample = ParseSample(text.substr(0, end))) {
      samples.push_back(std::move(*sample));
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return samples;
}

}  // namespace nereid::cli
