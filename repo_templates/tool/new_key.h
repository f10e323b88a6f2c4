// `nereid-repo new key`: makes an API key for the server's --api-key-file. The key itself is
// printed once; the file contains only its hash.
#pragma once

#include <string>
#include <vector>

#include "nereid/status.h"

namespace nereid::repo {

struct NewKeyOptions {
  std::string name;
  std::vector<std::string> models;  // patterns; empty: every model
  std::vector<std::string> rights;  // names of ApiRight, or admin
  std::string expires;              // like 2027-01-31T00:00:00Z; empty: never
};

struct NewKey {
  std::string text;   // what the client sends: "<name>.<secret>"
  std::string entry;  // JSON, an element of the file's list "keys"
};

// The secret has 256 random bits of the operating system. INVALID_ARG for what the server would
// refuse in its file.
Result<NewKey> MakeKey(const NewKeyOptions& options);

}  // namespace nereid::repo
