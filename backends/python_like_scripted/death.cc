#include "backends/python_like_scripted/death.h"

namespace nereid::scripted {

std::string DeathText(std::string_view instance, std::string_view how) {
  return StrCat("Stub process '", instance, "' is not healthy. The Python worker ", how);
}

Status WorkerLost(std::string_view instance, std::string_view how) {
  return UnavailableError(DeathText(instance, how));
}

Status RequestLost(std::string_view instance, std::string_view how) {
  return UnavailableError("Failed to process the request(s) for model instance '", instance,
                          "', message: ", DeathText(instance, how));
}

}  // namespace nereid::scripted
