#include "host/cli/chat.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/closest_name.h"
#include "base/command_line.h"
#include "base/json_reader.h"
#include "host/cli/chat_stream.h"
#include "host/cli/command.h"
#include "host/option_values.h"
#include "nereid/status.h"
#include "net/http_client.h"

namespace nereid::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr size_t kMaxChatAnswerBytes = size_t{16} << 20;

constexpr char kChatUsage[] =
    "Usage: nereid chat [MODEL] [options]\n"
    "A conversation with a model of a server. Without MODEL, the server's only model.\n\n"
    "  --url <url>             the server. Default: http://127.0.0.1:8000\n"
    "  --api-key <key>         Default: the variable NEREID_API_KEY\n"
    "  --system <text>         the system message at the beginning\n"
    "  --max-tokens <number>   the longest answer. Default: the server's\n\n"
    "In the conversation: /system TEXT, /reset, /help, /exit. Ctrl-C ends an answer.\n";

constexpr char kHelp[] =
    "/system TEXT   begin again with this system message; without TEXT, with none\n"
    "/reset         begin again\n"
    "/exit          end; so does the end of the input\n";

struct ChatOptions {
  bool show_help = false;
  std::string url = "http://127.0.0.1:8000";
  std::string model;
  std::string api_key;
  std::string system;
  int max_tokens = 0;  // 0: not sent
};

Result<ChatOptions> ParseChatOptions(const std::vector<std::string>& args) {
  ChatOptions options;
  if (const char* const key = std::getenv("NEREID_API_KEY")) options.api_key = key;
  NEREID_ASSIGN_OR_RETURN(
      const CommandLine line,
      ParseCommandLine(args, {"--url", "--api-key", "--system", "--max-tokens"}, {}));
  if (line.words.size() > 1)
    return InvalidArgError("expected one model, got '", line.words[1], "'");
  options.show_help = line.Has("--help");
  if (!line.words.empty()) options.model = line.words[0];
  options.url = line.ValueOr("--url", options.url);
  options.api_key = line.ValueOr("--api-key", options.api_key);
  options.system = line.ValueOr("--system", "");
  NEREID_ASSIGN_OR_RETURN(options.max_tokens, line.IntOr("--max-tokens", 0, 1, INT32_MAX));
  while (options.url.ends_with('/')) options.url.pop_back();
  if (options.url.find("://") == std::string::npos) options.url = "http://" + options.url;
  return options;
}

// Set by Ctrl-C, which ends an answer, or the conversation while nothing is answered.
volatile sig_atomic_t was_interrupted = 0;

void OnInterrupt(int) {
  was_interrupted = 1;
}

// One conversation: its messages, and the server that answers.
class Conversation {
 public:
  Conversation(ChatOptions options, net::HttpClient client)
      : options_(std::move(options)),
        client_(std::move(client)),
        is_terminal_(isatty(STDOUT_FILENO) != 0) {
    Restart();
  }

  const std::string& model() const { return options_.model; }

  // Asks the server for its models if the command line names none.
  Status FindModel();
  // Sends a message and prints the answer while it arrives. With an error the conversation is as it
  // was before.
  Status Say(const std::string& text);
  void Restart();
  void SetSystem(const std::string& text) {
    options_.system = text;
    Restart();
  }

 private:
  net::HttpRequest RequestTo(const std::string& path) const;
  void Show(const ChatDelta& delta);
  void EndReasoning();

  ChatOptions options_;
  net::HttpClient client_;
  const bool is_terminal_;
  OrderedJson messages_;
  std::string answer_;         // what has arrived of the current one
  bool is_reasoning_ = false;  // the last text was reasoning, which is dimmed on a terminal
};

net::HttpRequest Conversation::RequestTo(const std::string& path) const {
  net::HttpRequest request;
  request.url = options_.url + path;
  request.stall_timeout_s = 0;
  request.headers = {"Content-Type: application/json", "Expect:"};
  if (!options_.api_key.empty()) {
    request.headers.push_back("Authorization: Bearer " + options_.api_key);
  }
  return request;
}

Status Conversation::FindModel() {
  if (!options_.model.empty()) return Status::Ok();
  net::HttpHead head;
  Result<std::string> body =
      net::ReadBody(client_, RequestTo("/v1/models"), kMaxChatAnswerBytes, head);
  if (!body.ok()) return std::move(body).status().WithContext(options_.url);
  if (head.status != 200) {
    return UnavailableError(options_.url, "/v1/models answers ", head.status, ": ",
                            ErrorText(*body));
  }
  NEREID_ASSIGN_OR_RETURN(const OrderedJson answer,
                          ReadJsonObject<OrderedJson>(*body, "/v1/models"));
  std::string names;
  size_t num_models = 0;
  const OrderedJson list = answer.value("data", OrderedJson::array());
  for (const OrderedJson& model : list) {
    if (!model.is_object() || !model.contains("id") || !model["id"].is_string()) continue;
    options_.model = model["id"].get<std::string>();
    names += StrCat(names.empty() ? "" : ", ", options_.model);
    ++num_models;
  }
  if (num_models == 1) return Status::Ok();
  if (num_models == 0) return NotFoundError(options_.url, " serves no model");
  return InvalidArgError(options_.url, " serves several models; name one of them: ", names);
}

void Conversation::Restart() {
  messages_ = OrderedJson::array();
  if (!options_.system.empty()) {
    messages_.push_back({{"role", "system"}, {"content", options_.system}});
  }
}

