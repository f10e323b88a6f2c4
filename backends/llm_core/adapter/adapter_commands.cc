// Reads commands from the parameters of requests and runs them one by one.
#include "backends/llm_core/adapter/adapter_commands.h"

#include <utility>

#include "base/thread.h"
#include "nereid/ext/adapter_command.h"

namespace nereid::llm {
namespace {

constexpr size_t kMaxWaiting = 64;

Result<std::string> ReadText(const Request& request, const char* name) {
  NEREID_ASSIGN_OR_RETURN(const std::optional<ParameterView> parameter,
                          request.FindParameter(name));
  if (!parameter || parameter->type != TRITONSERVER_PARAMETER_STRING) return std::string();
  return std::string(parameter->AsString());
}

Result<bool> ReadBool(const Request& request, const char* name) {
  NEREID_ASSIGN_OR_RETURN(const std::optional<ParameterView> parameter,
                          request.FindParameter(name));
  return parameter && parameter->type == TRITONSERVER_PARAMETER_BOOL && parameter->AsBool();
}

// A response without outputs, or the error.
void Answer(ResponseSender& sender, Status status) {
  if (status.ok()) {
    Result<Response> response = sender.NewResponse();
    status =
        response.ok() ? sender.Send(std::move(*response), /*is_final=*/true) : response.status();
  }
  if (!status.ok() && sender.is_open()) (void)sender.Fail(status);
}

}  // namespace

Result<std::optional<AdapterCommand>> ReadAdapterCommand(const Request& request) {
  NEREID_ASSIGN_OR_RETURN(const bool is_command, ReadBool(request, NEREID_ADAPTER_COMMAND));
  if (!is_command) return std::optional<AdapterCommand>();
  AdapterCommand command;
  NEREID_ASSIGN_OR_RETURN(command.name, ReadText(request, NEREID_ADAPTER_NAME));
  NEREID_ASSIGN_OR_RETURN(command.path, ReadText(request, NEREID_ADAPTER_PATH));
  NEREID_ASSIGN_OR_RETURN(command.replaces, ReadBool(request, NEREID_ADAPTER_REPLACE));
  return std::optional(std::move(command));
}

Status RunAdapterCommand(const AdapterCommand& command, AdapterRegistry& registry) {
  NEREID_RETURN_IF_ERROR(CheckAdapterName(command.name));
  if (command.path.empty()) {
    if (registry.Unload(command.name)) return Status::Ok();
    return NotFoundError("The lora adapter '", command.name, "' cannot be found.");
  }
  if (!command.replaces && registry.Find(command.name).ok()) {
    return AlreadyExistsError("The lora adapter '", command.name,
                              "' has already been loaded. If you want to load the adapter in "
                              "place, set 'load_inplace' to True.");
  }
  return registry.Load(command.name, command.path);
}

AdapterCommands::AdapterCommands(AdapterRegistry& registry)
    : registry_(registry), queue_(kMaxWaiting), thread_(StartThread([this] {
        while (std::optional<Entry> entry = queue_.Pop()) {
          Answer(entry->sender, RunAdapterCommand(entry->command, registry_));
        }
      })) {}

AdapterCommands::~AdapterCommands() {
  queue_.Close();
  thread_.join();
}

void AdapterCommands::Post(Request request, AdapterCommand command) {
  Entry entry{std::move(request).IntoSender(), std::move(command)};
  if (queue_.TryPush(std::move(entry))) return;
  Answer(entry.sender, UnavailableError("more than ", kMaxWaiting,
                                        " commands for LoRA adapters wait, expected fewer"));
}

}  // namespace nereid::llm
