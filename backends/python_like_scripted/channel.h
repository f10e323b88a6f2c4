// One of the two sockets between host and worker. It carries whole messages in order, and both
// sides notice when the other one closes it. A long message goes through shared memory, and the
// packet says where it is. [any thread]
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>

#include "backends/python_like_scripted/shared_region.h"
#include "nereid/status.h"
#include "nereid/unique_fd.h"

namespace nereid::python {

// Longer messages go through shared memory; a socket's default buffer holds a few packets.
inline constexpr size_t kMaxPacketBytes = 60000;

// A wait without a time limit is interrupted this often to check the worker.
inline constexpr std::chrono::milliseconds kMaxWait{1000};

class Channel {
 public:
  // `worker_end` receives the end that the worker inherits. Both regions outlive the channel.
  static Result<std::unique_ptr<Channel>> Create(UniqueFd* worker_end, SharedRegion* outgoing,
                                                 SharedRegion* incoming);
  int fd() const { return fd_.get(); }

  // Blocks while the worker does not read. UNAVAILABLE if the worker has closed the socket, in
  // which case is_closed() is true, or if there is no shared memory for a long message.
  Status Send(std::string message);
  // Queues the message for Flush. Never blocks.
  Status Post(std::string message);
  // Sends queued messages until the socket is full; true if none is left.
  bool Flush();

  // Returns the next message; nothing if none arrives within the time (-1: kMaxWait), or if
  // is_closed(), after which none will arrive. INVALID_ARG if the packet refers to memory outside
  // of the region.
  Result<std::optional<std::string>> Receive(int timeout_ms);
  bool is_closed() const { return is_closed_; }
  // Ends a Receive on another thread.
  void Shutdown();

 private:
  Channel(UniqueFd fd, SharedRegion* outgoing, SharedRegion* incoming)
      : fd_(std::move(fd)), outgoing_(outgoing), incoming_(incoming) {}
  Result<std::string> ToPacket(std::string message);
  Result<std::string> FromPacket(std::string packet);

  const UniqueFd fd_;
  SharedRegion* const outgoing_;
  SharedRegion* const incoming_;
  std::atomic<bool> is_closed_{false};
  std::mutex mutex_;  // guards unsent_
  std::deque<std::string> unsent_;
};

}  // namespace nereid::python
