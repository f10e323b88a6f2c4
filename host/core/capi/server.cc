// TRITONSERVER_Server: creation, deletion, health, repositories and metadata. [any thread]
#include "host/core/server.h"

#include "host/core/capi/handles.h"

using nereid::Status;
using nereid::core::AtCBoundary;
using nereid::core::FromHandle;
using nereid::core::JsonMessage;
using nereid::core::Server;
using nereid::core::ToHandle;

extern "C" {

TRITONSERVER_Error* TRITONSERVER_ServerNew(TRITONSERVER_Server** server,
                                           TRITONSERVER_ServerOptions* options) {
  NEREID_RETURN_IF_NULL(server);
  NEREID_RETURN_IF_NULL(options);
  return AtCBoundary([&]() -> Status {
    NEREID_ASSIGN_OR_RETURN(auto created, Server::Create(*FromHandle(options)));
    *server = ToHandle(created.release());
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONSERVER_ServerDelete(TRITONSERVER_Server* server) {
  return AtCBoundary([&]() -> Status {
    std::unique_ptr<Server> owned(FromHandle(server));
    if (owned == nullptr) return Status::Ok();
    Status ended = owned->End();
    if (!ended.ok() && owned->IsLoading()) (void)owned.release();
    return ended;
  });
}

TRITONSERVER_Error* TRITONSERVER_ServerStop(TRITONSERVER_Server* server) {
  NEREID_RETURN_IF_NULL(server);
  return AtCBoundary([&] { return FromHandle(server)->Stop(); });
}

TRITONSERVER_Error* TRITONSERVER_ServerSetExitTimeout(TRITONSERVER_Server* server,
                                                      unsigned int timeout) {
  NEREID_RETURN_IF_NULL(server);
  FromHandle(server)->SetExitTimeout(timeout);
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_ServerRegisterModelRepository(
    TRITONSERVER_Server* server, const char* repository_path,
    const TRITONSERVER_Parameter** name_mapping, const uint32_t mapping_count) {
  NEREID_RETURN_IF_NULL(server);
  NEREID_RETURN_IF_NULL(repository_path);
  if (mapping_count > 0) NEREID_RETURN_IF_NULL(name_mapping);
  return AtCBoundary([&] {
    std::vector<const nereid::core::Parameter*> mapping;
    for (uint32_t i = 0; i < mapping_count; ++i) mapping.push_back(FromHandle(name_mapping[i]));
    return FromHandle(server)->RegisterRepository(repository_path, mapping);
  });
}

TRITONSERVER_Error* TRITONSERVER_ServerUnregisterModelRepository(TRITONSERVER_Server* server,
                                                                 const char* repository_path) {
  NEREID_RETURN_IF_NULL(server);
  NEREID_RETURN_IF_NULL(repository_path);
  return AtCBoundary([&] { return FromHandle(server)->UnregisterRepository(repository_path); });
}

TRITONSERVER_Error* TRITONSERVER_ServerPollModelRepository(TRITONSERVER_Server* server) {
  NEREID_RETURN_IF_NULL(server);
  return AtCBoundary([&] { return FromHandle(server)->PollRepositories(); });
}

TRITONSERVER_Error* TRITONSERVER_ServerIsLive(TRITONSERVER_Server* server, bool* live) {
  NEREID_RETURN_IF_NULL(server);
  NEREID_RETURN_IF_NULL(live);
  return AtCBoundary([&]() -> Status {
    *live = FromHandle(server)->IsLive();
    return FromHandle(server)->CheckNotStopping();
  });
}

TRITONSERVER_Error* TRITONSERVER_ServerIsReady(TRITONSERVER_Server* server, bool* ready) {
  NEREID_RETURN_IF_NULL(server);
  NEREID_RETURN_IF_NULL(ready);
  return AtCBoundary([&]() -> Status {
    *ready = FromHandle(server)->IsReady();
    return FromHandle(server)->CheckNotStopping();
  });
}

TRITONSERVER_Error* TRITONSERVER_ServerMetadata(TRITONSERVER_Server* server,
                                                TRITONSERVER_Message** server_metadata) {
  NEREID_RETURN_IF_NULL(server);
  NEREID_RETURN_IF_NULL(server_metadata);
  return AtCBoundary([&] {
    *server_metadata = ToHandle(new JsonMessage(FromHandle(server)->MetadataJson()));
    return Status::Ok();
  });
}

}  // extern "C"
