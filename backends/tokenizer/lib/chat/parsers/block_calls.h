// Finds calls in blocks: stretches of text that begin with a marker, or with the answer itself, and
// contain JSON objects or Python calls, alone or in a list. [one thread at a time]
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "backends/tokenizer/lib/chat/parsers/json_call_reader.h"
#include "backends/tokenizer/lib/chat/parsers/python_literal.h"
#include "backends/tokenizer/lib/chat/parsers/text_machine.h"

namespace nereid::tokenizer::parsers {

// The form of a family's blocks. The texts of its markers must live longer than the
// parsers that use them. White space between the parts is
// always allowed.
struct BlockFormat {
  Markers begins = {};
  // What may follow the calls of a block.
  Markers ends = {};
  // The answer may begin with a block without a marker. Only offered functions are calls there.
  bool opens_answer = false;
  bool has_objects = false;       // {"name": "f", "arguments": {}}
  bool has_lists = false;         // [{...}, {...}]
  bool has_python_lists = false;  // [f(x=1), g()]
  bool has_python_calls = false;  // f(x=1), behind a marker only
};

class BlockCalls : public TextMachine {
 public:
  // `format` outlives the machine.
  BlockCalls(AnswerWriter& writer, const BlockFormat& format,
             std::shared_ptr<const ToolSchemas> tools)
      : TextMachine(writer),
        format_(format),
        tools_(std::move(tools)),
        state_(format.opens_answer ? State::kAnswerBegin : State::kContent) {}

 protected:
  bool Step() override;
  void OnEnd() override;

 private:
  enum class State {
    kAnswerBegin,
    kContent,
    kBlockBegin,  // behind a marker, or at the first byte of the answer
    kElement,     // where a call of a list or of a sequence may begin
    kJsonCall,
    kPythonName,
    kPythonCall,
    kCallEnd,
    kBlockEnd,  // behind the closing bracket of a list
  };

  bool StepAnswerBegin();
  bool StepContent();
  bool StepBlockBegin();
  bool StepElement();
  bool StepJsonCall();
  bool StepPythonName();
  bool StepPythonCall();
  bool StepCallEnd();
  bool StepBlockEnd();
  bool BeginCall(char byte);
  void Reject();

  const BlockFormat& format_;
  const std::shared_ptr<const ToolSchemas> tools_;
  State state_;
  bool has_marker_ = false;  // the block began with one
  bool is_list_ = false;
  bool is_python_ = false;
  // Text of the block that becomes content if no call comes of it.
  std::string held_;
  std::optional<JsonCallReader> json_call_;
  std::string python_name_, python_arguments_;
  PythonCallScanner python_scanner_;
};

}  // namespace nereid::tokenizer::parsers
