// Options of the SageMaker and Vertex AI ports: their flags, and the environment variables that the
// platforms set in a container.
#include "host/option_table.h"

#include "host/option_values.h"

namespace nereid {
namespace {

Status CheckSafePort(const PortRange& safe, const char* flag, bool is_open, int port) {
  if (!is_open || (safe.first <= port && port <= safe.last)) return Status::Ok();
  return InvalidArgError(flag, ": expected a port of --sagemaker-safe-port-range, ", safe.first,
                         " to ", safe.last, ", got ", port);
}

}  // namespace

Status ApplyCloudEnvironment(Options& options) {
  options.sagemaker.port = options.vertex_ai.port = 8080;
  options.sagemaker_routes.default_model = EnvironmentValue("SAGEMAKER_TRITON_DEFAULT_MODEL_NAME");
  const std::string inference = EnvironmentValue("SAGEMAKER_TRITON_INFERENCE_TYPE");
  if (!inference.empty()) options.sagemaker_routes.inference = inference;

  if (EnvironmentValue("AIP_MODE") == "PREDICTION") {
    options.allow_vertex_ai = true;
    options.allow_http = false;
    options.allow_grpc = false;
  }
  options.vertex_ai_routes.predict_route = EnvironmentValue("AIP_PREDICT_ROUTE");
  options.vertex_ai_routes.health_route = EnvironmentValue("AIP_HEALTH_ROUTE");
  const std::string port = EnvironmentValue("AIP_HTTP_PORT");
  if (port.empty()) return Status::Ok();
  const Result<int64_t> value = ParseIntValue(port, 0, 65535);
  if (!value.ok()) return Status(value.status()).WithContext("AIP_HTTP_PORT");
  options.vertex_ai.port = static_cast<uint16_t>(*value);
  return Status::Ok();
}

Status ApplySafePortRange(Options& options, const std::string& text) {
  const size_t dash = text.find('-');
  if (dash == std::string::npos) {
    return InvalidArgError("expected <first>-<last>, got '", text, "'");
  }
  NEREID_ASSIGN_OR_RETURN(const int64_t first, ParseIntValue(text.substr(0, dash), 0, 65535));
  NEREID_ASSIGN_OR_RETURN(const int64_t last, ParseIntValue(text.substr(dash + 1), first, 65535));
  options.sagemaker_safe_ports = PortRange{static_cast<int>(first), static_cast<int>(last)};
  return Status::Ok();
}

void CompleteCloudOptions(Options& options) {
  for (http::HttpServerOptions* config : {&options.sagemaker, &options.vertex_ai}) {
    config->address = options.http.address;
    config->limits = options.http.limits;
  }
  const std::string storage = EnvironmentValue("AIP_STORAGE_URI");
  if (options.allow_vertex_ai && options.repositories.empty() && !storage.empty()) {
    options.repositories.push_back(storage);
  }
}

Status CheckCloudOptions(const Options& options) {
  if (!options.allow_sagemaker) return Status::Ok();
  const std::string& inference = options.sagemaker_routes.inference;
  if (inference != "infer" && inference != "generate" && inference != "generate_stream") {
    return InvalidArgError(
        "SAGEMAKER_TRITON_INFERENCE_TYPE: expected infer, generate or generate_stream, got '",
        inference, "'");
  }
  if (!options.sagemaker_safe_ports) return Status::Ok();
  const PortRange& safe = *options.sagemaker_safe_ports;
  NEREID_RETURN_IF_ERROR(CheckSafePort(safe, "--http-port", options.allow_http, options.http.port));
  NEREID_RETURN_IF_ERROR(CheckSafePort(safe, "--grpc-port", options.allow_grpc, options.grpc.port));
  return CheckSafePort(safe, "--metrics-port", options.allow_metrics, options.metrics.port);
}

}  // namespace nereid
