#include "host/core/request/response_room.h"

#include <array>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>

namespace nereid::core {
namespace {

// Few threads wait at a time, so rooms share these instead of each having its own.
struct WaitingPlace {
  std::atomic<int> num_waiting{0};
  std::mutex mutex;
  std::condition_variable changed;
};

// Never destroyed, because backend threads may still wait when the process exits.
WaitingPlace& PlaceOf(const ResponseRoom* root) {
  static auto& places = *new std::array<WaitingPlace, 16>();
  return places[std::hash<const void*>()(root) / alignof(std::max_align_t) % places.size()];
}

thread_local bool may_wait = true;

}  // namespace

void ResponseRoom::ForbidWaitingOnThisThread() {
  may_wait = false;
}

const ResponseRoom* ResponseRoom::root() const {
  const ResponseRoom* room = this;
  while (room->source_ != nullptr) room = room->source_;
  return room;
}

void ResponseRoom::WakeWaiters() const {
  WaitingPlace& place = PlaceOf(root());
  if (place.num_waiting.load() == 0) return;
  // Locked once, so that a waiting thread is either before its check or already asleep.
  { std::lock_guard lock(place.mutex); }
  place.changed.notify_all();
}

void ResponseRoom::Set(bool has_room) {
  const State next = has_room ? State::kRoom : State::kFull;
  State before = state_.load();
  while (before != State::kOpen && before != next) {
    if (!state_.compare_exchange_weak(before, next)) continue;
    if (has_room) WakeWaiters();
    return;
  }
}

void ResponseRoom::Open() {
  if (state_.exchange(State::kOpen) != State::kOpen) WakeWaiters();
}

bool ResponseRoom::HasRoom() const {
  const State state = state_.load();
  if (state != State::kRoom || source_ == nullptr) return state != State::kFull;
  return source_->HasRoom();
}

void ResponseRoom::Wait() {
  if (HasRoom() || !may_wait) return;
  WaitingPlace& place = PlaceOf(root());
  place.num_waiting.fetch_add(1);
  {
    std::unique_lock lock(place.mutex);
    place.changed.wait(lock, [this] { return HasRoom(); });
  }
  place.num_waiting.fetch_sub(1);
}

}  // namespace nereid::core
