#include "host/core/request/failed_request_log.h"

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

#include "base/clock.h"
#include "host/core/handle/error.h"
#include "host/core/observe/log.h"

namespace nereid::core {
namespace {

constexpr uint64_t kMaxLinesASecond = 10;
constexpr uint64_t kNsPerSecond = 1'000'000'000;

// Counts the lines of the current second.
class LineLimit {
 public:
  // Whether a line may be written. `num_left_out` is the number of lines that were not, since the
  // last one that was.
  bool Admit(uint64_t* num_left_out) {
    const std::lock_guard lock(mutex_);
    const uint64_t second = SteadyNowNs() / kNsPerSecond;
    if (std::exchange(second_, second) != second) num_lines_ = 0;
    if (num_lines_ == kMaxLinesASecond) {
      ++num_left_out_;
      return false;
    }
    ++num_lines_;
    *num_left_out = std::exchange(num_left_out_, 0);
    return true;
  }

 private:
  std::mutex mutex_;  // guards the members below
  uint64_t second_ = 0;
  uint64_t num_lines_ = 0;
  uint64_t num_left_out_ = 0;
};

}  // namespace

void LogFailedRequest(std::string_view model, std::string_view request_id, const Status& error) {
  if (error.code() == StatusCode::kCancelled || !log::Enabled(log::Level::kWarn)) return;
  static LineLimit* const limit = new LineLimit;  // requests may fail while the process exits
  uint64_t num_left_out = 0;
  if (!limit->Admit(&num_left_out)) return;
  const std::string before =
      num_left_out == 0 ? std::string() : StrCat(num_left_out, " failed requests not logged; ");
  NEREID_LOG_WARN(before, "request '", request_id, "' of model '", model,
                  "' failed: ", StatusCodeName(error.code()), ": ", error.message());
}

}  // namespace nereid::core
