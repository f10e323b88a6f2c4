#include "host/frontend/http/endpoints/endpoints.h"

#include <memory>
#include <utility>
#include <vector>

#include "host/frontend/http/bodies/control_bodies.h"
#include "host/frontend/http/calls/blocking_pool.h"
#include "host/frontend/http/request_access.h"
#include "host/frontend/http/transport/http_connection.h"

namespace nereid::http {
namespace {

// Returns the parameters of the C API. They reference the memory of `load`.
std::vector<Parameter> ToParameters(const LoadBody& load) {
  std::vector<Parameter> parameters;
  if (load.config) parameters.push_back(Parameter::String("config", *load.config));
  for (const LoadFile& file : load.files) {
    parameters.push_back(Parameter::Bytes(file.name, file.bytes));
  }
  return parameters;
}

Status StartLoad(KServeContext& context, BlockingPool& pool, HttpConnection& connection,
                 const RequestHead& head, RequestBody& body, const std::string& model) {
  NEREID_ASSIGN_OR_RETURN(LoadBody load,
                          ReadLoadBody(body.bytes(), connection.limits().max_json_depth));
  const bool is_inline = load.config || !load.files.empty();
  if (is_inline &&
      !CheckAccess(context.access, connection, head, ApiOperation::kLoadInlineModel, model)) {
    return Status::Ok();
  }
  // Stands for `load` until that is destroyed.
  const auto reservation = std::make_shared<ByteReservation>(std::move(body.reservation));
  BlockingCall::Start(context, pool, connection,
                      [&context, model, load = std::move(load), reservation] {
                        return context.server.LoadModel(model.c_str(), ToParameters(load));
                      });
  return Status::Ok();
}

Status StartUnload(KServeContext& context, BlockingPool& pool, HttpConnection& connection,
                   RequestBody& body, const std::string& model) {
  NEREID_ASSIGN_OR_RETURN(const bool with_dependents,
                          ReadUnloadBody(body.bytes(), connection.limits().max_json_depth));
  BlockingCall::Start(context, pool, connection, [&context, model, with_dependents] {
    return context.server.UnloadModel(model.c_str(), with_dependents);
  });
  return Status::Ok();
}

}  // namespace

void ReplyRepositoryIndex(HttpConnection& connection, const Server& server,
                          const RequestBody& body) {
  const Result<bool> ready_only = ReadIndexBody(body.bytes(), connection.limits().max_json_depth);
  if (ready_only.ok()) {
    ReplyMessage(connection, server.ModelIndex(*ready_only));
  } else {
    ReplyError(connection, ready_only.status());
  }
}

void StartLoadOrUnload(KServeContext& context, BlockingPool& pool, HttpConnection& connection,
                       const RequestHead& head, RequestBody& body, const Route& route) {
  if (!route.repository.empty()) {
    ReplyError(connection, UnsupportedError("'repository_name' specification is not supported"));
    return;
  }
  const std::string& model = route.model.name;
  const Status status = route.endpoint == Endpoint::kModelLoad
                            ? StartLoad(context, pool, connection, head, body, model)
                            : StartUnload(context, pool, connection, body, model);
  if (!status.ok()) ReplyError(connection, status);
}

}  // namespace nereid::http
