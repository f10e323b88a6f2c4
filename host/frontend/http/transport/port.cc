#include "host/frontend/http/transport/port.h"

#include <event2/event.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

namespace nereid::http {

int OneLoopACore() {
  return static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 8u));
}

Result<std::unique_ptr<Port>> Port::Open(const PortOptions& options) {
  NEREID_ASSIGN_OR_RETURN(Listener listener, Listener::Open(options.address));
  std::unique_ptr<Port> port(new Port(std::move(listener), options.loop_name));
  for (int i = 0; i < options.num_loops; ++i) {
    NEREID_ASSIGN_OR_RETURN(std::unique_ptr<EventLoop> loop, EventLoop::Create());
    port->loops_.push_back(std::move(loop));
  }
  port->accept_event_ = event_new(port->loops_.front()->base(), port->listener_.fd(),
                                  EV_READ | EV_PERSIST, &OnAcceptEvent, port.get());
  if (port->accept_event_ == nullptr) {
    return InternalError("listener: cannot allocate its event");
  }
  return port;
}

Port::~Port() {
  StopLoops();
  if (accept_event_ != nullptr) event_free(accept_event_);
}

Status Port::Serve(PortUser& user) {
  user_ = &user;
  if (event_add(accept_event_, nullptr) != 0) {
    return InternalError("listener: cannot wait for clients");
  }
  for (const auto& loop : loops_) loop->Start(loop_name_);
  return Status::Ok();
}

void Port::StopAccepting() {
  listener_.Unlink();
  loops_.front()->PostFunction([this] {
    event_del(accept_event_);
    listener_.Close();
  });
}

void Port::StopLoops() {
  for (const auto& loop : loops_) loop->Stop();
}

void Port::OnAcceptEvent(int, short, void* self) {
  static_cast<Port*>(self)->OnAcceptable();
}

// [first loop]
void Port::OnAcceptable() {
  constexpr int kMaxAccepts = 64;  // at a time, so that the loop's connections are not starved
  for (int i = 0; i < kMaxAccepts; ++i) {
    const int fd = accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      // Out of descriptors, the event would fire without end: let others run in between.
      if (errno == EMFILE || errno == ENFILE) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      return;
    }
    if (user_->Admit(fd)) {
      Deal(fd);
    } else {
      close(fd);
    }
  }
}

// [first loop]
void Port::Deal(int fd) {
  const size_t index = next_loop_++ % loops_.size();
  if (index == 0) return user_->Adopt(index, fd);
  loops_[index]->PostFunction([this, index, fd] { user_->Adopt(index, fd); });
}

}  // namespace nereid::http
