// See trace_settings.h. Values are strings, as in the protocol.
#include "host/frontend/tracing/trace_settings.h"

#include <charconv>

namespace nereid {
namespace {

Status Unparsable(const std::string& key, const std::string& text) {
  return InvalidArgError("Unable to parse '", key, "', got: ", text);
}

template <typename Int>
Status Parse(const std::string& key, const std::vector<std::string>& values, Int min, Int& target) {
  if (values.size() != 1) {
    return InvalidArgError("expect only 1 value for '", key, "'");
  }
  const std::string& text = values[0];
  const char* const end = text.data() + text.size();
  Int value{};
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc::result_out_of_range) {
    return InvalidArgError("Unable to parse '", key, "', value is out of range [ ", min, ", ",
                           std::numeric_limits<Int>::max(), " ], got: ", text);
  }
  if (error != std::errc() || at != end) return Unparsable(key, text);
  if (value < min) {
    return InvalidArgError("Unable to parse '", key, "'. Expecting value >= ", min,
                           ", got:", value);
  }
  target = value;
  return Status::Ok();
}

Result<uint32_t> ParseLevels(const std::vector<std::string>& names) {
  uint32_t level = 0;
  for (const std::string& name : names) {
    NEREID_ASSIGN_OR_RETURN(const uint32_t bits, ParseTraceLevel(name));
    if (bits == 0 && names.size() > 1) {
      return InvalidArgError("Expect only one trace level 'OFF' is specified");
    }
    level |= bits;
  }
  return level;
}

// Sets or resets one setting of the server, or of a model if `model_value` is not null.
template <typename T, typename Read>
Status Set(bool has_value, T& server, T initial, std::optional<T>* model_value, const Read& read) {
  if (!has_value) {
    if (model_value != nullptr) {
      model_value->reset();
    } else {
      server = initial;
    }
    return Status::Ok();
  }
  T value{};
  NEREID_RETURN_IF_ERROR(read(value));
  if (model_value != nullptr) {
    *model_value = value;
  } else {
    server = value;
  }
  return Status::Ok();
}

}  // namespace

Result<uint32_t> ParseTraceLevel(std::string_view name) {
  if (name == "OFF") return 0u;
  if (name == "TIMESTAMPS") return static_cast<uint32_t>(TRITONSERVER_TRACE_LEVEL_TIMESTAMPS);
  if (name == "TENSORS") return static_cast<uint32_t>(TRITONSERVER_TRACE_LEVEL_TENSORS);
  return InvalidArgError("unknown trace level '", name, "': expected OFF, TIMESTAMPS or TENSORS");
}

std::vector<std::string> TraceLevelNames(uint32_t level) {
  std::vector<std::string> names;
  if ((level & TRITONSERVER_TRACE_LEVEL_TIMESTAMPS) != 0) names.push_back("TIMESTAMPS");
  if ((level & TRITONSERVER_TRACE_LEVEL_TENSORS) != 0) names.push_back("TENSORS");
  if (names.empty()) names.push_back("OFF");
  return names;
}

TraceValues TraceSettings::ValuesOf(const ModelSettings* model_settings) const {
  TraceValues values = server_;
  if (model_settings == nullptr) return values;
  values.level = model_settings->level.value_or(values.level);
  values.rate = model_settings->rate.value_or(values.rate);
  values.count = model_settings->count.value_or(values.count);
  values.log_frequency = model_settings->log_frequency.value_or(values.log_frequency);
  return values;
}

TraceValues TraceSettings::values(const std::string& model) const {
  const std::lock_guard lock(mutex_);
  const auto model_settings = models_.find(model);
  return ValuesOf(model_settings == models_.end() ? nullptr : &model_settings->second);
}

Status TraceSettings::ApplyOne(const std::string& key,
                               const std::optional<std::vector<std::string>>& value,
                               TraceValues& server, ModelSettings* model_settings) const {
  const bool is_set = value.has_value();
  if (key == "trace_level") {
    return Set(is_set, server.level, initial_.level,
               model_settings ? &model_settings->level : nullptr, [&](uint32_t& level) -> Status {
                 NEREID_ASSIGN_OR_RETURN(level, ParseLevels(*value));
                 return Status::Ok();
               });
  }
  if (key == "trace_rate") {
    return Set(is_set, server.rate, initial_.rate, model_settings ? &model_settings->rate : nullptr,
               [&](uint64_t& rate) { return Parse<uint64_t>(key, *value, 1, rate); });
  }
  if (key == "trace_count") {
    return Set(is_set, server.count, initial_.count,
               model_settings ? &model_settings->count : nullptr,
               [&](int64_t& count) { return Parse<int64_t>(key, *value, -1, count); });
  }
  if (key == "log_frequency") {
    return Set(is_set, server.log_frequency, initial_.log_frequency,
               model_settings ? &model_settings->log_frequency : nullptr,
               [&](uint64_t& frequency) { return Parse<uint64_t>(key, *value, 0, frequency); });
  }
  if (key == "trace_file") {
    return UnsupportedError("trace file location can not be updated through network protocol");
  }
  if (key == "trace_mode") {
    return UnsupportedError("trace mode can not be updated through network protocol");
  }
  return InvalidArgError("unknown trace setting '", key, "'");
}

Status TraceSettings::Apply(const std::string& model, const TraceChange& change) {
  const std::lock_guard lock(mutex_);
  TraceValues server = server_;
  const auto found = models_.find(model);
  ModelSettings model_settings = found == models_.end() ? ModelSettings() : found->second;
  for (const auto& [key, value] : change) {
    NEREID_RETURN_IF_ERROR(ApplyOne(key, value, server, model.empty() ? nullptr : &model_settings));
  }
  server_ = server;
  if (model.empty()) count_at_change_ = server_.count;
  model_settings.count_at_change = model_settings.count.value_or(-1);
  if (!model.empty() && !change.empty()) models_[model] = model_settings;
  Refresh();
  return Status::Ok();
}

void TraceSettings::Refresh() {
  bool is_on = server_.level != 0;
  for (const auto& [name, model_settings] : models_)
    is_on = is_on || model_settings.level.value_or(0) != 0;
  is_on_.store(is_on, std::memory_order_relaxed);
}

std::optional<TraceSample> TraceSettings::Sample(const std::string& model, bool is_forced) {
  const std::lock_guard lock(mutex_);
  const auto found = models_.find(model);
  ModelSettings* const model_settings = found == models_.end() ? nullptr : &found->second;
  const TraceValues values = ValuesOf(model_settings);
  if (values.level == 0 || values.count == 0) return std::nullopt;
  uint64_t& num_seen =
      model_settings != nullptr && model_settings->rate ? model_settings->num_seen : num_seen_;
  if (!is_forced && ++num_seen % values.rate != 0) return std::nullopt;
  TraceFileRule rule{.traces_per_file = values.log_frequency};
  if (values.count > 0) {
    const bool is_own = model_settings != nullptr && model_settings->count.has_value();
    --(is_own ? *model_settings->count : server_.count);
    // As in Triton if every request is traced.
    if (values.log_frequency == 0 && values.rate == 1) {
      rule = {.traces_per_file = static_cast<uint64_t>(is_own ? model_settings->count_at_change
                                                              : count_at_change_),
              .merges_partial_file = true};
    }
  }
  return TraceSample{values.level, rule};
}

}  // namespace nereid
