#include "backends/tokenizer/lib/chat/parsers/text_machine.h"

#include "backends/tokenizer/lib/chat/parsers/json_text.h"

namespace nereid::tokenizer::parsers {

bool TextMachine::TakeSpace(std::string* kept) {
  const std::string_view space = input_.Take(CountSpace(input_.rest()));
  if (kept != nullptr) *kept += space;
  return !input_.empty();
}

bool TextMachine::ReadNext(Markers markers, size_t& which) {
  if (!TakeSpace(nullptr)) return false;
  if (input_.EndsWithin(markers)) {
    input_.Take(input_.rest().size());
    return false;
  }
  which = TextInput::kNone;
  return input_.BeginsWith(markers, which) != TextInput::Match::kUnknown;
}

}  // namespace nereid::tokenizer::parsers
