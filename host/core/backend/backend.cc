#include "host/core/backend/backend.h"

#include <utility>

#include "host/core/backend/plugin.h"
#include "host/core/observe/log.h"

namespace nereid::core {
namespace {

// Looks up every entry point in the library.
Result<BackendEntryPoints> FindEntryPoints(const SharedLibrary& library, const std::string& path) {
  BackendEntryPoints entry;
#define NEREID_FIND(member, symbol) entry.member = library.Find<decltype(symbol)>(#symbol)
  NEREID_FIND(initialize, TRITONBACKEND_Initialize);
  NEREID_FIND(finalize, TRITONBACKEND_Finalize);
  NEREID_FIND(get_attribute, TRITONBACKEND_GetBackendAttribute);
  NEREID_FIND(model_initialize, TRITONBACKEND_ModelInitialize);
  NEREID_FIND(model_finalize, TRITONBACKEND_ModelFinalize);
  NEREID_FIND(instance_initialize, TRITONBACKEND_ModelInstanceInitialize);
  NEREID_FIND(instance_finalize, TRITONBACKEND_ModelInstanceFinalize);
  NEREID_FIND(instance_execute, TRITONBACKEND_ModelInstanceExecute);
  NEREID_FIND(instance_ready, TRITONBACKEND_ModelInstanceReady);
  NEREID_FIND(instance_execute_inline, NEREID_ModelInstanceExecuteInline);
  NEREID_FIND(instance_most_in_turn, NEREID_ModelInstanceMostInTurn);
  NEREID_FIND(instance_execute_in_turn, NEREID_ModelInstanceExecuteInTurn);
  NEREID_FIND(instance_offer_input, NEREID_ModelInstanceOfferInput);
#undef NEREID_FIND
  if (entry.instance_execute == nullptr) {
    return NotFoundError("backend library '", path,
                         "' does not export TRITONBACKEND_ModelInstanceExecute");
  }
  return entry;
}

}  // namespace

Backend::Backend(const BackendLocation& location, const BackendEntryPoints& entry_points,
                 std::string config_json, MemoryManager* memory)
    : location_(location),
      entry_points_(entry_points),
      config_(std::move(config_json)),
      memory_(memory) {}

Result<std::unique_ptr<Backend>> Backend::Load(const BackendLocation& location,
                                               std::string config_json, MemoryManager* memory) {
  NEREID_ASSIGN_OR_RETURN(const SharedLibrary library, SharedLibrary::Open(location.library));
  NEREID_ASSIGN_OR_RETURN(const BackendEntryPoints entry_points,
                          FindEntryPoints(library, location.library));
  return FromEntryPoints(location, entry_points, std::move(config_json), memory);
}

Result<std::unique_ptr<Backend>> Backend::FromEntryPoints(const BackendLocation& location,
                                                          const BackendEntryPoints& entry_points,
                                                          std::string config_json,
                                                          MemoryManager* memory) {
  std::unique_ptr<Backend> backend(
      new Backend(location, entry_points, std::move(config_json), memory));
  NEREID_RETURN_IF_ERROR(backend->Initialize());
  return backend;
}

Status Backend::Initialize() {
  if (entry_points_.initialize != nullptr) {
    Status status =
        GuardedCall(name(), "Initialize", [&] { return entry_points_.initialize(ToHandle(this)); });
    if (!status.ok()) {
      return std::move(status).WithContext(
          StrCat("backend '", name(), "' failed to initialise ('", library(), "')"));
    }
  }
  if (entry_points_.get_attribute != nullptr) {
    BackendAttributes attributes;
    const Status status = GuardedCall(name(), "GetBackendAttribute", [&] {
      return entry_points_.get_attribute(ToHandle(this), ToHandle(&attributes));
    });
    if (status.ok()) {
      attributes_ = std::move(attributes);
    } else {
      NEREID_LOG_VERBOSE(1, "backend '", name(), "': no attributes: ", status.message());
    }
  }
  return Status::Ok();
}

Backend::~Backend() {
  if (entry_points_.finalize == nullptr) return;
  const Status status =
      GuardedCall(name(), "Finalize", [&] { return entry_points_.finalize(ToHandle(this)); });
  if (!status.ok()) {
    NEREID_LOG_ERROR("backend '", name(), "' failed to finalise: ", status.message());
  }
}

}  // namespace nereid::core
