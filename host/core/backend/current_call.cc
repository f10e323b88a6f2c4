#include "host/core/backend/current_call.h"

#include <unistd.h>

#include <cstdlib>
#include <mutex>

#include "host/core/observe/log.h"

namespace nereid {
namespace {

pid_t watched_process = 0;

}  // namespace

thread_local CurrentCall* CurrentCall::innermost = nullptr;

CurrentCall::CurrentCall(std::string_view owner, const char* entry)
    : owner_(owner), entry_(entry), outer_(innermost) {
  innermost = this;
}

CurrentCall::~CurrentCall() {
  innermost = outer_;
}

void CurrentCall::WatchForExit() {
  static std::once_flag once;
  std::call_once(once, [] {
    watched_process = getpid();
    std::atexit(&CurrentCall::OnExit);
  });
}

void CurrentCall::OnExit() {
  // A child that a plug-in forked may end as it likes.
  if (innermost == nullptr || getpid() != watched_process) return;
  NEREID_LOG_ERROR(innermost->owner_, ": ", innermost->entry_,
                   " called exit(): the whole process ends");
  std::_Exit(1);
}

}  // namespace nereid
