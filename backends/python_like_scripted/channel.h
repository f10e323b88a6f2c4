// One of the two sockets between host and worker: whole messages, in order, an end that both sides
// notice. What is long goes through shared memory, and the message says where. [any thread]
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

namespace nereid::scripted {

// Longer messages take the way through shared memory; the sockets' default buffers hold a few.
inline constexpr size_t kMaxPacketBytes = 60000;

// Whoever waits for a message without end looks this often what became of the other side.
inline constexpr std::chrono::milliseconds kLongestWait{1000};

class Channel {
 public:
  // `worker_end` gets the other end, to be inherited. Both regions outlive the channel.
  static Result<std::unique_ptr<Channel>> Create(UniqueFd* worker_end, SharedRegion* outgoing,
                                                 SharedRegion* incoming);
  int fd() const { return fd_.get(); }

  // Blocks while the worker does not read. UNAVAILABLE when it is gone, which is_closed() then
  // says, or when there is no room for a long message.
  Status Send(std::string message);
  // Never blocks: the message waits for Flush.
  Status Post(std::string message);
  // Sends what waits; true when nothing is left.
  bool Flush();

  // The next message; nothing when there is none within the time (-1: kLongestWait) and, with
  // is_closed(), none will come. INVALID_ARG for one that names what is not there.
  Result<std::optional<std::string>> Receive(int timeout_ms);
  bool is_closed() const { return is_closed_; }
  // Ends a Receive on another thread.
  void Shutdown();

 private:
  Channel(UniqueFd fd, SharedRegion* outgoing, SharedRegion* incoming)
      : fd_(std::move(fd)), outgoing_(outgoing), incoming_(incoming) {}
  Result<std::string> Packed(std::string message);
  Result<std::string> Unpacked(std::string packet);

  const UniqueFd fd_;
  SharedRegion* const outgoing_;
  SharedRegion* const incoming_;
  std::atomic<bool> is_closed_{false};
  std::mutex mutex_;  // guards waiting_
  std::deque<std::string> waiting_;
};

}  // namespace nereid::scripted
