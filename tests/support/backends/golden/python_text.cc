// See python_text.h.
#include "tests/support/backends/golden/python_text.h"

#include <charconv>
#include <cmath>

namespace nereid::golden {

namespace {

// The shortest text that reads back as the same number; whole numbers keep ".0".
std::string FloatText(double value) {
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), value);
  std::string text(buffer, end);
  if (std::isfinite(value) && text.find_first_of(".e") == text.npos) text += ".0";
  return text;
}

std::string ValueText(const ParameterView& parameter) {
  switch (parameter.type) {
    case TRITONSERVER_PARAMETER_STRING:
      return Quoted(parameter.AsString());
    case TRITONSERVER_PARAMETER_INT:
      return std::to_string(parameter.AsInt());
    case TRITONSERVER_PARAMETER_BOOL:
      return parameter.AsBool() ? "true" : "false";
    case TRITONSERVER_PARAMETER_DOUBLE:
      return FloatText(parameter.AsDouble());
    case TRITONSERVER_PARAMETER_BYTES:
      break;
  }
  return "null";
}

}  // namespace

std::string Quoted(std::string_view text) {
  return Json(std::string(text)).Dump();
}

Result<std::string> ParametersJson(const Request& request, Spacing spacing) {
  const bool is_compact = spacing == Spacing::kCompact;
  NEREID_ASSIGN_OR_RETURN(const std::vector<ParameterView> parameters, request.Parameters());
  std::string text = "{";
  for (const ParameterView& parameter : parameters) {
    if (text.size() > 1) text += is_compact ? "," : ", ";
    text += Quoted(parameter.name) + (is_compact ? ":" : ": ") + ValueText(parameter);
  }
  return text + "}";
}

std::string Traceback(const ModelContext& model, std::string_view error, int line,
                      std::string_view function) {
  const std::string file = model.version_directory() / "model.py";
  return StrCat(error, "\n\nAt:\n  ", file, "(", line, "): ", function, "\n");
}

}  // namespace nereid::golden
