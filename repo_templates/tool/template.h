// Puts values into the ${placeholders} of a template. [any thread]
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "nereid/status.h"

namespace nereid::repo {

using TemplateValues = std::map<std::string, std::string>;

// Every placeholder has a value, or the error names it with its line. `name` is the template's, for
// errors. Values inside quotes are escaped as the text format wants it.
Result<std::string> FillTemplate(std::string_view text, const TemplateValues& values,
                                 const std::string& name);

}  // namespace nereid::repo
