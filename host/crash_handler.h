// What the log says of a crash: the signal and where the thread was. Then the signal takes its
// default action, so that a core is dumped and the parent sees what happened. Left alone in builds
// with a sanitizer, which has a better report of its own. [main thread]
#pragma once

#include <string>

namespace nereid {

class CrashHandler {
 public:
  // The report goes to stderr, and to `log_file` unless that is empty.
  static void Install(const std::string& log_file);
};

}  // namespace nereid
