// See infer_message.h.
#include "host/frontend/grpc/infer_message.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <climits>
#include <span>

namespace nereid {
namespace {

using google::protobuf::internal::WireFormatLite;

constexpr uint32_t kRawTag =
    WireFormatLite::MakeTag(inference::ModelInferRequest::kRawInputContentsFieldNumber,
                            WireFormatLite::WIRETYPE_LENGTH_DELIMITED);

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

}  // namespace

InferMessage::InferMessage()
    : arena_(arena_block_, sizeof(arena_block_)),
      message_(google::protobuf::Arena::CreateMessage<inference::ModelInferRequest>(&arena_)) {}

Status InferMessage::Parse(const Slice& bytes) {
  bytes_ = bytes;
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
    if (!input.Skip(size)) return false;
    raw_.push_back(text.substr(begin, size));
    other_begin = begin + size;
  }
}

}  // namespace nereid
