#include "host/cli/hub_connection.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "base/file_content.h"
#include "host/cli/hub_cache.h"

namespace nereid::cli {
namespace {

constexpr int kMaxHubAttempts = 3;
constexpr size_t kMaxHubAnswerBytes = size_t{32} << 20;

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

std::string Trimmed(std::string text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.pop_back();
  return text;
}

Result<std::string> FindToken() {
  constexpr size_t kMaxTokenBytes = 4096;
  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}) {
    if (std::string token = Variable(name); !token.empty()) return token;
  }
  std::string path = Variable("HF_TOKEN_PATH");
  if (path.empty()) path = HubHome() + "/token";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::string();
  NEREID_ASSIGN_OR_RETURN(std::string text, ReadFile(path, kMaxTokenBytes));
  return text;
}

}  // namespace

bool IsTransient(int status) {
  return status == 408 || status == 429 || status >= 500;
}

bool IsRedirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

void PauseBeforeRetry(int attempt) {
  std::this_thread::sleep_for(std::chrono::milliseconds(500 << std::min(attempt, 4)));
}

std::vector<std::string> HeadersFor(const HubConnection& hub, const std::string& url) {
  std::vector<std::string> headers{"Accept-Encoding: identity"};
  if (!hub.token.empty() && OriginOf(url) == OriginOf(hub.endpoint)) {
    headers.push_back("Authorization: Bearer " + hub.token);
  }
  return headers;
}

Result<HubConnection> HubConnection::FromEnvironment() {
  HubConnection hub;
  hub.endpoint = Variable("HF_ENDPOINT");
  if (hub.endpoint.empty()) hub.endpoint = "https://huggingface.co";
  while (hub.endpoint.ends_with('/')) hub.endpoint.pop_back();
  if (OriginOf(hub.endpoint).empty()) {
    return InvalidArgError("HF_ENDPOINT: expected a URL with http or https, got '", hub.endpoint,
                           "'");
  }
  std::string offline = Variable("HF_HUB_OFFLINE");
  std::transform(offline.begin(), offline.end(), offline.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  hub.is_offline = offline == "1" || offline == "ON" || offline == "YES" || offline == "TRUE";
  NEREID_ASSIGN_OR_RETURN(std::string token, FindToken());
  hub.token = Trimmed(std::move(token));
  if (std::any_of(hub.token.begin(), hub.token.end(), [](char c) { return c <= ' ' || c > '~'; })) {
    return InvalidArgError("the token for the hub contains a character that a header cannot have");
  }
  return hub;
}

Status HubError(const HubConnection& hub, const HubId& id, const std::string& what,
                const net::HttpHead& head) {
  const std::string subject = StrCat("'", id.repository(), "': ", what, ": ",
                                     OriginOf(hub.endpoint), " answers ", head.status);
  const std::string code = head.Header("x-error-code");
  const std::string page = StrCat(hub.endpoint, "/", id.repository());
  if (code == "GatedRepo") {
    return UnavailableError(subject, ": the model is gated: accept its conditions at ", page,
                            " and set HF_TOKEN to a token of that account");
  }
  if (head.status == 401) {
    return UnavailableError(
        subject, hub.token.empty() ? ": the model does not exist, or it is private or gated: set "
                                     "HF_TOKEN to a token that may read it"
                                   : ": the model does not exist, or the token (HF_TOKEN) is not "
                                     "valid");
  }
  if (head.status == 403) {
    return UnavailableError(subject,
                            ": the token (HF_TOKEN) may not read the model: accept its "
                            "conditions at ",
                            page, ", or use a token with the right to read it");
  }
  if (head.status == 404) {
    return NotFoundError(subject, ": there is no such model, revision or file; the revision is '",
                         id.revision, "'");
  }
  if (head.status == 429) {
    return UnavailableError(subject, ": too many requests: wait, or set HF_TOKEN");
  }
  return UnavailableError(subject);
}

Result<std::string> AskHub(net::HttpClient& client, const HubConnection& hub, const HubId& id,
                           const std::string& path, const DownloadEvents& events) {
  std::string url = hub.endpoint + path;
  int num_redirects = 0;
  for (int attempt = 0;;) {
    net::HttpRequest request;
    request.url = url;
    request.headers = HeadersFor(hub, url);
    net::HttpHead head;
    Result<std::string> body = net::ReadBody(client, request, kMaxHubAnswerBytes, head);
    if (body.ok() && head.status == 200) return body;
    if (body.ok() && IsRedirect(head.status) && num_redirects++ < kMaxRedirects) {
      NEREID_ASSIGN_OR_RETURN(url, RedirectTarget(url, head.Header("location")));
      continue;
    }
    Status status = body.ok() ? HubError(hub, id, "revision '" + id.revision + "'", head)
                              : body.status().WithContext(OriginOf(url));
    const bool may_repeat =
        body.ok() ? IsTransient(head.status) : status.code() == StatusCode::kUnavailable;
    if (!may_repeat || attempt + 1 >= kMaxHubAttempts) return status;
    events.on_note(StrCat(status.message(), "; trying again"));
    PauseBeforeRetry(attempt++);
  }
}

std::string OriginOf(const std::string& url) {
  const size_t scheme = url.find("://");
  if (scheme == std::string::npos) return "";
  const size_t end = std::min(url.find_first_of("/?#", scheme + 3), url.size());
  std::string origin = url.substr(0, end);
  std::transform(origin.begin(), origin.end(), origin.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const bool is_web = origin.starts_with("http://") || origin.starts_with("https://");
  return is_web && origin.size() > scheme + 3 ? origin : "";
}

Result<std::string> RedirectTarget(const std::string& url, const std::string& location) {
  std::string target = location;
  if (location.starts_with("//")) {
    target = url.substr(0, url.find("//")) + location;
  } else if (location.starts_with("/")) {
    target = OriginOf(url) + location;
  }
  if (OriginOf(target).empty()) {
    return InvalidArgError(url, ": redirects to '", location.substr(0, 200),
                           "', which is no URL with http or https");
  }
  if (url.starts_with("https:") && !OriginOf(target).starts_with("https:")) {
    return InvalidArgError(url, ": redirects to '", OriginOf(target), "' without TLS");
  }
  return target;
}

std::string PlainETag(std::string tag) {
  if (tag.starts_with("W/")) tag.erase(0, 2);
  if (tag.size() >= 2 && tag.front() == '"' && tag.back() == '"')
    tag = tag.substr(1, tag.size() - 2);
  return tag;
}

}  // namespace nereid::cli
