// Reads one call that is a JSON object with a name and arguments, such as
// {"name": "f", "arguments": {"x": 1}}, and writes it as soon as its name is known and its
// arguments begin. [one thread at a time]
#pragma once

#include <string>
#include <string_view>

#include "backends/tokenizer/lib/chat/parsers/answer_writer.h"
#include "backends/tokenizer/lib/chat/parsers/json_text.h"

namespace nereid::tokenizer::parsers {

class JsonCallReader {
 public:
  // `known`, if not null, has the only names that make a call. Both outlive the reader.
  JsonCallReader(AnswerWriter& writer, const ToolSchemas* known)
      : writer_(&writer), known_(known) {}

  // Consumes text from the opening brace on, and returns the number of bytes. It is smaller than
  // the text if the call has ended or is broken.
  size_t Read(std::string_view text);
  bool is_done() const { return step_ == Step::kDone; }
  bool is_broken() const { return step_ == Step::kBroken; }
  // Whether the call was written, at least its beginning. Nothing is taken back then.
  bool is_written() const { return is_written_; }
  // The consumed text of a call that was not written.
  const std::string& text() const { return text_; }

 private:
  enum class Step {
    kOpen,
    kKeyOrClose,
    kKey,
    kColon,
    kValueBegin,
    kValue,
    kCommaOrClose,
    kDone,
    kBroken
  };
  enum class Member { kOther, kName, kArguments, kId };

  size_t ReadSome(std::string_view text);
  Step AfterByte(char byte);
  size_t ReadString(std::string_view text);
  size_t ReadValue(std::string_view text);
  bool BeginValue(char byte);
  bool EndValue();
  void Write();

  AnswerWriter* writer_;
  const ToolSchemas* known_;
  Step step_ = Step::kOpen;
  Member member_ = Member::kOther;
  JsonValueScanner scanner_;
  std::string key_, value_;  // JSON strings that are being read
  std::string name_, id_;
  std::string arguments_;  // read and not written
  std::string text_;
  bool has_arguments_ = false;  // they have begun
  bool keeps_value_ = false;    // the value is collected in value_
  bool is_written_ = false;
};

}  // namespace nereid::tokenizer::parsers
