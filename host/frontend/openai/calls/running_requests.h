// The requests in flight on the OpenAI routes of one port: what an operator may know about them,
// which is ids and counts and never a text, and how they are cancelled. [any thread]
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace nereid::openai {

// Counts of one request, which its loop changes while others read.
struct RequestCounts {
  std::atomic<int64_t> prompt_tokens{0};
  std::atomic<int64_t> output_tokens{0};
};

class RunningRequests {
 public:
  using Clock = std::chrono::steady_clock;

  struct Request {
    std::string id;     // of the answer; made by the server
    std::string model;  // that the server has
    std::string route;  // the path
    Clock::time_point start;
    int64_t prompt_tokens = 0;
    int64_t output_tokens = 0;
  };

  // Removes its request when it is destroyed. The list outlives it.
  class Entry {
   public:
    Entry(RunningRequests& list, uint64_t number) : list_(list), number_(number) {}
    ~Entry() { list_.Remove(number_); }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    RunningRequests& list_;
    const uint64_t number_;
  };

  // `counts` lives as long as the entry. `cancel` is called at most once, on any thread, under the
  // list's lock: it may only post to the request's own thread.
  std::unique_ptr<Entry> Add(std::string id, std::string model, std::string route,
                             const RequestCounts& counts, std::function<void()> cancel,
                             Clock::time_point now = Clock::now());

  // The oldest requests, at most `max_count`.
  std::vector<Request> List(size_t max_count) const;
  size_t size() const;

  // Returns false if no request in flight has this id.
  bool Cancel(std::string_view id);

 private:
  struct Item {
    Request request;
    const RequestCounts& counts;
    std::function<void()> cancel;  // null once it was called
  };

  void Remove(uint64_t number);

  mutable std::mutex mutex_;        // guards all members below
  std::map<uint64_t, Item> items_;  // by number, which is the order of arrival
  uint64_t next_number_ = 0;
};

}  // namespace nereid::openai
