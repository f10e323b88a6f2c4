// Open Request Cost Aggregation: how full the engine's KV cache is, as a header of an answer whose
// request asks for it. Load balancers route by it. Pure. [any thread]
#pragma once

#include <string>
#include <string_view>

namespace nereid::http {

enum class OrcaFormat { kNone, kText, kJson };

// Of the request's header endpoint-load-metrics-format; kNone for what is unknown.
OrcaFormat ParseOrcaFormat(std::string_view header);

// The whole header line with its CR LF, made from the page of metrics; empty when no model on it
// tells of its blocks.
std::string OrcaHeader(OrcaFormat format, std::string_view metrics_page);

}  // namespace nereid::http
