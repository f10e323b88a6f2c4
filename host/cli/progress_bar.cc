#include "host/cli/progress_bar.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "nereid/status.h"

namespace nereid::cli {
namespace {

// Three significant digits: 8.03, 12.6, 512.
std::string ShowScaled(double value, const char* unit) {
  char text[32];
  const int num_decimals = value < 10 ? 2 : value < 100 ? 1 : 0;
  std::snprintf(text, sizeof(text), "%.*f %s", num_decimals, value, unit);
  return text;
}

std::string ShowIn(uint64_t number, std::initializer_list<std::pair<double, const char*>> units,
                   const char* unit_of_one) {
  for (const auto& [scale, unit] : units) {
    if (static_cast<double>(number) >= scale)
      return ShowScaled(static_cast<double>(number) / scale, unit);
  }
  return StrCat(number, unit_of_one);
}

int TerminalWidth(std::FILE* out) {
  winsize size{};
  const bool is_known = ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return is_known ? size.ws_col : 80;
}

}  // namespace

std::string ShowBytes(uint64_t bytes) {
  return ShowIn(bytes, {{1e12, "TB"}, {1e9, "GB"}, {1e6, "MB"}, {1e3, "KB"}}, " bytes");
}

std::string ShowCount(uint64_t count) {
  return ShowIn(count, {{1e12, "T"}, {1e9, "B"}, {1e6, "M"}, {1e3, "K"}}, "");
}

std::string ShowGrouped(uint64_t number) {
  std::string text = std::to_string(number);
  for (size_t at = text.size(); at > 3;) text.insert(at -= 3, 1, ',');
  return text;
}

ProgressBar::ProgressBar(std::FILE* out) : out_(out), is_terminal_(isatty(fileno(out)) != 0) {}

std::string ProgressBar::LineFor(uint64_t done_bytes, uint64_t total_bytes) const {
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  std::string line = label_ + "  ";
  if (is_terminal_ && total_bytes > 0) {
    constexpr uint64_t kWidth = 24;
    const auto full = static_cast<size_t>(
        kWidth * (static_cast<double>(done_bytes) / static_cast<double>(total_bytes)));
    line += StrCat("[", std::string(full, '#'), std::string(kWidth - full, ' '), "]  ");
  }
  line += ShowBytes(done_bytes);
  if (total_bytes > 0) line += StrCat(" of ", ShowBytes(total_bytes));
  if (is_terminal_ && seconds > 0.5) {
    line +=
        StrCat("  ",
               ShowBytes(static_cast<uint64_t>(
                   static_cast<double>(done_bytes - std::min(first_bytes_, done_bytes)) / seconds)),
               "/s");
  }
  return line;
}

void ProgressBar::Update(const std::string& label, uint64_t done_bytes, uint64_t total_bytes) {
  const Clock::time_point now = Clock::now();
  const bool is_new = label != label_;
  if (is_new) {
    Finish();
    label_ = label;
    start_ = next_ = now;
    first_bytes_ = done_bytes;
    last_shown_ = 0;
  }
  const bool is_complete = total_bytes > 0 && done_bytes >= total_bytes;
  done_bytes = total_bytes > 0 ? std::min(done_bytes, total_bytes) : done_bytes;
  if (is_terminal_) {
    if (now < next_ && !is_complete) return;
    next_ = now + std::chrono::milliseconds(100);
    const auto width = static_cast<size_t>(std::max(TerminalWidth(out_) - 1, 20));
    std::fprintf(out_, "\r\033[K%s", LineFor(done_bytes, total_bytes).substr(0, width).c_str());
    is_open_ = true;
  } else {
    constexpr uint64_t kStepPercent = 25;
    const uint64_t shown = total_bytes > 0
                               ? static_cast<uint64_t>(100.0 * static_cast<double>(done_bytes) /
                                                       static_cast<double>(total_bytes)) /
                                     kStepPercent
                               : done_bytes / 100'000'000;
    if (!is_new && shown <= last_shown_) return;
    last_shown_ = shown;
    std::fprintf(out_, "%s\n", LineFor(done_bytes, total_bytes).c_str());
  }
  std::fflush(out_);
}

void ProgressBar::Note(const std::string& text) {
  Finish();
  std::fprintf(out_, "%s\n", text.c_str());
  std::fflush(out_);
}

void ProgressBar::Erase() {
  if (is_open_) std::fputs("\r\033[K", out_);
  is_open_ = false;
  Finish();
}

void ProgressBar::Finish() {
  if (is_open_) std::fputs("\n", out_);
  is_open_ = false;
  label_.clear();
  std::fflush(out_);
}

}  // namespace nereid::cli
