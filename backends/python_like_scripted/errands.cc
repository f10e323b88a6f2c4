#include "backends/python_like_scripted/errands.h"

#include <chrono>
#include <system_error>
#include <utility>

namespace nereid::scripted {

Status Errands::Run(std::function<void()> errand) {
  std::lock_guard lock(mutex_);
  std::erase_if(running_, [](const std::future<void>& each) {
    return each.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  });
  running_.reserve(running_.size() + 1);
  // What the errand holds goes with its end, not with its future's.
  auto run = [errand = std::move(errand)]() mutable { std::exchange(errand, nullptr)(); };
  try {
    running_.push_back(std::async(std::launch::async, std::move(run)));
  } catch (const std::system_error& error) {
    return UnavailableError("no thread could be started: ", error.what());
  }
  return {};
}

}  // namespace nereid::scripted
