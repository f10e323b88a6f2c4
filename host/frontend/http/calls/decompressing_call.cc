// See decompressing_call.h.
#include "host/frontend/http/calls/decompressing_call.h"

#include <new>
#include <utility>

namespace nereid::http {
namespace {

constexpr size_t kStepBytes = 1 << 20;  // takes a few milliseconds

}  // namespace

void DecompressingCall::Start(HttpConnection& connection, RequestBody packed, Handler handler) {
  auto* const call = new DecompressingCall(connection, std::move(packed), std::move(handler));
  try {
    if (call->Step()) {
      delete call;
      return;
    }
  } catch (...) {
    delete call;
    throw;
  }
  connection.BeginCall(call);
  call->loop_.Post(call);
}

DecompressingCall::DecompressingCall(HttpConnection& connection, RequestBody packed,
                                     Handler handler)
    : connection_(&connection),
      loop_(connection.loop()),
      packed_(std::move(packed)),
      handler_(std::move(handler)),
      decompression_(packed_.bytes(), connection.limits().max_body_bytes, connection.budget()) {}

// Returns true if the request has been answered or handed to the handler.
bool DecompressingCall::Step() {
  const Result<bool> is_done = decompression_.Step(kStepBytes);
  if (is_done.ok() && !*is_done) return false;
  connection_->BeginCall(nullptr);
  if (!is_done.ok()) {
    connection_->Refuse(WithHint(is_done.status()));
    return true;
  }
  ByteBuffer plain = decompression_.TakeOutput();
  handler_({.memory = std::move(plain), .reservation = decompression_.TakeReservation()});
  return true;
}

Status DecompressingCall::WithHint(const Status& status) const {
  if (!decompression_.is_too_large()) return status;
  return {status.code(),
          StrCat(status.message(), " Use --http-max-input-size to increase the limit.")};
}

void DecompressingCall::RunOnLoop() {
  try {
    if (connection_ != nullptr && !Step()) return loop_.Post(this);
  } catch (const std::bad_alloc&) {
    if (connection_ != nullptr) connection_->FailForMemory(this);
  }
  delete this;
}

}  // namespace nereid::http
