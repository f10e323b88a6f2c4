// While an object lives, no thread can be started: each would need a stack larger than any address
// space.
#pragma once

#include <pthread.h>

#include <cstddef>

namespace nereid {

class ThreadCreationBlocker {
 public:
  ThreadCreationBlocker() {
    pthread_attr_t attributes;
    pthread_getattr_default_np(&attributes);
    pthread_attr_getstacksize(&attributes, &usual_bytes_);
    pthread_attr_destroy(&attributes);
    SetStackBytes(size_t{1} << 60);
  }
  ~ThreadCreationBlocker() { SetStackBytes(usual_bytes_); }
  ThreadCreationBlocker(const ThreadCreationBlocker&) = delete;
  ThreadCreationBlocker& operator=(const ThreadCreationBlocker&) = delete;

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

}  // namespace nereid
