// The base of all parsers that read a text from marker to marker. A step consumes text whose
// meaning is certain, whatever follows it, so that the result does not depend on how the text is
// cut. [one thread at a time]
#pragma once

#include <string>
#include <string_view>

#include "backends/tokenizer/lib/chat/parsers/answer_writer.h"
#include "backends/tokenizer/lib/chat/parsers/text_input.h"

namespace nereid::tokenizer::parsers {

// No function has a longer name. Calls with longer ones are content.
inline constexpr size_t kMaxNameBytes = 256;

// Whether a model's text can be the name of a function.
inline bool IsFunctionName(std::string_view name) {
  if (name.empty() || name.size() > kMaxNameBytes) return false;
  constexpr std::string_view kForbidden = "<>{}[]()\"'`,;=\\";
  for (const char byte : name) {
    if (static_cast<unsigned char>(byte) <= 0x20 || kForbidden.find(byte) != std::string_view::npos)
      return false;
  }
  return true;
}

class TextMachine {
 public:
  // `writer` outlives the machine.
  explicit TextMachine(AnswerWriter& writer) : writer_(writer) {}
  virtual ~TextMachine() = default;

  void Push(std::string_view text) {
    input_.Append(text);
    while (Step()) {
    }
    input_.Compact();
  }
  void Finish() {
    input_.End();
    while (Step()) {
    }
    OnEnd();
  }

 protected:
  // Consumes text or changes the state. False if that needs more text than there is.
  virtual bool Step() = 0;
  // The text has ended and no step is possible: writes what was held back.
  virtual void OnEnd() = 0;

  // Consumes white space, and appends it to `kept` if that is not null. False if no text follows.
  bool TakeSpace(std::string* kept);
  // Consumes white space and reads which of `markers` follows, if one does, without consuming it.
  // False if that needs more text than there is. What the text's end cuts off of a marker is
  // dropped.
  bool ReadNext(Markers markers, size_t& which);

  AnswerWriter& writer_;
  TextInput input_;
};

}  // namespace nereid::tokenizer::parsers
