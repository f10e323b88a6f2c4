// Which call into a plug-in runs on this thread, so that one that ends the process is named: a
// library that calls exit() inside a call takes every model with it, and no error can be returned.
// [any thread]
#pragma once

#include <string_view>

namespace nereid {

class CurrentCall {
 public:
  // `owner` (a model, an instance, a plug-in) and `entry` outlive this object. Calls may nest.
  CurrentCall(std::string_view owner, const char* entry);
  ~CurrentCall();
  CurrentCall(const CurrentCall&) = delete;
  CurrentCall& operator=(const CurrentCall&) = delete;

  // From now on exit() inside a call is logged with its place, and the process ends with status 1
  // without the destructors of what other threads still use. Once is enough.
  static void WatchForExit();

 private:
  const std::string_view owner_;
  const char* const entry_;
  CurrentCall* const outer_;

  static thread_local CurrentCall* innermost;
  static void OnExit();
};

}  // namespace nereid