void Conversation::EndReasoning() {
  if (is_reasoning_) std::fputs(is_terminal_ ? "\033[0m\n" : "\n", stdout);
  is_reasoning_ = false;
}

void Conversation::Show(const ChatDelta& delta) {
  if (!delta.reasoning.empty()) {
    if (!is_reasoning_ && is_terminal_) std::fputs("\033[2m", stdout);
    is_reasoning_ = true;
    std::fwrite(delta.reasoning.data(), 1, delta.reasoning.size(), stdout);
  }
  if (!delta.content.empty()) {
    EndReasoning();
    std::fwrite(delta.content.data(), 1, delta.content.size(), stdout);
    answer_ += delta.content;
  }
  std::fflush(stdout);
}

Status Conversation::Say(const std::string& text) {
  OrderedJson messages = messages_;
  messages.push_back({{"role", "user"}, {"content", text}});
  OrderedJson body = {{"model", options_.model}, {"messages", messages}, {"stream", true}};
  if (options_.max_tokens > 0) body["max_tokens"] = options_.max_tokens;
  net::HttpRequest request = RequestTo("/v1/chat/completions");
  request.method = "POST";
  request.body = body.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  answer_.clear();
  EventReader events;
  Status failure;
  std::string refusal;  // the body of an answer that is no success
  request.on_body = [&](const net::HttpHead& head, std::string_view part) {
    if (head.status != 200) {
      refusal +=
          part.substr(0, kMaxChatAnswerBytes - std::min(refusal.size(), kMaxChatAnswerBytes));
      return true;
    }
    events.Append(part);
    for (std::string data; failure.ok() && events.Next(data);) {
      if (data == "[DONE]") continue;
      Result<ChatDelta> delta = ParseChatDelta(data);
      if (delta.ok()) {
        Show(*delta);
      } else {
        failure = std::move(delta).status();
      }
    }
    return failure.ok();
  };
  request.is_cancelled = [] { return was_interrupted != 0; };
  const Result<net::HttpHead> head = client_.Send(request);
  EndReasoning();
  std::fputs("\n", stdout);
  std::fflush(stdout);
  if (!failure.ok()) return failure;
  if (!head.ok() && !was_interrupted) return Status(head.status()).WithContext(options_.url);
  if (head.ok() && head->status != 200) {
    return UnavailableError("the server answers ", head->status, ": ", ErrorText(refusal));
  }
  messages_ = std::move(messages);
  messages_.push_back({{"role", "assistant"}, {"content", answer_}});
  return Status::Ok();
}

// Returns false if the conversation is to end.
bool RunChatCommand(const std::string& line, Conversation& conversation) {
  const size_t space = std::min(line.find(' '), line.size());
  const std::string command = line.substr(0, space);
  if (command == "/exit" || command == "/quit") return false;
  if (command == "/reset") {
    conversation.Restart();
  } else if (command == "/system") {
    conversation.SetSystem(line.substr(std::min(space + 1, line.size())));
  } else if (command == "/help") {
    std::fputs(kHelp, stdout);
  } else {
    std::fprintf(stderr, "unknown command '%s'%s; /help lists the commands\n", command.c_str(),
                 DidYouMean(command, {"/system", "/reset", "/help", "/exit"}).c_str());
  }
  return true;
}

// Reads a line from standard input. False at its end, or if Ctrl-C was pressed.
bool ReadLine(std::string& line) {
  line.clear();
  while (true) {
    char c = 0;
    const ssize_t count = read(STDIN_FILENO, &c, 1);
    if (count <= 0) return count == 0 && !line.empty();
    if (c == '\n') return true;
    line += c;
  }
}

// Returns the exit status: 1 if input that is no terminal could not be answered.
int Talk(Conversation& conversation) {
  const bool asks = isatty(STDIN_FILENO) != 0;
  if (asks) std::printf("%s - /help lists the commands\n", conversation.model().c_str());
  while (true) {
    if (asks) std::fputs("> ", stdout);
    std::fflush(stdout);
    was_interrupted = 0;
    std::string line;
    if (!ReadLine(line)) break;
    if (line.empty()) continue;
    if (line.starts_with("/")) {
      if (!RunChatCommand(line, conversation)) return 0;
      continue;
    }
    const Status status = conversation.Say(line);
    if (status.ok()) continue;
    (void)FailCommand("chat", status, 1);
    if (!asks) return 1;
  }
  if (asks) std::fputs("\n", stdout);
  return 0;
}

}  // namespace

int RunChat(const std::vector<std::string>& args) {
  Result<ChatOptions> options = ParseChatOptions(args);
  if (!options.ok()) return FailCommand("chat", options.status(), 2);
  if (options->show_help) {
    std::fputs(kChatUsage, stdout);
    return 0;
  }
  Result<net::HttpClient> client = net::HttpClient::Create();
  if (!client.ok()) return FailCommand("chat", client.status(), 1);
  Conversation conversation(std::move(*options), std::move(*client));
  if (const Status status = conversation.FindModel(); !status.ok())
    return FailCommand("chat", status, 1);
  struct sigaction action {};
  action.sa_handler = &OnInterrupt;  // without SA_RESTART, so that it ends a read
  sigaction(SIGINT, &action, nullptr);
  return Talk(conversation);
}

}  // namespace nereid::cli
