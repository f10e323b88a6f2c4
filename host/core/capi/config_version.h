// The version of a model configuration's JSON form, which callers name. [any thread]
#pragma once

#include <cstdint>

#include "nereid/status.h"

namespace nereid {

inline Status CheckConfigVersion(uint32_t version) {
  if (version == 1) return Status::Ok();
  return InvalidArgError("model configuration version ", version,
                         " not supported, supported versions are: 1");
}

}  // namespace nereid
