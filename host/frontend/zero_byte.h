// Names and texts of clients cross the C API, where a zero byte would cut them short and make them
// those of something else. [any thread]
#pragma once

#include <string_view>

#include "nereid/status.h"

namespace nereid {

// `what` is the name of the text: a member or a parameter.
inline Status RefuseZeroByte(std::string_view what, std::string_view text) {
  if (text.find('\0') == std::string_view::npos) return Status::Ok();
  return InvalidArgError("'", what, "' holds a zero byte");
}

}  // namespace nereid
