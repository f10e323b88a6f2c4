// The small bodies of the repository extension.
#include "host/frontend/http/endpoints/repository_endpoints.h"

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "host/frontend/http/bodies/base64.h"
#include "host/frontend/http/calls/pool_call.h"
#include "host/frontend/http/calls/reply.h"
#include "host/frontend/http/endpoints/metadata_endpoints.h"
#include "host/frontend/http/json/json_reader.h"

namespace nereid::http {
namespace {

// Walks the object `parameters` of the body, which may be empty.
Status ReadParameters(const Body& body, size_t max_depth,
                      const std::function<Status(JsonReader&, std::string_view)>& on_parameter) {
  if (body.bytes().empty()) return Status::Ok();
  JsonReader reader(body.bytes(), max_depth);
  NEREID_RETURN_IF_ERROR(reader.ReadObject([&](std::string_view key) -> Status {
    if (key != "parameters") return reader.SkipValue();
    return reader.ReadObject([&](std::string_view name) { return on_parameter(reader, name); });
  }));
  return reader.ExpectEnd();
}

Result<std::vector<Parameter>> ReadLoadParameters(const Body& body, size_t max_depth,
                                                  std::vector<std::string>& files) {
  std::vector<Parameter> parameters;
  // Parameters reference the files' bytes: these must not move any more.
  std::vector<std::pair<std::string, std::string>> decoded;
  NEREID_RETURN_IF_ERROR(
      ReadParameters(body, max_depth, [&](JsonReader& reader, std::string_view name) -> Status {
        const bool is_file = name.substr(0, 5) == "file:";
        if (!is_file && name != "config") {
          return InvalidArgError("unknown load parameter '", name,
                                 "': expected 'config' or 'file:<path>'");
        }
        NEREID_ASSIGN_OR_RETURN(const std::string_view text, reader.ReadString());
        if (!is_file) {
          parameters.push_back(Parameter::String(std::string(name), std::string(text)));
          return Status::Ok();
        }
        std::optional<std::string> bytes = DecodeBase64(text);
        if (!bytes) return InvalidArgError("load parameter '", name, "' is not base64");
        decoded.emplace_back(name, *std::move(bytes));
        return Status::Ok();
      }));
  files.reserve(decoded.size());
  for (auto& [name, bytes] : decoded) {
    files.push_back(std::move(bytes));
    parameters.push_back(Parameter::Bytes(name, files.back()));
  }
  return parameters;
}

Status StartLoad(KServeContext& context, BlockingPool& pool, Connection& connection,
                 const Body& body, const std::string& model) {
  auto files = std::make_shared<std::vector<std::string>>();
  NEREID_ASSIGN_OR_RETURN(std::vector<Parameter> parameters,
                          ReadLoadParameters(body, connection.limits().max_json_depth, *files));
  auto shared = std::make_shared<std::vector<Parameter>>(std::move(parameters));
  PoolCall::Start(context, pool, connection, [&context, model, shared, files] {
    return context.server.LoadModel(model.c_str(), *shared);
  });
  return Status::Ok();
}

Status StartUnload(KServeContext& context, BlockingPool& pool, Connection& connection,
                   const Body& body, const std::string& model) {
  bool with_dependents = false;
  NEREID_RETURN_IF_ERROR(ReadParameters(body, connection.limits().max_json_depth,
                                        [&](JsonReader& reader, std::string_view name) -> Status {
                                          if (name != "unload_dependents")
                                            return reader.SkipValue();
                                          NEREID_ASSIGN_OR_RETURN(with_dependents,
                                                                  reader.ReadBool());
                                          return Status::Ok();
                                        }));
  PoolCall::Start(context, pool, connection, [&context, model, with_dependents] {
    return context.server.UnloadModel(model.c_str(), with_dependents);
  });
  return Status::Ok();
}

Result<bool> ReadReadyOnly(const Body& body, size_t max_depth) {
  bool ready_only = false;
  if (body.bytes().empty()) return ready_only;
  JsonReader reader(body.bytes(), max_depth);
  NEREID_RETURN_IF_ERROR(reader.ReadObject([&](std::string_view key) -> Status {
    if (key != "ready") return reader.SkipValue();
    NEREID_ASSIGN_OR_RETURN(ready_only, reader.ReadBool());
    return Status::Ok();
  }));
  NEREID_RETURN_IF_ERROR(reader.ExpectEnd());
  return ready_only;
}

}  // namespace

void ReplyRepositoryIndex(Connection& connection, const Server& server, const Body& body) {
  const Result<bool> ready_only = ReadReadyOnly(body, connection.limits().max_json_depth);
  if (ready_only.ok()) {
    ReplyMessage(connection, server.ModelIndex(*ready_only));
  } else {
    ReplyError(connection, ready_only.status());
  }
}

void StartLoadOrUnload(KServeContext& context, BlockingPool& pool, Connection& connection,
                       const Body& body, const Route& route) {
  if (!route.repository.empty()) {
    ReplyError(connection, UnsupportedError("'repository_name' specification is not supported"));
    return;
  }
  const auto start = route.endpoint == Endpoint::kModelLoad ? &StartLoad : &StartUnload;
  const Status status = start(context, pool, connection, body, route.model.name);
  if (!status.ok()) ReplyError(connection, status);
}

}  // namespace nereid::http
