#include "net/http_client.h"

#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#include <dlfcn.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <utility>

namespace nereid::net {
namespace {

constexpr char kLibrary[] = "libcurl.so.4";
constexpr size_t kMaxHeadBytes = size_t{256} << 10;

// The functions of libcurl that are used; valid after OpenCurl has returned Ok.
struct CurlFunctions {
  CURLcode (*global_init)(long) = nullptr;
  CURL* (*easy_init)() = nullptr;
  CURLcode (*easy_setopt)(CURL*, CURLoption, ...) = nullptr;
  CURLcode (*easy_perform)(CURL*) = nullptr;
  void (*easy_reset)(CURL*) = nullptr;
  void (*easy_cleanup)(CURL*) = nullptr;
  const char* (*easy_strerror)(CURLcode) = nullptr;
  curl_slist* (*slist_append)(curl_slist*, const char*) = nullptr;
  void (*slist_free_all)(curl_slist*) = nullptr;
} curl;

template <typename Function>
bool Find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  return function != nullptr;
}

Status OpenCurlOnce() {
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    return UnavailableError("requests over HTTP need ", kLibrary,
                            " (Debian's package libcurl4): ", dlerror());
  }
  const bool is_complete = Find(library, "curl_global_init", curl.global_init) &&
                           Find(library, "curl_easy_init", curl.easy_init) &&
                           Find(library, "curl_easy_setopt", curl.easy_setopt) &&
                           Find(library, "curl_easy_perform", curl.easy_perform) &&
                           Find(library, "curl_easy_reset", curl.easy_reset) &&
                           Find(library, "curl_easy_cleanup", curl.easy_cleanup) &&
                           Find(library, "curl_easy_strerror", curl.easy_strerror) &&
                           Find(library, "curl_slist_append", curl.slist_append) &&
                           Find(library, "curl_slist_free_all", curl.slist_free_all);
  if (!is_complete) return UnavailableError(kLibrary, ": ", dlerror());
  if (curl.global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK) return Status::Ok();
  return UnavailableError(kLibrary, ": cannot be initialized");
}

Status OpenCurl() {
  static const Status opened = OpenCurlOnce();
  return opened;
}

// One request in progress, for the callbacks of libcurl.
struct Exchange {
  const HttpRequest& request;
  HttpHead head;
  size_t head_bytes = 0;
  bool was_ended = false;  // by on_body or is_cancelled
};

std::string_view Trim(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

// The status of "HTTP/1.1 206 Partial Content"; 0 if there is none.
int StatusOf(std::string_view line) {
  int status = 0;
  const size_t space = std::min(line.find(' '), line.size());
  for (const char c : line.substr(space).substr(line.size() > space ? 1 : 0)) {
    if (c < '0' || c > '9' || status > 999) break;
    status = status * 10 + (c - '0');
  }
  return status;
}

size_t OnHeader(char* data, size_t size, size_t count, void* user) {
  Exchange& exchange = *static_cast<Exchange*>(user);
  const std::string_view line(data, size * count);
  exchange.head_bytes += line.size();
  if (exchange.head_bytes > kMaxHeadBytes) return 0;
  if (line.starts_with("HTTP/")) {  // an answer follows each 1xx answer
    exchange.head = {StatusOf(line), {}};
    return line.size();
  }
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return line.size();
  std::string name(Trim(line.substr(0, colon)));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  exchange.head.headers[name] = Trim(line.substr(colon + 1));
  return line.size();
}

size_t OnBody(char* data, size_t size, size_t count, void* user) {
  Exchange& exchange = *static_cast<Exchange*>(user);
  const size_t num_bytes = size * count;
  if (!exchange.request.on_body || exchange.request.on_body(exchange.head, {data, num_bytes})) {
    return num_bytes;
  }
  exchange.was_ended = true;
  return num_bytes + 1;  // which libcurl reports as CURLE_WRITE_ERROR
}

int OnProgress(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  Exchange& exchange = *static_cast<Exchange*>(user);
  if (!exchange.request.is_cancelled || !exchange.request.is_cancelled()) return 0;
  exchange.was_ended = true;
  return 1;
}

// As curl's command line, which the library does not do by itself. Null: the system's.
const char* RootsPath(const HttpRequest& request) {
  if (!request.roots_path.empty()) return request.roots_path.c_str();
  const char* const file = std::getenv("SSL_CERT_FILE");
  return file == nullptr || *file == '\0' ? nullptr : file;
}

}  // namespace

