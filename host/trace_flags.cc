#include "host/trace_flags.h"

#include "host/option_values.h"

namespace nereid {
namespace {

Status SetMode(TraceOptions& trace, const std::string& mode) {
  if (mode == "triton") {
    trace.mode = TraceMode::kTriton;
  } else if (mode == "opentelemetry") {
    trace.mode = TraceMode::kOpenTelemetry;
  } else {
    return InvalidArgError("expected mode triton or opentelemetry, got '", mode, "'");
  }
  return Status::Ok();
}

Status SetUnsigned(const std::string& text, int64_t min, auto& target) {
  NEREID_ASSIGN_OR_RETURN(const int64_t value, ParseIntValue(text, min));
  target = static_cast<std::remove_reference_t<decltype(target)>>(value);
  return Status::Ok();
}

Status SetCommon(TraceOptions& trace, const std::string& key, const std::string& value) {
  if (key == "mode") return SetMode(trace, value);
  if (key == "rate") return SetUnsigned(value, 1, trace.values.rate);
  if (key == "count") return SetUnsigned(value, -1, trace.values.count);
  if (key == "level") {
    NEREID_ASSIGN_OR_RETURN(const uint32_t level, ParseTraceLevel(value));
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

Status SetOpenTelemetry(OtlpOptions& otlp, const std::string& key, const std::string& value) {
  if (key == "bsp_max_queue_size") return SetUnsigned(value, 1, otlp.max_queue_size);
  if (key == "bsp_schedule_delay") return SetUnsigned(value, 1, otlp.schedule_delay_ms);
  if (key == "bsp_max_export_batch_size") return SetUnsigned(value, 1, otlp.max_export_batch_size);
  if (key == "resource") {
    NEREID_ASSIGN_OR_RETURN(const auto attribute, SplitValue(value, '='));
    otlp.resource[attribute.first] = attribute.second;
    return Status::Ok();
  }
  if (key != "url") {
    return InvalidArgError("unknown setting 'opentelemetry,", key,
                           "': expected url, resource, bsp_max_queue_size, bsp_schedule_delay or "
                           "bsp_max_export_batch_size");
  }
  otlp.url = value;
  return ParseHttpUrl(value).status();
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

Status CheckTraceOptions(const TraceOptions& trace) {
  if (trace.mode != TraceMode::kTriton || trace.values.level == 0 || !trace.file.empty()) {
    return Status::Ok();
  }
  return InvalidArgError(
      "--trace-config: a trace level is set, but there is no file to write to: give "
      "triton,file=<path>");
}

}  // namespace nereid
