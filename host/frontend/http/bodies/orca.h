// Open Request Cost Aggregation (ORCA): reports the utilization of the engine's KV cache in a
// response header if the request asks for it. Load balancers route by it. Pure. [any thread]
#pragma once

#include <string>
#include <string_view>

namespace nereid::http {

enum class OrcaFormat { kNone, kText, kJson };

// Parses the request header endpoint-load-metrics-format. Returns kNone for unknown values.
OrcaFormat ParseOrcaFormat(std::string_view header);

// Returns the whole header line with its CR LF, computed from the metrics page. Returns an empty
// string if no model on the page reports its KV cache blocks.
std::string OrcaHeader(OrcaFormat format, std::string_view metrics_page);

}  // namespace nereid::http
