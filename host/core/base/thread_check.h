// Asserts that a piece of state is touched by its owner thread alone. Costs nothing in release
// builds.
#pragma once

#include <cassert>
#include <thread>

namespace nereid {

class ThreadCheck {
 public:
  // Makes the calling thread the owner; until the first call every thread passes.
  void Bind() {
#ifndef NDEBUG
    owner_ = std::this_thread::get_id();
#endif
  }
  void Assert() const {
#ifndef NDEBUG
    assert(owner_ == std::thread::id() || owner_ == std::this_thread::get_id());
#endif
  }

 private:
#ifndef NDEBUG
  std::thread::id owner_;
#endif
};

}  // namespace nereid

#define NEREID_THREAD_CHECK(check) (check).Assert()
