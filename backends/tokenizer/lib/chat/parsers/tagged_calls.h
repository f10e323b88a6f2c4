// Finds calls that name each argument in a tag of its own and write its value as plain text. The
// schemas of the functions say what type the text has. [one thread at a time]
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "backends/tokenizer/lib/chat/parsers/text_machine.h"

namespace nereid::tokenizer::parsers {

// The form of a family's calls. White space between the parts is always allowed.
struct TaggedFormat {
  std::string_view begin, end;  // around one call or several
  // Around the name; empty: the name ends with its line. A name whose tag ends with a quote ends at
  // the next one.
  std::string_view name_begin, name_end;
  std::string_view key_begin, key_end;  // around the name of an argument
  std::string_view value_begin;         // behind key_end; may be empty
  std::string_view value_end;
  std::string_view call_end;  // of one call; empty: `end` ends it
  // A call may also begin with `name_begin` alone.
  bool has_bare_calls = false;
  // What stands between the name of an argument and its type, and how the type of a string begins.
  // An argument of another type is JSON. Empty: the schema of the function says the type.
  std::string_view type_begin = {}, string_type = {};
  // The names of functions and arguments have &quot; and &amp; for these characters.
  bool has_entities = false;
  // Values stand on lines of their own: one line break at each end does not belong to them.
  bool has_value_lines = false;
};

class TaggedCalls : public TextMachine {
 public:
  // `format` outlives the machine.
  TaggedCalls(AnswerWriter& writer, const TaggedFormat& format,
              std::shared_ptr<const ToolSchemas> tools);

 protected:
  bool Step() override;
  void OnEnd() override;

 private:
  enum class State {
    kContent,
    kCallBegin,
    kName,
    kMember,
    kKey,
    kValueTag,
    kValueBegin,
    kValue,
    kCallEnd
  };

  bool StepContent();
  bool StepCallBegin();
  bool StepName();
  bool StepMember();
  bool StepKey();
  bool StepValueTag();
  bool StepValueBegin();
  bool StepValue();
  bool StepCallEnd();
  bool BeginName();
  void EndKey();
  void EndCall();
  void Reject();

  const TaggedFormat& format_;
  const std::shared_ptr<const ToolSchemas> tools_;
  const std::string value_line_end_;  // the end of a value with its line break, or empty
  State state_ = State::kContent;
  std::string held_;  // text that becomes content if no call comes of it
  std::string name_, key_, value_;
  std::string space_;    // between a key and its value
  ArgumentTypes types_;  // of the current argument
  bool is_written_ = false;
  size_t num_arguments_ = 0;
};

}  // namespace nereid::tokenizer::parsers
