// See answer_streams.h.
#include "backends/tokenizer/answer_streams.h"

#include <utility>

namespace nereid::tokenizer {

Result<AnswerDelta> AnswerStreams::Push(const StreamPosition& position,
                                        std::span<const int32_t> ids, bool is_final,
                                        const std::function<std::unique_ptr<ParsedAnswer>()>& begin,
                                        int32_t* num_reasoning) {
  std::unique_ptr<ParsedAnswer> answer;
  if (position.index == 0) {
    answer = begin();
  } else {
    NEREID_ASSIGN_OR_RETURN(answer, Take(position));
  }
  AnswerDelta delta = answer->Push(ids, is_final, num_reasoning);
  Put(position, std::move(answer), is_final);
  return delta;
}

size_t AnswerStreams::size() const {
  const std::lock_guard lock(mutex_);
  return streams_.size();
}

// The stream whose next response is `position`; null if there is none.
AnswerStreams::Stream* AnswerStreams::Find(const StreamPosition& position) {
  const auto it = streams_.find(position.stream);
  if (it == streams_.end() || it->second.answer == nullptr) return nullptr;
  return it->second.next_index == position.index ? &it->second : nullptr;
}

Result<std::unique_ptr<ParsedAnswer>> AnswerStreams::Take(const StreamPosition& position) {
  std::unique_lock lock(mutex_);
  Stream* stream = Find(position);
  if (stream == nullptr && limits_.max_wait.count() > 0) {
    is_advanced_.wait_for(lock, limits_.max_wait,
                          [&] { return (stream = Find(position)) != nullptr; });
  }
  if (stream == nullptr) {
    return UnavailableError("input 'STREAM_POSITION': response ", position.index,
                            " of a stream of which the response before it is not known: expected "
                            "at most ",
                            limits_.max_streams, " streams, none idle for ",
                            limits_.max_idle_ns / 1'000'000'000, " s");
  }
  return std::move(stream->answer);
}

void AnswerStreams::Put(const StreamPosition& position, std::unique_ptr<ParsedAnswer> answer,
                        bool is_final) {
  const uint64_t now_ns = SteadyNowNs();
  {
    const std::lock_guard lock(mutex_);
    Erase(position.stream);
    DropOld(now_ns);
    if (is_final) return;
    Stream& stream = streams_[position.stream];
    stream.answer = std::move(answer);
    stream.next_index = position.index + 1;
    stream.used_ns = now_ns;
    stream.order = order_.insert(order_.end(), position.stream);
  }
  if (limits_.max_wait.count() > 0) is_advanced_.notify_all();
}

// Makes room for one more.
void AnswerStreams::DropOld(uint64_t now_ns) {
  while (!order_.empty() && (streams_.size() >= limits_.max_streams ||
                             now_ns - streams_[order_.front()].used_ns > limits_.max_idle_ns)) {
    Erase(order_.front());
  }
}

void AnswerStreams::Erase(uint64_t stream) {
  const auto it = streams_.find(stream);
  if (it == streams_.end()) return;
  order_.erase(it->second.order);
  streams_.erase(it);
}

}  // namespace nereid::tokenizer
