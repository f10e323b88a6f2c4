#include "host/frontend/http/endpoints/trace_endpoint.h"

#include "host/frontend/frontend_state.h"
#include "host/frontend/http/bodies/settings_body.h"
#include "host/frontend/http/calls/reply.h"
#include "host/frontend/http/json/json_writer.h"

namespace nereid::http {
namespace {

Status Change(Tracer& tracer, const Body& body, size_t max_depth, const std::string& model) {
  NEREID_ASSIGN_OR_RETURN(const TraceChange change, ReadTraceChange(body.bytes(), max_depth));
  return tracer.Apply(model, change);
}

std::string ToJson(const std::vector<std::pair<std::string, std::vector<std::string>>>& settings) {
  std::string json = "{";
  for (const auto& [key, values] : settings) {
    if (json.size() > 1) json += ',';
    AppendLossyJsonString(json, key);
    json += ':';
    if (key !=
        "trace_level") {  // of several attributes of a resource, JSON's text has room for one
      AppendLossyJsonString(json, values.back());
      continue;
    }
    for (size_t i = 0; i < values.size(); ++i) {
      json += i == 0 ? '[' : ',';
      AppendLossyJsonString(json, values[i]);
    }
    json += ']';
  }
  json += '}';
  return json;
}

Status CheckModel(const Server& server, const std::string& model) {
  if (model.empty() || server.IsBatched(model.c_str(), -1).ok()) return Status::Ok();
  return InvalidArgError("Request for unknown model : ", model);
}

}  // namespace

void AnswerTraceSettings(const KServeContext& context, Connection& connection, Method method,
                         const Body& body, const ModelName& model) {
  Tracer& tracer = *context.state.tracer;
  Status status = CheckModel(context.server, model.name);
  if (status.ok() && method == Method::kPost) {
    status = Change(tracer, body, connection.limits().max_json_depth, model.name);
  }
  if (!status.ok()) return ReplyError(connection, status);
  connection.Reply({}, ToJson(tracer.Describe(model.name)));
}

}  // namespace nereid::http
