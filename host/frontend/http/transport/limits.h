// What a client may use of the server; each value has a flag. Shared by every connection, read
// only.
#pragma once

#include <cstddef>

namespace nereid::http {

struct Limits {
  size_t max_head_bytes = 64 * 1024;           // request line and headers together
  size_t max_headers = 128;                    // header lines
  size_t max_body_bytes = size_t{64} << 20;    // --http-max-input-size
  size_t max_connections = 16384;              // open at a time, all threads together
  size_t max_json_depth = 64;                  // nesting of a JSON body
  size_t max_unsent_bytes = size_t{16} << 20;  // of a stream that its client does not read
  int idle_timeout_s = 600;                    // between two requests of a connection
  int read_timeout_s = 60;                     // without progress while a request comes in
  int write_timeout_s = 60;                    // without progress while an answer goes out
};

}  // namespace nereid::http
