// What becomes known of a request while it is answered, for the access log. [loop thread]
#pragma once

#include <cstdint>
#include <string>

namespace nereid::http {

// The connection destroys it when the response is complete, or when the connection is closed.
struct RequestNotes {
  virtual ~RequestNotes() = default;

  int status = 0;             // of HTTP; 0: the client left before the response began
  std::string id;             // of the request; empty: it has none
  std::string model;          // empty: it names none, or none that exists
  int64_t prompt_tokens = 0;  // of language models
  int64_t output_tokens = 0;
  uint64_t first_output_ns = 0;  // by the steady clock; 0: there was no output
};

}  // namespace nereid::http
