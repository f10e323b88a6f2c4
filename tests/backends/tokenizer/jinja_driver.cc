// Renders templates for tests in Python. Reads one JSON object a line from standard input:
// {"template": text, "input": {variables from clients}, "trusted": {other variables}}; "now" is
// 2024-07-26 12:34:56. Writes one a line: {"text": ..., "input_ranges": [[begin, end], ...]} or
// {"error": message}.
#include <ctime>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "backends/tokenizer/lib/chat/jinja/template.h"

namespace nereid::tokenizer::jinja {
namespace {

using Json = nlohmann::ordered_json;

Status AddVariables(const Json& variables, bool is_input, Dict& context) {
  for (const auto& [name, json] : variables.items()) {
    NEREID_ASSIGN_OR_RETURN(Value value, FromJson(json, is_input));
    context.Set(Value(name), std::move(value));
  }
  return {};
}

Result<MarkedText> Render(const Json& request) {
  NEREID_ASSIGN_OR_RETURN(const auto parsed,
                          Template::Parse(request.at("template").get<std::string>()));
  Dict context;
  NEREID_RETURN_IF_ERROR(AddVariables(request.value("input", Json::object()), true, context));
  NEREID_RETURN_IF_ERROR(AddVariables(request.value("trusted", Json::object()), false, context));
  std::tm now{};
  now.tm_year = 124;
  now.tm_mon = 6;
  now.tm_mday = 26;
  now.tm_hour = 12;
  now.tm_min = 34;
  now.tm_sec = 56;
  now.tm_wday = 5;
  now.tm_yday = 207;
  return parsed->Render(context, now);
}

Json Answer(const Json& request) {
  const Result<MarkedText> text = Render(request);
  if (!text.ok()) return {{"error", text.status().message()}};
  Json ranges = Json::array();
  for (const ByteRange& range : text->input_ranges()) ranges.push_back({range.begin, range.end});
  return {{"text", text->bytes()}, {"input_ranges", ranges}};
}

}  // namespace
}  // namespace nereid::tokenizer::jinja

int main() {
  std::ios::sync_with_stdio(false);
  for (std::string line; std::getline(std::cin, line);) {
    const auto request = nereid::tokenizer::jinja::Json::parse(line);
    std::cout << nereid::tokenizer::jinja::Answer(request).dump(
                     -1, ' ', true, nlohmann::json::error_handler_t::replace)
              << std::endl;
  }
}
