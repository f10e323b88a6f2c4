// Texts as Python would write them: request parameters as JSON, exceptions with their place.
// [any thread]
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "nereid/backend.h"

namespace nereid::golden {

// What separates the parts of a JSON text: json.dumps puts a space there, pb_utils none.
enum class Spacing { kCompact, kJsonDumps };

Result<std::string> ParametersJson(const Request& request, Spacing spacing);
// `text` as a JSON string, quotes included.
std::string Quoted(std::string_view text);

// "RuntimeError: boom\n\nAt:\n  <model>/1/model.py(10): execute\n".
std::string Traceback(const ModelContext& model, std::string_view error, int line,
                      std::string_view function);

}  // namespace nereid::golden
