// See http_status.h.
#include "host/frontend/http/transport/http_status.h"

#include "host/frontend/http/json/json_writer.h"

namespace nereid::http {

std::string_view ReasonPhrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 302:
      return "Found";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    case 507:
      return "Insufficient Storage";
    default:
      return "Unknown";
  }
}

int ToHttpStatus(StatusCode code) {
  switch (code) {
    case StatusCode::kInternal:
      return 500;
    case StatusCode::kNotFound:
      return 404;
    case StatusCode::kUnavailable:
      return 503;
    case StatusCode::kUnsupported:
      return 501;
    default:
      return 400;
  }
}

std::string ErrorBody(std::string_view message) {
  std::string json = "{\"error\":";
  AppendLossyJsonString(json, message);
  json += '}';
  return json;
}

}  // namespace nereid::http
