#include "backends/python_like_scripted/open_requests.h"

#include <utility>

#include "nereid/log.h"

namespace nereid::python {

uint64_t OpenRequests::Add(Request request, bool is_awaited) {
  // The worker thread sends the responses of all requests. So the worker waits for room instead,
  // in the sender of each request.
  if (request.sender().is_decoupled()) (void)request.sender().DisableWaiting();
  auto open = std::make_shared<OpenRequest>(std::move(request), is_awaited);
  std::lock_guard lock(mutex_);
  open_.emplace(next_key_, std::move(open));
  return next_key_++;
}

void OpenRequests::MarkStarted(uint64_t key) {
  const std::shared_ptr<OpenRequest> open = Find(key);
  if (open == nullptr) return;
  std::lock_guard lock(open->mutex);
  if (open->request.is_open()) open->request.sender().MarkStarted();
}

void OpenRequests::ClearAwaited(uint64_t key) {
  const std::shared_ptr<OpenRequest> open = Find(key);
  if (open == nullptr) return;
  std::lock_guard lock(open->mutex);
  open->is_awaited = false;
}

std::shared_ptr<OpenRequests::OpenRequest> OpenRequests::Find(uint64_t key) {
  std::lock_guard lock(mutex_);
  const auto it = open_.find(key);
  return it == open_.end() ? nullptr : it->second;
}

void OpenRequests::Remove(uint64_t key) {
  std::shared_ptr<OpenRequest> removed;  // destroyed after the lock is released
  std::lock_guard lock(mutex_);
  const auto it = open_.find(key);
  if (it == open_.end()) return;
  removed = std::move(it->second);
  open_.erase(it);
}

void OpenRequests::Respond(uint64_t key, PackedResponse* response, bool is_final) {
  const std::shared_ptr<OpenRequest> open = Find(key);
  if (open == nullptr) return;
  bool is_finished = false;
  {
    std::lock_guard lock(open->mutex);
    if (!open->request.is_open()) return;
    const Status sent = Send(*open, response, is_final);
    if (!sent.ok() && open->request.is_open()) (void)FailOne(*open, sent);
    is_finished = !open->request.is_open();
  }
  if (is_finished) Remove(key);
}

Status OpenRequests::FailOne(OpenRequest& open, const Status& error) {
  open.response.reset();  // before the request, which owns it
  return open.request.Fail(error);
}

// If the response cannot be filled, the request fails with that error.
Status OpenRequests::Send(OpenRequest& open, PackedResponse* response, bool is_final) {
  ResponseSender& sender = open.request.sender();
  sender.MarkComputed();
  if (response == nullptr) {
    if (sender.is_decoupled()) return sender.Finish();
    if (open.response.has_value()) return sender.Send(std::move(*open.response), is_final);
    return InternalError("model '", sender.instance().model().name(),
                         "': expected exactly 1 response, because the model is not decoupled; its "
                         "response sender was closed without one");
  }
  if (response->error.has_value()) {
    if (!is_final && sender.is_decoupled()) return sender.SendError(*response->error);
    return FailOne(open, *response->error);
  }
  NEREID_ASSIGN_OR_RETURN(Response made, sender.NewResponse());
  NEREID_RETURN_IF_ERROR(FillResponse(*response, made));
  if (!is_final && !sender.is_decoupled()) {
    open.response = std::move(made);
    return {};
  }
  return sender.Send(std::move(made), is_final);
}

void OpenRequests::Fail(uint64_t key, const Status& error) {
  const std::shared_ptr<OpenRequest> open = Find(key);
  if (open == nullptr) return;
  {
    std::lock_guard lock(open->mutex);
    if (open->request.is_open()) (void)FailOne(*open, error);
  }
  Remove(key);
}

void OpenRequests::FailNotExecuted(uint64_t key, const Status& error) {
  if (const std::shared_ptr<OpenRequest> open = Find(key); open != nullptr) {
    std::lock_guard lock(open->mutex);
    if (open->request.is_open()) open->request.sender().MarkNotExecuted();
  }
  Fail(key, error);
}

void OpenRequests::FailAll(const Status& error) {
  std::vector<std::pair<uint64_t, std::shared_ptr<OpenRequest>>> all;
  {
    std::lock_guard lock(mutex_);
    all.assign(open_.begin(), open_.end());
  }
  for (const auto& [key, open] : all) {
    std::unique_lock lock(open->mutex);
    const bool is_awaited = open->is_awaited;
    lock.unlock();
    if (!is_awaited) Fail(key, error);
  }
}

void OpenRequests::Reschedule(uint64_t key) {
  const std::shared_ptr<OpenRequest> open = Find(key);
  if (open == nullptr) return;
  {
    std::lock_guard lock(open->mutex);
    if (!open->request.is_open()) return;
    open->response.reset();  // before the request, which owns it
    const Status status = open->request.sender().Reschedule();
    if (!status.ok()) (void)FailOne(*open, status);
  }
  Remove(key);
}

bool OpenRequests::IsOpen(uint64_t key) {
  return Find(key) != nullptr;
}

bool OpenRequests::HasRoom(uint64_t key) {
  const std::shared_ptr<OpenRequest> open = Find(key);
  if (open == nullptr) return true;
  std::lock_guard lock(open->mutex);
  return !open->request.is_open() || open->request.sender().HasRoom();
}

// An answered request counts as cancelled: more responses would be dropped.
bool OpenRequests::IsCancelled(uint64_t key) {
  const std::shared_ptr<OpenRequest> open = Find(key);
  if (open == nullptr) return true;
  std::lock_guard lock(open->mutex);
  return !open->request.is_open() || open->request.IsCancelled();
}

}  // namespace nereid::python
