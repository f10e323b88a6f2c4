// Whether the reader of a request's responses can take further ones. The client of the request
// reports it, and the sender of the responses asks for it or waits for it. A request that a backend
// makes on behalf of another one uses that one's room as well as its own, so that the senders
// behind an ensemble notice a client that reads slowly. [any thread]
#pragma once

#include <atomic>
#include <cstdint>

namespace nereid::core {

class ResponseRoom {
 public:
  ResponseRoom() = default;
  ResponseRoom(const ResponseRoom&) = delete;
  ResponseRoom& operator=(const ResponseRoom&) = delete;

  // There is room only while `source` has some, too. Must be called before the first use; `source`
  // outlives this object.
  void SetSource(ResponseRoom* source) { source_ = source; }

  void Set(bool has_room);
  // From now on there is always room: the request was cancelled or has ended.
  void Open();
  bool HasRoom() const;
  // Returns when there is room. Returns at once on a thread that must not wait.
  void Wait();

  // The calling thread must not wait: it serves many requests or clients. Affects it until it ends.
  static void ForbidWaitingOnThisThread();

 private:
  enum class State : uint8_t { kFull, kRoom, kOpen };

  const ResponseRoom* root() const;
  // Makes the threads that wait for this room, or for one that uses it, check again.
  void WakeWaiters() const;

  std::atomic<State> state_{State::kRoom};
  ResponseRoom* source_ = nullptr;
};

}  // namespace nereid::core
