// A loaded backend library: its entry points, attributes and configuration (TRITONBACKEND_Backend).
// Created by the backend manager; lives until the server ends. [entry points: load threads, one at
// a time]
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "host/core/backend/backend_search.h"
#include "host/core/backend/plugin.h"
#include "host/core/config/config_loader.h"
#include "host/core/handle/handle_cast.h"
#include "host/core/handle/json_message.h"
#include "host/core/memory/memory_manager.h"
#include "nereid/ext/inline_execution.h"
#include "nereid/ext/posted_input_buffer.h"
#include "nereid/ext/serial_execution.h"
#include "nereid/status.h"
#include "triton/core/tritonbackend.h"

namespace nereid::core {

// The functions that a backend exports. All but instance_execute may be null.
struct BackendEntryPoints {
  decltype(&TRITONBACKEND_Initialize) initialize = nullptr;
  decltype(&TRITONBACKEND_Finalize) finalize = nullptr;
  decltype(&TRITONBACKEND_GetBackendAttribute) get_attribute = nullptr;
  decltype(&TRITONBACKEND_ModelInitialize) model_initialize = nullptr;
  decltype(&TRITONBACKEND_ModelFinalize) model_finalize = nullptr;
  decltype(&TRITONBACKEND_ModelInstanceInitialize) instance_initialize = nullptr;
  decltype(&TRITONBACKEND_ModelInstanceFinalize) instance_finalize = nullptr;
  decltype(&TRITONBACKEND_ModelInstanceExecute) instance_execute = nullptr;
  decltype(&TRITONBACKEND_ModelInstanceReady) instance_ready = nullptr;
  decltype(&NEREID_ModelInstanceExecuteInline) instance_execute_inline = nullptr;
  decltype(&NEREID_ModelInstanceMostInTurn) instance_most_in_turn = nullptr;
  decltype(&NEREID_ModelInstanceExecuteInTurn) instance_execute_in_turn = nullptr;
  decltype(&NEREID_ModelInstanceOfferInput) instance_offer_input = nullptr;
};

// The result of GetBackendAttribute (TRITONBACKEND_BackendAttribute).
struct BackendAttributes {
  std::vector<config::PreferredGroup> preferred_groups;
  bool parallel_instance_loading = false;
};

class Backend {
 public:
  // Opens the library, calls Initialize and GetBackendAttribute. `config_json` is the message that
  // TRITONBACKEND_BackendConfig returns.
  static Result<std::unique_ptr<Backend>> Load(const BackendLocation& location,
                                               std::string config_json, MemoryManager* memory);
  // A backend that is linked into this process, for tests.
  static Result<std::unique_ptr<Backend>> FromEntryPoints(const BackendLocation& location,
                                                          const BackendEntryPoints& entry_points,
                                                          std::string config_json,
                                                          MemoryManager* memory);
  // Calls Finalize.
  ~Backend();
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  const std::string& name() const { return location_.name; }
  const std::string& directory() const { return location_.directory; }
  const std::string& library() const { return location_.library; }
  const BackendEntryPoints& entry_points() const { return entry_points_; }
  const BackendAttributes& attributes() const { return attributes_; }
  JsonMessage& config() { return config_; }
  MemoryManager* memory() const { return memory_; }

  TRITONBACKEND_ExecutionPolicy execution_policy() const { return execution_policy_; }
  void set_execution_policy(TRITONBACKEND_ExecutionPolicy policy) { execution_policy_ = policy; }
  void* state() const { return state_; }
  void set_state(void* state) { state_ = state; }

 private:
  Backend(const BackendLocation& location, const BackendEntryPoints& entry_points,
          std::string config_json, MemoryManager* memory);
  Status Initialize();

  const BackendLocation location_;
  const BackendEntryPoints entry_points_;
  JsonMessage config_;
  MemoryManager* const memory_;
  BackendAttributes attributes_;
  TRITONBACKEND_ExecutionPolicy execution_policy_ = TRITONBACKEND_EXECUTION_BLOCKING;
  void* state_ = nullptr;
};

}  // namespace nereid::core

NEREID_HANDLE(TRITONBACKEND_Backend, nereid::core::Backend);
NEREID_HANDLE(TRITONBACKEND_BackendAttribute, nereid::core::BackendAttributes);
