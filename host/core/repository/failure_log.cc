#include "host/core/repository/failure_log.h"

#include "host/core/observe/log.h"

namespace nereid::core {

void FailureLog::Write(const std::string& name, uint64_t fingerprint, const std::string& text,
                       bool is_poll) {
  {
    std::lock_guard lock(mutex_);
    const auto [at, is_new] = last_.try_emplace(name, Failure{fingerprint, text});
    if (!is_new) {
      Failure& last = at->second;
      if (is_poll && last.fingerprint == fingerprint && last.text == text) return;
      last = {fingerprint, text};
    }
  }
  NEREID_LOG_ERROR(text);
}

void FailureLog::Forget(const std::string& name) {
  std::lock_guard lock(mutex_);
  last_.erase(name);
}

}  // namespace nereid::core
