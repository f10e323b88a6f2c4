// GET /openapi.json: the routes and their fields, from the tables that serve them.
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "host/frontend/openai/fields/field_table.h"
#include "host/frontend/openai/routes/api_routes.h"

namespace nereid::openai {
namespace {

using Json = nlohmann::ordered_json;

Json TextSchema() {
  return {{"type", "string"}};
}

void AddRange(Json& schema, const Field& field) {
  if (field.min == field.max) return;
  schema["minimum"] = field.min;
  schema["maximum"] = field.max;
}

Json SchemaOf(const Field& field) {
  Json schema = Json::object();
  switch (field.kind) {
    case FieldKind::kBool:
      schema["type"] = "boolean";
      break;
    case FieldKind::kInteger:
      schema["type"] = "integer";
      AddRange(schema, field);
      break;
    case FieldKind::kNumber:
      schema["type"] = "number";
      AddRange(schema, field);
      break;
    case FieldKind::kText:
      schema = TextSchema();
      break;
    case FieldKind::kTexts:
      schema = {{"type", "array"}, {"items", TextSchema()}, {"maxItems", field.max}};
      break;
    case FieldKind::kTextOrTexts:
      schema["anyOf"] = {TextSchema(),
                         {{"type", "array"}, {"items", TextSchema()}, {"maxItems", field.max}}};
      break;
    case FieldKind::kIntegers: {
      Json item = {{"type", "integer"}};
      AddRange(item, field);
      schema = {{"type", "array"}, {"items", item}};
      break;
    }
    case FieldKind::kObject:
      schema["type"] = "object";
      break;
    case FieldKind::kArray:
      schema = {{"type", "array"}, {"items", Json::object()}};
      break;
    case FieldKind::kAny:
      break;
  }
  schema["description"] = std::string(field.note);
  return schema;
}

Json BodySchema(uint16_t fields) {
  Json properties = Json::object();
  for (const Field& field : Fields()) {
    const bool is_offered = (field.routes & fields) != 0 && field.handling != Handling::kRefused;
    if (is_offered) properties[std::string(field.name)] = SchemaOf(field);
  }
  const bool is_adapter = (fields & (kLoadAdapter | kUnloadAdapter)) != 0;
  Json required = {is_adapter ? "lora_name" : "model"};
  if ((fields & kLoadAdapter) != 0) required.push_back("lora_path");
  if ((fields & (kChat | kMessages)) != 0) required.push_back("messages");
  if ((fields & kMessages) != 0) required.push_back("max_tokens");
  if ((fields & kResponses) != 0) required.push_back("input");
  if ((fields & kCompletions) != 0) required.push_back("prompt");
  if ((fields & kDetokenize) != 0) required.push_back("tokens");
  return {{"type", "object"},
          {"properties", properties},
          {"required", required},
          {"additionalProperties", false}};
}

Json ErrorResponse() {
  Json members = {{"message", TextSchema()}, {"type", TextSchema()}};
  for (const char* const name : {"param", "code"}) members[name] = {{"type", {"string", "null"}}};
  const Json error = {{"type", "object"}, {"properties", members}};
  const Json schema = {{"type", "object"}, {"properties", {{"error", error}}}};
  return {{"description", "the request is refused or has failed"},
          {"content", {{"application/json", {{"schema", schema}}}}}};
}

Json Operation(const ApiRoute& route) {
  Json operation = {{"summary", std::string(route.summary)},
                    {"responses",
                     {{"200", {{"description", "the answer"}}},
                      {"4XX", ErrorResponse()},
                      {"5XX", ErrorResponse()}}}};
  if (route.path.ends_with('/')) {
    operation["parameters"] = {
        {{"name", "id"}, {"in", "path"}, {"required", true}, {"schema", TextSchema()}}};
  }
  if (route.fields != 0) {
    operation["requestBody"] = {
        {"required", true},
        {"content", {{"application/json", {{"schema", BodySchema(route.fields)}}}}}};
  }
  return operation;
}

const char* MethodName(http::Method method) {
  if (method == http::Method::kGet) return "get";
  return method == http::Method::kDelete ? "delete" : "post";
}

// `context`: of the port whose routes are described.
std::string MakeDescription(const ApiContext& context) {
  Json paths = Json::object();
  for (const ApiRoute& route : ApiRoutes()) {
    if (!IsServed(context, route)) continue;
    const std::string path = std::string(route.path) + (route.path.ends_with('/') ? "{id}" : "");
    paths[path + std::string(route.suffix)][MethodName(route.method)] = Operation(route);
  }
  const Json description = {
      {"openapi", "3.1.0"}, {"info", {{"title", "Nereid"}, {"version", "1"}}}, {"paths", paths}};
  return description.dump(-1);
}

}  // namespace

void HandleOpenApi(ApiContext& context, HttpConnection& connection, const RequestHead&,
                   RequestBody) {
  static const std::string description = MakeDescription(context);
  connection.Reply({}, description);
}

}  // namespace nereid::openai
