// The answers of streams between their responses: the responses of a stream pass the model one
// after the other, as requests of their own. The number of streams is bounded; a stream whose
// answer was dropped gets an error. [instance threads, concurrently]
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "backends/tokenizer/answer_parsing.h"
#include "base/clock.h"
#include "nereid/status.h"

namespace nereid::tokenizer {

// Which response of which stream a request carries. The engine gives each stream a random number,
// so that no client can name the stream of another one.
struct StreamPosition {
  uint64_t stream = 0;
  uint64_t index = 0;  // of the response in the stream, from 0
};

class AnswerStreams {
 public:
  struct Limits {
    // Streams at a time. At the limit the one that has been idle longest is dropped.
    size_t max_streams = 65536;
    // A stream without a response for so long was cancelled, and is dropped.
    uint64_t max_idle_ns = uint64_t{600} * 1'000'000'000;
    // How long a response waits for the one before it, which another instance may still hold.
    std::chrono::milliseconds max_wait{0};
  };

  explicit AnswerStreams(const Limits& limits) : limits_(limits) {}

  // Passes the next ids to the answer of a stream (ParsedAnswer::Push), which `begin` makes at the
  // first response. UNAVAILABLE if the answer was dropped, or the response before this one is
  // missing.
  Result<AnswerDelta> Push(const StreamPosition& position, std::span<const int32_t> ids,
                           bool is_final,
                           const std::function<std::unique_ptr<ParsedAnswer>()>& begin,
                           int32_t* num_reasoning = nullptr);
  size_t size() const;

 private:
  struct Stream {
    std::unique_ptr<ParsedAnswer> answer;  // null while a thread uses it
    uint64_t next_index = 0;
    uint64_t used_ns = 0;
    std::list<uint64_t>::iterator order;
  };

  Result<std::unique_ptr<ParsedAnswer>> Take(const StreamPosition& position);
  void Put(const StreamPosition& position, std::unique_ptr<ParsedAnswer> answer, bool is_final);
  // These require mutex_.
  Stream* Find(const StreamPosition& position);
  void DropOld(uint64_t now_ns);
  void Erase(uint64_t stream);

  const Limits limits_;
  mutable std::mutex mutex_;
  std::condition_variable is_advanced_;  // some stream is at its next response
  std::unordered_map<uint64_t, Stream> streams_;
  std::list<uint64_t> order_;  // by time of use, the oldest first
};

}  // namespace nereid::tokenizer
