// Shows on a terminal how far something is, in one line that is written again; elsewhere as plain
// lines, a few for each task. [one thread at a time]
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace nereid::cli {

// "16.1 GB", "24 MB", "512 bytes"; decimal units.
std::string ShowBytes(uint64_t bytes);
// "8.03 B", "12.6 M", "512 K": a number of parameters.
std::string ShowCount(uint64_t count);
// "65,536"
std::string ShowGrouped(uint64_t number);

class ProgressBar {
 public:
  explicit ProgressBar(std::FILE* out);
  ~ProgressBar() { Finish(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // `total_bytes` is 0 while it is unknown. A new label begins a new line.
  void Update(const std::string& label, uint64_t done_bytes, uint64_t total_bytes);
  // Prints a line without disturbing the bar.
  void Note(const std::string& text);
  // Ends the line of the bar.
  void Finish();
  // Removes the bar from a terminal.
  void Erase();

 private:
  using Clock = std::chrono::steady_clock;
  std::string LineFor(uint64_t done_bytes, uint64_t total_bytes) const;

  std::FILE* const out_;
  const bool is_terminal_;
  std::string label_;
  uint64_t first_bytes_ = 0;  // at the first update of this label, for the rate
  uint64_t last_shown_ = 0;   // percent, or hundreds of MB without a total
  bool is_open_ = false;      // the bar's line has no end yet
  Clock::time_point start_, next_;
};

}  // namespace nereid::cli
