#include "host/cli/generate.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "host/cli/chat_stream.h"
#include "host/cli/command.h"
#include "host/cli/serve_report.h"
#include "host/cli/served_model.h"
#include "host/cli/temporary_folder.h"
#include "host/process_signals.h"
#include "host/run_server.h"
#include "net/http_client.h"

namespace nereid::cli {
namespace {

constexpr size_t kMaxRefusalBytes = size_t{64} << 10;

bool WasInterrupted() {
  return ShutdownSignal::Wait(std::chrono::milliseconds(0));
}

// Sends the prompt to the server of this process and prints the text while it arrives.
Status Ask(const GenerateOptions& options, const std::string& model, uint16_t port) {
  NEREID_ASSIGN_OR_RETURN(net::HttpClient client, net::HttpClient::Create());
  net::HttpRequest request;
  request.method = "POST";
  request.url = StrCat("http://127.0.0.1:", port, "/v1/completions");
  request.headers = {"Content-Type: application/json", "Expect:"};
  request.body = GenerateBody(options, model);
  request.stall_timeout_s = 0;  // a long prompt takes its time
  request.is_cancelled = [] { return WasInterrupted(); };
  EventReader events;
  Status failure;
  std::string refusal;  // the body of an answer that is no success
  request.on_body = [&](const net::HttpHead& head, std::string_view part) {
    if (head.status != 200) {
      refusal += part.substr(0, kMaxRefusalBytes - std::min(refusal.size(), kMaxRefusalBytes));
      return true;
    }
    events.Append(part);
    for (std::string data; failure.ok() && events.Next(data);) {
      if (data == "[DONE]") continue;
      Result<std::string> text = ParseTextDelta(data);
      if (text.ok()) {
        std::fwrite(text->data(), 1, text->size(), stdout);
      } else {
        failure = std::move(text).status();
      }
    }
    std::fflush(stdout);
    return failure.ok();
  };
  const Result<net::HttpHead> head = client.Send(request);
  if (!failure.ok()) return failure;
  if (!head.ok()) return head.status();
  if (head->status != 200) return InvalidArgError(ErrorText(refusal));
  std::fputs("\n", stdout);
  return {};
}

int Generate(GenerateOptions& options) {
  ServeOptions& serve = options.serve;
  // From now on a signal removes what this process has written.
  ShutdownSignal::Install();
  const std::string root = InstallRoot();
  ProgressBar progress(stderr);
  const Result<std::vector<ServedModel>> models = FindModels(serve, root, progress);
  if (!models.ok()) return FailCommand("generate", models.status(), 1);
  const Result<TemporaryFolder> folder = TemporaryFolder::Create();
  if (!folder.ok()) return FailCommand("generate", folder.status(), 1);
  Result<std::vector<std::string>> repositories =
      WriteRepositories(serve, *models, root, folder->path());
  if (!repositories.ok()) return FailCommand("generate", repositories.status(), 1);
  folder->RemoveAtExit();
  const std::string& model = models->front().name;
  serve.server.repositories = std::move(*repositories);
  serve.server.control_mode = TRITONSERVER_MODEL_CONTROL_EXPLICIT;
  serve.server.startup_models = {model};
  Status asked;
  ServerCallbacks callbacks;
  callbacks.on_started = [&](const Server&, const Frontends& frontends) {
    asked = Ask(options, model, frontends.http_port());
    if (!WasInterrupted()) raise(SIGTERM);  // ends RunServer
  };
  callbacks.on_failed = [](const Status& status) {
    (void)FailCommand("generate", Status(status.code(), LoadFailure(status.message())), 1);
  };
  const int exit_status = RunServer(serve.server, callbacks);
  return asked.ok() ? exit_status : FailCommand("generate", asked, 1);
}

}  // namespace

int RunGenerate(const std::vector<std::string>& args) {
  Result<GenerateOptions> options = ParseGenerateOptions(args);
  if (!options.ok()) return FailCommand("generate", options.status(), 2);
  if (options->show_help) {
    std::fputs(GenerateUsageText().c_str(), stdout);
    return 0;
  }
  return Generate(*options);
}

}  // namespace nereid::cli
