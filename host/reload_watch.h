// Reads files again when they change, or when the process receives SIGHUP: API keys and TLS
// certificates; the log file is opened again at SIGHUP only. Connections and requests in flight are
// not affected. [main thread]
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "nereid/status.h"

namespace nereid {

class ReloadWatch {
 public:
  ReloadWatch() = default;
  // Joins the thread.
  ~ReloadWatch();
  ReloadWatch(const ReloadWatch&) = delete;
  ReloadWatch& operator=(const ReloadWatch&) = delete;

  // From now on changes of `paths` are noticed (without paths, only SIGHUP is), so call it before
  // the files are read the first time. `what` names them in log lines. `reload` reads all of them
  // and takes effect at once, or returns an error and changes nothing. It is called on the watch's
  // thread and must remain callable until the watch is destroyed.
  void Add(std::string what, std::vector<std::string> paths, std::function<Status()> reload);
  // Starts the thread if anything was added. From now on SIGHUP does not end the process, unless
  // nothing was added and the process has a terminal.
  void Start();

 private:
  struct Entry {
    std::string what;
    std::vector<std::string> paths;
    std::function<Status()> reload;
    std::string state;  // of the files when they were last read
  };
  void CheckAll(bool is_forced);

  std::vector<Entry> entries_;  // used only by the thread once it runs
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool is_stopping_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace nereid
