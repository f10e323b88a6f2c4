// See infer_message.h.
#include "host/frontend/grpc/infer_message.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <climits>
#include <new>
#include <span>

namespace nereid {
namespace {

using google::protobuf::internal::WireFormatLite;

constexpr uint32_t kRawTag =
    WireFormatLite::MakeTag(inference::ModelInferRequest::kRawInputContentsFieldNumber,
                            WireFormatLite::WIRETYPE_LENGTH_DELIMITED);

constexpr size_t kMaxRawInputs = 65'536;

// Presents a list of spans to protobuf as one input stream.
class SpanStream final : public google::protobuf::io::ZeroCopyInputStream {
 public:
  explicit SpanStream(std::span<const std::string_view> spans) : spans_(spans) {}

  bool Next(const void** data, int* size) override {
    while (index_ < spans_.size() && offset_ == spans_[index_].size()) {
      ++index_;
      offset_ = 0;
    }
    if (index_ == spans_.size()) return false;
    *data = spans_[index_].data() + offset_;
    *size = static_cast<int>(spans_[index_].size() - offset_);
    offset_ = spans_[index_].size();
    num_read_ += *size;
    return true;
  }
  void BackUp(int count) override {
    offset_ -= count;
    num_read_ -= count;
  }
  bool Skip(int count) override {
    const void* data;
    int size = 0;
    for (; count > 0; count -= size) {
      if (!Next(&data, &size)) return false;
      if (size > count) {
        BackUp(size - count);
        return true;
      }
    }
    return true;
  }
  int64_t ByteCount() const override { return num_read_; }

 private:
  const std::span<const std::string_view> spans_;
  size_t index_ = 0;
  size_t offset_ = 0;
  int64_t num_read_ = 0;
};

// The reservation of the message that this thread parses. The arena's functions get no argument of
// ours.
thread_local ByteReservation* parsing_reservation = nullptr;

void* AllocateBlock(size_t size_bytes) {
  if (parsing_reservation != nullptr && !parsing_reservation->GrowBy(size_bytes)) {
    throw std::bad_alloc();
  }
  return ::operator new(size_bytes);
}

void FreeBlock(void* block, size_t) {
  ::operator delete(block);
}

google::protobuf::ArenaOptions OptionsOf(char* first_block, size_t size_bytes) {
  google::protobuf::ArenaOptions options;
  options.initial_block = first_block;
  options.initial_block_size = size_bytes;
  options.block_alloc = &AllocateBlock;
  options.block_dealloc = &FreeBlock;
  return options;
}

class ParsingScope {
 public:
  explicit ParsingScope(ByteReservation& reservation) { parsing_reservation = &reservation; }
  ~ParsingScope() { parsing_reservation = nullptr; }
  ParsingScope(const ParsingScope&) = delete;
  ParsingScope& operator=(const ParsingScope&) = delete;
};

}  // namespace

InferMessage::InferMessage()
    : arena_(OptionsOf(arena_block_, sizeof(arena_block_))),
      message_(google::protobuf::Arena::CreateMessage<inference::ModelInferRequest>(&arena_)) {}

Status InferMessage::Parse(const Slice& bytes, ByteBudget* budget) {
  bytes_ = bytes;
  reservation_ = ByteReservation(budget);
  const ParsingScope scope(reservation_);
  std::vector<std::string_view> other_fields;
  bool is_parsed = bytes.bytes.size() <= INT_MAX && Scan(other_fields);
  if (is_parsed && other_fields.size() == 1) {
    is_parsed =
        message_->ParseFromArray(other_fields[0].data(), static_cast<int>(other_fields[0].size()));
  } else if (is_parsed) {
    SpanStream stream(other_fields);
    is_parsed = message_->ParseFromZeroCopyStream(&stream);
  }
  if (!is_parsed) return InternalError("Unable to parse request");
  return {};
}

// Scans the top-level fields: collects the raw tensors, and the byte ranges of all other fields.
bool InferMessage::Scan(std::vector<std::string_view>& other_fields) {
  const std::string_view text = bytes_.bytes;
  google::protobuf::io::CodedInputStream input(reinterpret_cast<const uint8_t*>(text.data()),
                                               static_cast<int>(text.size()));
  int other_begin = 0;
  for (;;) {
    const int field_begin = input.CurrentPosition();
    const uint32_t tag = input.ReadTag();
    if ((tag == kRawTag || tag == 0) && field_begin > other_begin) {
      other_fields.push_back(text.substr(other_begin, field_begin - other_begin));
    }
    if (tag == 0) return input.ConsumedEntireMessage();
    if (tag != kRawTag) {
      if (!WireFormatLite::SkipField(&input, tag)) return false;
      continue;
    }
    int size = 0;
    if (!input.ReadVarintSizeAsInt(&size)) return false;
    const int begin = input.CurrentPosition();
    if (!input.Skip(size) || raw_.size() == kMaxRawInputs) return false;
    raw_.push_back(text.substr(begin, size));
    other_begin = begin + size;
  }
}

}  // namespace nereid
