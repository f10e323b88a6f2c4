// Receives bodies that do not fit behind their head in the connection's buffer or come in chunks:
// in memory of their own, counted against the budget, or in memory that the service has posted.
#include <algorithm>
#include <utility>

#include "host/frontend/http/transport/http_connection.h"

namespace nereid::http {
namespace {

// Memory that a body gets before any of it has arrived: enough for 1 MiB of tensors and their JSON
// part. Only what arrives becomes resident.
constexpr size_t kFirstBodyBytes = (1 << 20) + (16 << 10);
// A body in memory of its own is counted in steps of this size.
constexpr size_t kReservationStep = 64 << 10;

Status OverBudget(const ByteBudget& budget) {
  const ByteBudget& tightest = budget.tightest();
  return UnavailableError("the memory for requests in flight is exhausted: ", tightest.used_bytes(),
                          " of ", tightest.max_bytes(), " bytes are in use (", tightest.flag(),
                          ")");
}

}  // namespace

// Triton's texts for a body of `size` bytes, which depend on what the body should contain.
std::string HttpConnection::TooLarge(std::string_view size) const {
  const std::string_view json_bytes = head_.Header("Inference-Header-Content-Length");
  if (json_bytes == "0") {
    return StrCat("Raw input has a byte_size (", size,
                  " bytes) that exceeds the maximum allowed value of ", limits_.max_body_bytes,
                  " bytes. Use --http-max-input-size to increase the limit.");
  }
  return StrCat(json_bytes.data() == nullptr ? "request JSON size of " : "request size of ", size,
                " bytes exceeds the maximum allowed input size of ", limits_.max_body_bytes,
                " bytes. Use --http-max-input-size to increase the limit.");
}

Status HttpConnection::CannotAllocate(uint64_t body_bytes) {
  return UnavailableError("cannot allocate memory for a request body of ", body_bytes, " bytes");
}

// Makes room for a body that is read behind its head into input_, where the head stays.
void HttpConnection::MakeRoomBehindHead() {
  if (input_.free_bytes() >= 4096) return;
  input_.Grow(input_.capacity() * 2);
  (void)ParseHead(input_.view().substr(0, head_bytes_), limits_, head_);  // its views have moved
}

// The body does not fit into input_. It gets memory of its own. If the service has posted memory,
// the part after the leading bytes is received there.
void HttpConnection::AllocateBody() {
  const uint64_t length = *head_.content_length;
  size_t first_bytes = 0;
  PostedMemory place;
  if (num_leading_bytes_) place = service_.AcquirePostedMemory(head_, length - *num_leading_bytes_);
  if (place.external_owner != nullptr) {
    first_bytes = *num_leading_bytes_;
    body_ = ByteBuffer(std::move(place.external_owner), place.base, length - first_bytes);
  } else if (!GrowBody()) {
    return;
  }
  num_leading_bytes_.reset();
  body_.Append(input_.view().substr(head_bytes_ + first_bytes));
  input_.Truncate(head_bytes_ + first_bytes);
}

// Makes room for more of a body of known length. Returns false if the request is now refused.
bool HttpConnection::GrowBody() {
  const uint64_t length = *head_.content_length;
  const size_t capacity = CapacityOfClaim(length, body_.size(), kFirstBodyBytes);
  // What input_ contains of the body has to fit.
  if (body_.TryReserve(std::max<size_t>(capacity, std::min<size_t>(length, input_.capacity()))))
    return true;
  RefuseBody(CannotAllocate(length));
  return false;
}

// Counts what has arrived of a body in memory of its own, and makes room for the rest.
bool HttpConnection::ReadOwnBody() {
  const size_t steps = (body_.size() + kReservationStep - 1) / kReservationStep;
  if (!body_reservation_.GrowTo(std::min(steps * kReservationStep, body_.capacity()))) {
    RefuseBody(OverBudget(*body_reservation_.budget()));
    return DiscardBody();
  }
  if (body_.size() == *head_.content_length) return true;
  if (body_.free_bytes() == 0 && !GrowBody()) return DiscardBody();
  return false;
}

bool HttpConnection::DecodeChunks() {
  const std::string_view bytes = input_.view().substr(head_bytes_);
  if (refusal_) body_.Clear();
  // No chunk is longer than the bytes that contain it, so the decoder does not grow the body.
  const size_t needed = body_.size() + bytes.size();
  if (needed > body_.capacity() &&
      !body_.TryReserve(std::max({needed, 2 * body_.capacity(), size_t{4096}}))) {
    if (refusal_) {
      Close();
      return false;
    }
    RefuseBody(CannotAllocate(needed));
    return DiscardBody();
  }
  if (!refusal_ && !body_reservation_.GrowTo(body_.capacity())) {
    RefuseBody(OverBudget(*body_reservation_.budget()));
    return DiscardBody();
  }
  const size_t consumed = chunks_->Consume(bytes, body_);
  input_.Erase(head_bytes_, consumed);
  switch (chunks_->state()) {
    case ChunkedDecoder::State::kDone:
      return true;
    case ChunkedDecoder::State::kMalformed:
      RejectRequest(400, "malformed chunked request body");
      return false;
    case ChunkedDecoder::State::kTooLarge:
      RejectRequest(413, TooLarge("more"));
      return false;
    default:
      return false;
  }
}

// The request is refused because of the state of the server, not because of its form, so the
// connection stays usable: the rest of the body is read and dropped, then the request is answered.
void HttpConnection::RefuseBody(Status reason) {
  refusal_ = std::move(reason);
  num_leading_bytes_.reset();
  body_ = ByteBuffer();
  body_reservation_.Clear();
  MakeRoomBehindHead();
}

// Returns true if the end of a refused body has arrived.
bool HttpConnection::DiscardBody() {
  if (chunks_) return DecodeChunks();
  // Bytes of the next request may follow the body.
  const uint64_t length = *head_.content_length;
  const uint64_t excess = received_bytes_ > length ? received_bytes_ - length : 0;
  input_.Erase(head_bytes_, input_.size() - head_bytes_ - excess);
  return received_bytes_ >= length;
}

}  // namespace nereid::http
