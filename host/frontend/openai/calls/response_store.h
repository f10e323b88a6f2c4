// Responses that clients may fetch again or continue (POST /v1/responses), in bounded memory: the
// oldest leave first. [any thread]
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace nereid::openai {

struct StoredResponse {
  std::string json;   // as the client got it
  std::string items;  // a JSON list: the conversation so far, the answer included
};

class ResponseStore {
 public:
  using Clock = std::chrono::steady_clock;
  struct Limits {
    size_t max_count = 1000;  // 0: nothing is stored
    size_t max_bytes = size_t{64} << 20;
    std::chrono::seconds max_age{3600};
  };

  explicit ResponseStore(const Limits& limits) : limits_(limits) {}

  // `owner` is the secret of the client, if it has one; only the same one finds the response again.
  // A response that exceeds the limits by itself is not stored.
  void Put(const std::string& id, std::string_view owner, StoredResponse response,
           Clock::time_point now = Clock::now());
  std::optional<StoredResponse> Find(const std::string& id, std::string_view owner,
                                     Clock::time_point now = Clock::now());
  // Returns false if there is no such response.
  bool Remove(const std::string& id, std::string_view owner, Clock::time_point now = Clock::now());

 private:
  struct Entry {
    StoredResponse response;
    std::string owner_digest;
    Clock::time_point stored_at;
    size_t size_bytes() const {
      return sizeof(Entry) + response.json.size() + response.items.size() + owner_digest.size();
    }
  };
  using Entries = std::unordered_map<std::string, Entry>;

  void Expire(Clock::time_point now);
  void Erase(Entries::iterator entry);
  Entries::iterator FindOwned(const std::string& id, std::string_view owner);

  const Limits limits_;
  std::mutex mutex_;  // guards all members below
  Entries entries_;
  std::deque<std::string> order_;  // ids, oldest first; some are gone
  size_t num_bytes_ = 0;
};

}  // namespace nereid::openai
