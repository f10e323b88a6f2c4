#include "host/frontend/openai/fields/api_error.h"

#include <string>

#include "host/frontend/http/json/json_writer.h"

namespace nereid::openai {
namespace {

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

void AppendMember(std::string& json, std::string_view name, std::string_view text) {
  json += ",\"";
  json += name;
  json += "\":";
  if (text.empty()) {
    json += "null";
  } else {
    http::AppendLossyJsonString(json, text);
  }
}

}  // namespace

std::string_view ErrorType(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    default:
      return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

std::string ErrorJson(const ApiError& error) {
  std::string json = "{\"error\":{\"message\":";
  http::AppendLossyJsonString(json, error.message);
  json += ",\"type\":\"";
  json += ErrorType(error.status);
  json += '"';
  AppendMember(json, "param", error.param);
  AppendMember(json, "code", error.code);
  json += "}}";
  return json;
}

ApiError ToApiError(const Status& status) {
  ApiError error{.status = 400, .message = status.message()};
  switch (status.code()) {
    case StatusCode::kNotFound:
      error.status = 404;
      break;
    case StatusCode::kUnavailable:
      error.status = 503;
      if (Contains(error.message, "Exceeds maximum queue size")) {
        error.status = 429;
        error.code = "queue_full";
      }
      break;
    case StatusCode::kInvalidArg:
      if (Contains(error.message, "prompt of ") && Contains(error.message, "the model's limit")) {
        error.code = "context_length_exceeded";
      }
      for (const std::string_view field : {"tools", "documents"}) {
        const std::string unknown = "the chat template does not know " + std::string(field);
        if (!Contains(error.message, unknown)) continue;
        error.param = field;
        error.code = "unsupported_parameter";
      }
      break;
    case StatusCode::kUnsupported:
    case StatusCode::kAlreadyExists:
      break;
    default:
      error.status = 500;
  }
  return error;
}

}  // namespace nereid::openai
