#include "host/option_table.h"

#include <cctype>

#include "host/option_values.h"

namespace nereid {
namespace {

Status SetMode(TraceOptions& trace, const std::string& mode) {
  constexpr const char* kNames[] = {"triton", "opentelemetry"};
  constexpr TraceMode kModes[] = {TraceMode::kTriton, TraceMode::kOpenTelemetry};
  NEREID_ASSIGN_OR_RETURN(const size_t choice, ParseChoice(mode, kNames));
  trace.mode = kModes[choice];
  return Status::Ok();
}

Status SetUnsigned(const std::string& text, int64_t min, auto& target) {
  NEREID_ASSIGN_OR_RETURN(const int64_t value, ParseIntValue(text, min));
  target = static_cast<std::remove_reference_t<decltype(target)>>(value);
  return Status::Ok();
}

// Flags also accept deprecated level names, ignoring case.
std::string LevelOfFlag(std::string level) {
  for (char& letter : level)
    letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  if (level == "FALSE") return "OFF";
  for (const char* older : {"TRUE", "ON", "MIN", "MAX"}) {
    if (level == older) return "TIMESTAMPS";
  }
  return level;
}

Status SetCommon(TraceOptions& trace, const std::string& key, const std::string& value) {
  if (key == "mode") return SetMode(trace, value);
  if (key == "rate") return SetUnsigned(value, 1, trace.values.rate);
  if (key == "count") return SetUnsigned(value, -1, trace.values.count);
  if (key == "level") {
    NEREID_ASSIGN_OR_RETURN(const uint32_t level, ParseTraceLevel(LevelOfFlag(value)));
    trace.values.level = level == 0 ? 0 : trace.values.level | level;
    return Status::Ok();
  }
  return InvalidArgError("unknown setting '", key, "': expected mode, level, rate or count");
}

Status SetTriton(TraceOptions& trace, const std::string& key, const std::string& value) {
  if (key == "log-frequency") return SetUnsigned(value, 0, trace.values.log_frequency);
  if (key != "file") {
    return InvalidArgError("unknown setting 'triton,", key, "': expected file or log-frequency");
  }
  trace.file = value;
  return Status::Ok();
}

// Batch settings of the span exporter with their environment variables.
struct BatchSetting {
  const char* key;
  const char* variable;
  int64_t (*get)(const OtlpOptions& otlp);
  void (*set)(OtlpOptions& otlp, int64_t value);
};
constexpr BatchSetting kBatchSettings[] = {
    {"bsp_max_queue_size", "OTEL_BSP_MAX_QUEUE_SIZE",
     [](const OtlpOptions& otlp) { return static_cast<int64_t>(otlp.max_queue_size); },
     [](OtlpOptions& otlp, int64_t value) { otlp.max_queue_size = static_cast<size_t>(value); }},
    {"bsp_schedule_delay", "OTEL_BSP_SCHEDULE_DELAY",
     [](const OtlpOptions& otlp) { return otlp.schedule_delay_ms; },
     [](OtlpOptions& otlp, int64_t value) { otlp.schedule_delay_ms = value; }},
    {"bsp_max_export_batch_size", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
     [](const OtlpOptions& otlp) { return static_cast<int64_t>(otlp.max_export_batch_size); },
     [](OtlpOptions& otlp, int64_t value) {
       otlp.max_export_batch_size = static_cast<size_t>(value);
     }},
};

Status SetBatch(OtlpOptions& otlp, const BatchSetting& setting, const std::string& value) {
  NEREID_ASSIGN_OR_RETURN(const int64_t number, ParseIntValue(value, 1));
  setting.set(otlp, number);
  otlp.reported_settings[setting.key] = {std::to_string(number)};
  return Status::Ok();
}

Status SetUrl(OtlpOptions& otlp, const std::string& url) {
  otlp.url = url;
  return CheckCollectorUrl(url);
}

Status SetOpenTelemetry(OtlpOptions& otlp, const std::string& key, const std::string& value) {
  for (const BatchSetting& setting : kBatchSettings) {
    if (key == setting.key) return SetBatch(otlp, setting, value);
  }
  if (key == "resource") {
    otlp.reported_settings[key].push_back(value);
    NEREID_ASSIGN_OR_RETURN(const auto attribute, SplitValue(value, '='));
    otlp.resource[attribute.first] = attribute.second;
    return Status::Ok();
  }
  if (key != "url") {
    return InvalidArgError("unknown setting 'opentelemetry,", key,
                           "': expected url, resource, bsp_max_queue_size, bsp_schedule_delay or "
                           "bsp_max_export_batch_size");
  }
  otlp.reported_settings[key] = {value};
  return SetUrl(otlp, value);
}

constexpr char kTracesEndpoint[] = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
constexpr char kEndpoint[] = "OTEL_EXPORTER_OTLP_ENDPOINT";

// Collector URL from OpenTelemetry's environment variables; both empty if none is set.
struct NamedUrl {
  const char* variable = "";
  std::string url;
};

NamedUrl UrlOfEnvironment() {
  std::string url = EnvironmentValue(kTracesEndpoint);
  if (!url.empty()) return {kTracesEndpoint, url};
  url = EnvironmentValue(kEndpoint);
  if (url.empty()) return {};
  if (url.back() != '/') url += '/';
  return {kEndpoint, url + "v1/traces"};
}

}  // namespace

Status ApplyTraceConfig(Options& options, const std::string& text) {
  NEREID_ASSIGN_OR_RETURN(const NamedSetting setting, ParseNamedSetting(text));
  TraceOptions& trace = options.trace;
  if (setting.name.empty()) return SetCommon(trace, setting.key, setting.value);
  if (setting.name == "triton") return SetTriton(trace, setting.key, setting.value);
  if (setting.name == "opentelemetry") {
    return SetOpenTelemetry(trace.otlp, setting.key, setting.value);
  }
  return InvalidArgError("expected mode triton or opentelemetry, got '", setting.name, "'");
}

Status ApplyTraceEnvironment(TraceOptions& trace) {
  if (trace.mode != TraceMode::kOpenTelemetry) return Status::Ok();
  OtlpOptions& otlp = trace.otlp;
  for (const BatchSetting& setting : kBatchSettings) {
    if (otlp.reported_settings.contains(setting.key)) continue;  // set by a flag
    const std::string value = EnvironmentValue(setting.variable);
    NEREID_RETURN_IF_ERROR(
        SetBatch(otlp, setting, value.empty() ? std::to_string(setting.get(otlp)) : value)
            .WithContext(StrCat("Bad option: \"", setting.variable, "\"")));
  }
  for (const char* variable :
       {"OTEL_EXPORTER_OTLP_CERTIFICATE", "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE"}) {
    if (std::string path = EnvironmentValue(variable); !path.empty())
      otlp.roots_path = std::move(path);
  }
  const NamedUrl named = UrlOfEnvironment();
  if (named.url.empty() || otlp.reported_settings.contains("url")) return Status::Ok();
  return SetUrl(otlp, named.url).WithContext(named.variable);
}

Status CheckTraceOptions(const TraceOptions& trace) {
  if (trace.mode != TraceMode::kTriton || trace.values.level == 0 || !trace.file.empty()) {
    return Status::Ok();
  }
  return InvalidArgError(
      "--trace-config: a trace level is set, but no file to write to; add "
      "triton,file=<path>");
}

}  // namespace nereid
