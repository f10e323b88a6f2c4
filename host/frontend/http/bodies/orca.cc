#include "host/frontend/http/bodies/orca.h"

#include <charconv>
#include <optional>

#include "host/frontend/http/json/json_writer.h"
#include "host/frontend/http/transport/http_request.h"
#include "nereid/status.h"

namespace nereid::http {
namespace {

constexpr std::string_view kFamily = "nv_trt_llm_kv_cache_block_metrics{";

// Returns the sum of the gauge for one block type over all models that report it.
std::optional<double> Find(std::string_view page, std::string_view kind) {
  const std::string label = StrCat("kv_cache_block_type=\"", kind, "\"");
  std::optional<double> sum;
  while (!page.empty()) {
    const size_t end = page.find('\n');
    const std::string_view line = page.substr(0, end);
    page.remove_prefix(end == std::string_view::npos ? page.size() : end + 1);
    const size_t space = line.rfind(' ');
    if (!line.starts_with(kFamily) || line.find(label) == std::string_view::npos ||
        space == std::string_view::npos) {
      continue;
    }
    double value = 0;
    const auto [at, error] =
        std::from_chars(line.data() + space + 1, line.data() + line.size(), value);
    if (error == std::errc() && at == line.data() + line.size()) sum = sum.value_or(0) + value;
  }
  return sum;
}

// An engine that has not started yet may report a negative number.
bool IsKnown(const std::optional<double>& value) {
  return value && *value >= 0 && *value < 1e15;
}

}  // namespace

OrcaFormat ParseOrcaFormat(std::string_view header) {
  if (EqualsIgnoreCase(header, "text")) return OrcaFormat::kText;
  if (EqualsIgnoreCase(header, "json")) return OrcaFormat::kJson;
  return OrcaFormat::kNone;
}

std::string OrcaHeader(OrcaFormat format, std::string_view metrics_page) {
  if (format == OrcaFormat::kNone) return "";
  const std::optional<double> max = Find(metrics_page, "max");
  const std::optional<double> used = Find(metrics_page, "used");
  const std::optional<double> tokens_per = Find(metrics_page, "tokens_per");
  if (!IsKnown(max) || !IsKnown(used) || !IsKnown(tokens_per)) return "";
  const double utilization = *max > 0 ? *used / *max : 0;
  std::string capacity;
  AppendJsonUint(capacity, static_cast<uint64_t>(*max * *tokens_per));
  constexpr std::string_view kName = "endpoint-load-metrics: ";
  if (format == OrcaFormat::kText) {
    return StrCat(kName, "TEXT named_metrics.kv_cache_utilization=", std::to_string(utilization),
                  ", named_metrics.max_token_capacity=", capacity, "\r\n");
  }
  std::string number;
  AppendJsonDouble(number, utilization);
  return StrCat(kName, "JSON {\"named_metrics\":{\"kv_cache_utilization\":", number,
                ",\"max_token_capacity\":", capacity, "}}\r\n");
}

}  // namespace nereid::http
