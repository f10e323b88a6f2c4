// `nereid-repo new backend`: copies a sample backend (backend_api/template, or stream_template)
// under another name.
#pragma once

#include <string>

#include "nereid/status.h"

namespace nereid::repo {

struct NewBackendOptions {
  std::string name;    // of the backend: letters, digits and '_', of which the first is a letter
  std::string source;  // the folder of the sample
  std::string out;     // must not exist or must be empty
};

// In file names and texts `my_backend` becomes the name, and `MyModel` and `MyInstance` the name in
// camel case followed by `Model` and `Instance`. With an error, no file is left in `out`.
Status CopyBackendTemplate(const NewBackendOptions& options);

}  // namespace nereid::repo
