#include "host/core/backend/run_apart.h"

#include <memory>
#include <system_error>
#include <thread>
#include <utility>

namespace nereid {

std::future<void> RunApart(std::function<void()> run) {
  const auto ended = std::make_shared<std::promise<void>>();
  const auto body = [run = std::move(run), ended] {
    run();
    ended->set_value();
  };
  try {
    std::thread(body).detach();
  } catch (const std::system_error&) {
    body();
  }
  return ended->get_future();
}

}  // namespace nereid
