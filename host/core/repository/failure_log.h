// Logs failed loads, each where it is found. A poll tries a failing model again each time, and its
// failure is logged again only when it has changed. [any thread]
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace nereid::core {

class FailureLog {
 public:
  // Logs `text`, a failure of the model `name`. `fingerprint` tells states of the model's directory
  // apart; 0 where that is unknown. If `is_poll`, nothing is logged if both are as in the last
  // call.
  void Write(const std::string& name, uint64_t fingerprint, const std::string& text, bool is_poll);
  // The model has loaded: its next failure is logged.
  void Forget(const std::string& name);

 private:
  struct Failure {
    uint64_t fingerprint;
    std::string text;
  };
  std::mutex mutex_;                     // guards the member below
  std::map<std::string, Failure> last_;  // by the model's name
};

}  // namespace nereid::core
