// Values of the same name come from a tensor or from a request parameter. A request parameter
// cannot be a list: several values are a text of integers that commas separate.
#include "backends/llm_core/adapter/retention_inputs.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/blake2b.h"

namespace nereid::llm {
namespace {

constexpr size_t kMaxParameterBytes = 16384;

Result<std::vector<int32_t>> ParseIntegers(const char* name, std::string_view text) {
  std::vector<int32_t> values;
  while (text.size() <= kMaxParameterBytes) {
    const size_t comma = std::min(text.find(','), text.size());
    std::string_view part = text.substr(0, comma);
    while (part.starts_with(' ')) part.remove_prefix(1);
    while (part.ends_with(' ')) part.remove_suffix(1);
    int32_t value = 0;
    const auto [stop, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (error != std::errc() || stop != part.data() + part.size()) {
      return InvalidArgError("request parameter '", name, "' has '", part.substr(0, 40),
                             "', expected integers separated by commas");
    }
    values.push_back(value);
    if (comma == text.size()) return values;
    text.remove_prefix(comma + 1);
  }
  return InvalidArgError("request parameter '", name, "' has ", text.size(),
                         " bytes, expected at most ", kMaxParameterBytes);
}

// The values of the tensor, or else of the parameter; nothing if both are absent or empty.
Result<std::vector<int32_t>> ReadValues(const Request& request, BatchInputs& inputs, int64_t row,
                                        const char* name) {
  NEREID_ASSIGN_OR_RETURN(const std::span<const int32_t> tensor, inputs.Row<int32_t>(name, row));
  if (!tensor.empty()) return std::vector<int32_t>(tensor.begin(), tensor.end());
  NEREID_ASSIGN_OR_RETURN(const std::optional<ParameterView> parameter,
                          request.FindParameter(name));
  if (!parameter) return std::vector<int32_t>();
  if (parameter->type == TRITONSERVER_PARAMETER_STRING)
    return ParseIntegers(name, parameter->AsString());
  if (parameter->type == TRITONSERVER_PARAMETER_INT) {
    const int64_t value = parameter->AsInt();
    if (value == static_cast<int32_t>(value)) return std::vector{static_cast<int32_t>(value)};
    return InvalidArgError("request parameter '", name, "' is ", value, ", expected 32 bits");
  }
  return InvalidArgError("request parameter '", name,
                         "': expected an integer, or a text of integers separated by commas");
}

Result<std::optional<int32_t>> ReadOne(const Request& request, BatchInputs& inputs, int64_t row,
                                       const char* name) {
  NEREID_ASSIGN_OR_RETURN(const std::vector<int32_t> values,
                          ReadValues(request, inputs, row, name));
  if (values.empty()) return std::optional<int32_t>();
  if (values.size() == 1) return std::optional(values.front());
  return InvalidArgError("'", name, "' has ", values.size(), " values, expected 1");
}

// The values of a tensor beside retention_token_range_starts; `otherwise` for all if it is absent.
Result<std::vector<int32_t>> ReadBeside(const Request& request, BatchInputs& inputs, int64_t row,
                                        const char* name, size_t num_ranges,
                                        std::optional<int32_t> otherwise) {
  NEREID_ASSIGN_OR_RETURN(std::vector<int32_t> values, ReadValues(request, inputs, row, name));
  if (values.empty() && otherwise) values.assign(num_ranges, *otherwise);
  if (values.size() == num_ranges) return values;
  return InvalidArgError("'", name, "' has ", values.size(),
                         " values and 'retention_token_range_starts' has ", num_ranges,
                         ", expected as many");
}

}  // namespace

Result<std::shared_ptr<const KvRetention>> ReadRetention(const Request& request,
                                                         BatchInputs& inputs, int64_t row) {
  NEREID_ASSIGN_OR_RETURN(const std::vector<int32_t> starts,
                          ReadValues(request, inputs, row, "retention_token_range_starts"));
  const auto beside = [&](const char* name, std::optional<int32_t> otherwise) {
    return ReadBeside(request, inputs, row, name, starts.size(), otherwise);
  };
  NEREID_ASSIGN_OR_RETURN(const std::vector<int32_t> ends,
                          beside("retention_token_range_ends", std::nullopt));
  NEREID_ASSIGN_OR_RETURN(const std::vector<int32_t> priorities,
                          beside("retention_token_range_priorities", std::nullopt));
  NEREID_ASSIGN_OR_RETURN(const std::vector<int32_t> durations,
                          beside("retention_token_range_durations_ms", -1));
  auto retention = std::make_shared<KvRetention>();
  for (size_t i = 0; i < starts.size(); ++i)
    retention->ranges.push_back({starts[i], ends[i], priorities[i], durations[i]});
  NEREID_ASSIGN_OR_RETURN(retention->decode_priority,
                          ReadOne(request, inputs, row, "retention_decode_priority"));
  NEREID_ASSIGN_OR_RETURN(const std::optional<int32_t> duration,
                          ReadOne(request, inputs, row, "retention_decode_duration_ms"));
  retention->decode_duration_ms = duration.value_or(-1);
  if (duration && !retention->decode_priority) {
    return InvalidArgError("'retention_decode_duration_ms' is ", *duration,
                           " without 'retention_decode_priority', expected both");
  }
  if (retention->ranges.empty() && !retention->decode_priority)
    return std::shared_ptr<const KvRetention>();
  return std::shared_ptr<const KvRetention>(std::move(retention));
}

Status ReadCacheSalt(BatchInputs& inputs, int64_t row, uint64_t& salt) {
  NEREID_ASSIGN_OR_RETURN(const auto text, inputs.Text("cache_salt", row));
  if (text.value_or("").empty()) return {};
  Blake2b hash;
  hash.Add(*text);
  const std::string digest = hash.HexDigest();
  (void)std::from_chars(digest.data(), digest.data() + 2 * sizeof(salt), salt, 16);
  return {};
}

}  // namespace nereid::llm
