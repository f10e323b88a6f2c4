// Loads and unloads adapters by commands of the host (nereid/ext/adapter_command.h), on a thread of
// its own, because it reads files. [instance thread, unless said otherwise]
#pragma once

#include <optional>
#include <string>
#include <thread>

#include "backends/llm_core/lora/adapter_registry.h"
#include "base/bounded_queue.h"
#include "nereid/backend.h"

namespace nereid::llm {

struct AdapterCommand {
  std::string name;
  std::string path;  // empty: unload
  bool replaces = false;
};

// The command of a request; nothing if it is none.
Result<std::optional<AdapterCommand>> ReadAdapterCommand(const Request& request);

// ALREADY_EXISTS and NOT_FOUND name the adapter; other errors as AdapterRegistry. [any thread]
Status RunAdapterCommand(const AdapterCommand& command, AdapterRegistry& registry);

class AdapterCommands {
 public:
  // `registry` must outlive the object.
  explicit AdapterCommands(AdapterRegistry& registry);
  // Runs what is queued, then joins the thread.
  ~AdapterCommands();
  AdapterCommands(const AdapterCommands&) = delete;
  AdapterCommands& operator=(const AdapterCommands&) = delete;

  // Answers the request when its command is done; at once with UNAVAILABLE if too many wait.
  void Post(Request request, AdapterCommand command);

 private:
  struct Entry {
    ResponseSender sender;
    AdapterCommand command;
  };

  AdapterRegistry& registry_;
  BoundedQueue<Entry> queue_;
  std::thread thread_;  // last member: the thread uses the others
};

}  // namespace nereid::llm