std::string HttpHead::Header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? std::string() : found->second;
}

struct HttpClient::Handle {
  CURL* easy = nullptr;
  ~Handle() { curl.easy_cleanup(easy); }
};

HttpClient::HttpClient(std::unique_ptr<Handle> handle) : handle_(std::move(handle)) {}
HttpClient::HttpClient(HttpClient&&) noexcept = default;
HttpClient& HttpClient::operator=(HttpClient&&) noexcept = default;
HttpClient::~HttpClient() = default;

Result<HttpClient> HttpClient::Create() {
  NEREID_RETURN_IF_ERROR(OpenCurl());
  CURL* const easy = curl.easy_init();
  if (easy == nullptr) return UnavailableError(kLibrary, ": no memory");
  auto handle = std::make_unique<Handle>();
  handle->easy = easy;
  return HttpClient(std::move(handle));
}

Result<HttpHead> HttpClient::Send(const HttpRequest& request) {
  CURL* const easy = handle_->easy;
  curl.easy_reset(easy);  // connections stay open
  Exchange exchange{request, {}, 0, false};
  char error[CURL_ERROR_SIZE] = "";
  curl_slist* headers = nullptr;
  for (const std::string& header : request.headers) {
    headers = curl.slist_append(headers, header.c_str());
  }
  const auto set = [&](CURLoption option, auto value) { curl.easy_setopt(easy, option, value); };
  set(CURLOPT_URL, request.url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_USERAGENT, "nereid");
  set(CURLOPT_HTTPHEADER, headers);
  set(CURLOPT_ERRORBUFFER, error);
  set(CURLOPT_CONNECTTIMEOUT, 30L);
  if (request.stall_timeout_s > 0) {
    set(CURLOPT_LOW_SPEED_LIMIT, 1L);
    set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(request.stall_timeout_s));
  }
  if (request.timeout_s > 0) set(CURLOPT_TIMEOUT, static_cast<long>(request.timeout_s));
  if (const char* const roots = RootsPath(request)) set(CURLOPT_CAINFO, roots);
  if (request.method == "HEAD") {
    set(CURLOPT_NOBODY, 1L);
  } else if (request.method == "POST") {
    set(CURLOPT_POST, 1L);
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
    set(CURLOPT_POSTFIELDS, request.body.c_str());
  }
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_XFERINFOFUNCTION, &OnProgress);
  set(CURLOPT_XFERINFODATA, &exchange);
  set(CURLOPT_HEADERFUNCTION, &OnHeader);
  set(CURLOPT_HEADERDATA, &exchange);
  set(CURLOPT_WRITEFUNCTION, &OnBody);
  set(CURLOPT_WRITEDATA, &exchange);
  const CURLcode code = curl.easy_perform(easy);
  curl.slist_free_all(headers);
  if (code == CURLE_OK) return std::move(exchange.head);
  if (exchange.was_ended) return CancelledError("the request was ended");
  return UnavailableError(error[0] != '\0' ? error : curl.easy_strerror(code));
}

Result<std::string> ReadBody(HttpClient& client, HttpRequest request, size_t max_bytes,
                             HttpHead& head) {
  std::string body;
  bool is_too_long = false;
  request.on_body = [&](const HttpHead&, std::string_view part) {
    is_too_long = part.size() > max_bytes - body.size();
    if (!is_too_long) body += part;
    return !is_too_long;
  };
  Result<HttpHead> sent = client.Send(request);
  if (is_too_long) {
    return InvalidArgError(request.url, ": the answer has more than ", max_bytes, " bytes");
  }
  NEREID_ASSIGN_OR_RETURN(head, std::move(sent));
  return body;
}

}  // namespace nereid::net
