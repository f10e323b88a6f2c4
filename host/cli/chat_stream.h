// Reads the stream of events with which /v1/chat/completions answers. [one thread]
#pragma once

#include <string>
#include <string_view>

#include "nereid/status.h"

namespace nereid::cli {

// Splits the bytes of an event stream into the data of its events.
class EventReader {
 public:
  void Append(std::string_view bytes) { buffer_ += bytes; }
  // Moves the data of the next complete event to `data`. False if there is none yet. Comments and
  // events without data are skipped.
  bool Next(std::string& data);

 private:
  std::string buffer_;  // what has not been taken
  std::string data_;    // of the event in progress
  bool has_data_ = false;
};

// What one event adds to the answer.
struct ChatDelta {
  std::string content;
  std::string reasoning;
  std::string finish_reason;
};

// INVALID_ARG if `data` is no chunk of a chat completion; an error that the server sends has its
// text.
Result<ChatDelta> ParseChatDelta(const std::string& data);

// The message of an error in OpenAI's form, or the body itself, cut off.
std::string ErrorText(const std::string& body);

}  // namespace nereid::cli
