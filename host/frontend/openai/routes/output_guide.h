// The fields that say what form an answer must have (response_format, structured_outputs and the
// older guided_*), as a guide of the model. Pure. [any thread]
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "host/frontend/openai/fields/parsed_body.h"
#include "nereid/status.h"

namespace nereid::openai {

struct OutputGuide {
  const FieldValue* field = nullptr;  // that asked for it
  std::string_view type;              // of the input guided_decoding_guide_type
  std::string text;                   // of the input guided_decoding_guide
};

// Nothing if the client leaves the form open. Refuses two fields at a time. What the guide itself
// says is checked where it is compiled.
Result<std::optional<OutputGuide>> ReadOutputGuide(ParsedBody& body);

}  // namespace nereid::openai
