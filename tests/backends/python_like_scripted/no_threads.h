// While it lives no thread can be started: each would want a stack beyond every address space.
#pragma once

#include <pthread.h>

#include <cstddef>

namespace nereid::scripted {

class NoThreads {
 public:
  NoThreads() {
    pthread_attr_t attributes;
    pthread_getattr_default_np(&attributes);
    pthread_attr_getstacksize(&attributes, &usual_bytes_);
    pthread_attr_destroy(&attributes);
    SetStackBytes(size_t{1} << 60);
  }
  ~NoThreads() { SetStackBytes(usual_bytes_); }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  static void SetStackBytes(size_t bytes) {
    pthread_attr_t attributes;
    pthread_getattr_default_np(&attributes);
    pthread_attr_setstacksize(&attributes, bytes);
    pthread_setattr_default_np(&attributes);
    pthread_attr_destroy(&attributes);
  }
  size_t usual_bytes_ = 0;
};

}  // namespace nereid::scripted
