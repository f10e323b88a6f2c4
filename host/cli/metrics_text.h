// Reads metrics in Prometheus' text format, as a server publishes them. [any thread]
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace nereid::cli {

struct MetricSample {
  std::string name;
  std::map<std::string, std::string> labels;
  double value = 0;

  // Empty if there is no such label.
  std::string Label(const std::string& label) const;
};

// Comments, and lines that are no samples, are skipped.
std::vector<MetricSample> ParseMetrics(std::string_view text);

}  // namespace nereid::cli
