// Values come as texts, as the protocol has them.
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

// One setting of the server, or of a model when `own` is given.
template <typename T, typename Read>
Status Set(bool has_value, T& server, T initial, std::optional<T>* own, const Read& read) {
  if (!has_value) {
    if (own != nullptr) {
      own->reset();
    } else {
      server = initial;
    }
    return Status::Ok();
  }
  T value{};
  NEREID_RETURN_IF_ERROR(read(value));
  if (own != nullptr) {
    *own = value;
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

TraceValues TraceSettings::ValuesOf(const Own* own) const {
  TraceValues values = server_;
  if (own == nullptr) return values;
  values.level = own->level.value_or(values.level);
  values.rate = own->rate.value_or(values.rate);
  values.count = own->count.value_or(values.count);
  values.log_frequency = own->log_frequency.value_or(values.log_frequency);
  return values;
}

TraceValues TraceSettings::values(const std::string& model) const {
  const std::lock_guard lock(mutex_);
  const auto own = models_.find(model);
  return ValuesOf(own == models_.end() ? nullptr : &own->second);
}

Status TraceSettings::ApplyOne(const std::string& key,
                               const std::optional<std::vector<std::string>>& value,
                               TraceValues& server, Own* own) const {
  const bool is_set = value.has_value();
  if (key == "trace_level") {
    return Set(is_set, server.level, initial_.level, own ? &own->level : nullptr,
               [&](uint32_t& level) -> Status {
                 NEREID_ASSIGN_OR_RETURN(level, ParseLevels(*value));
                 return Status::Ok();
               });
  }
  if (key == "trace_rate") {
    return Set(is_set, server.rate, initial_.rate, own ? &own->rate : nullptr,
               [&](uint64_t& rate) { return Parse<uint64_t>(key, *value, 1, rate); });
  }
  if (key == "trace_count") {
    return Set(is_set, server.count, initial_.count, own ? &own->count : nullptr,
               [&](int64_t& count) { return Parse<int64_t>(key, *value, -1, count); });
  }
  if (key == "log_frequency") {
    return Set(is_set, server.log_frequency, initial_.log_frequency,
               own ? &own->log_frequency : nullptr,
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
  Own own = found == models_.end() ? Own() : found->second;
  for (const auto& [key, value] : change) {
    NEREID_RETURN_IF_ERROR(ApplyOne(key, value, server, model.empty() ? nullptr : &own));
  }
  server_ = server;
  if (model.empty()) counted_ = server_.count;
  own.counted = own.count.value_or(-1);
  if (!model.empty() && !change.empty()) models_[model] = own;
  Refresh();
  return Status::Ok();
}

void TraceSettings::Refresh() {
  bool is_on = server_.level != 0;
  for (const auto& [name, own] : models_) is_on = is_on || own.level.value_or(0) != 0;
  is_on_.store(is_on, std::memory_order_relaxed);
}

std::optional<TraceSample> TraceSettings::Sample(const std::string& model, bool is_forced) {
  const std::lock_guard lock(mutex_);
  const auto found = models_.find(model);
  Own* const own = found == models_.end() ? nullptr : &found->second;
  const TraceValues values = ValuesOf(own);
  if (values.level == 0 || values.count == 0) return std::nullopt;
  uint64_t& num_seen = own != nullptr && own->rate ? own->num_seen : num_seen_;
  if (!is_forced && ++num_seen % values.rate != 0) return std::nullopt;
  TraceFileRule rule{.traces_per_file = values.log_frequency};
  if (values.count > 0) {
    const bool is_own = own != nullptr && own->count.has_value();
    --(is_own ? *own->count : server_.count);
    // As Triton has it, where every request is traced.
    if (values.log_frequency == 0 && values.rate == 1) {
      rule = {.traces_per_file = static_cast<uint64_t>(is_own ? own->counted : counted_),
              .is_whole_or_none = true};
    }
  }
  return TraceSample{values.level, rule};
}

}  // namespace nereid
