// A strict JSON reader (RFC 8259) that processes the text front to back without building a tree. It
// rejects NaN, comments, repeated members, invalid UTF-8 and nesting beyond a limit. Every error
// names the byte position. [one thread]
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "nereid/status.h"

namespace nereid::http {

enum class JsonKind { kObject, kArray, kString, kNumber, kBool, kNull, kEnd, kInvalid };

// Returns "an object", "a number" and so on, for messages.
std::string_view Describe(JsonKind kind);

// A number as written in the text. Its grammar has been checked.
struct JsonNumber {
  std::string_view text;
  bool is_integer;  // neither fraction nor exponent
};

class JsonReader {
 public:
  // `text` outlives the reader and the views that it returns.
  JsonReader(std::string_view text, size_t max_depth)
      : begin_(text.data()),
        cursor_(text.data()),
        end_(text.data() + text.size()),
        max_depth_(max_depth) {}

  // Returns the kind of the next value. Consumes only whitespace.
  JsonKind Peek();

  // Calls on_member(std::string_view key) -> Status for each member. The callback consumes the
  // value. The key stays valid as long as the reader.
  template <typename OnMember>
  Status ReadObject(const OnMember& on_member);
  // Calls on_element() -> Status before each element. The callback consumes the element.
  template <typename OnElement>
  Status ReadArray(const OnElement& on_element);

  // The result stays valid as long as the reader.
  Result<std::string_view> ReadString();
  // Like ReadString, but the result is valid only until the next string is read. Reading many
  // strings this way needs no memory beyond that of the longest one.
  Result<std::string_view> ReadTransientString();
  Result<JsonNumber> ReadNumber();
  Result<int64_t> ReadInt64();
  Result<uint64_t> ReadUint64();
  Result<double> ReadDouble();
  Result<bool> ReadBool();
  Status SkipValue();
  // Returns Ok if only whitespace is left.
  Status ExpectEnd();

  size_t position() const { return cursor_ - begin_; }
  size_t bytes_left() const { return end_ - cursor_; }
  // Returns to an earlier position() at which a value begins.
  void Rewind(size_t position) { cursor_ = begin_ + position; }

  // Creates the error "invalid JSON at byte 12: " followed by the reason.
  template <typename... Args>
  Status ErrorHere(const Args&... reason) const {
    return InvalidArgError("invalid JSON at byte ", position(), ": ", reason...);
  }
  // Creates an error that names what was expected and what was found.
  Status Unexpected(std::string_view expected);

  // ---- For loops that scan the elements themselves.
  void SkipBlanks() {
    while (cursor_ != end_ &&
           (*cursor_ == ' ' || *cursor_ == '\n' || *cursor_ == '\r' || *cursor_ == '\t')) {
      ++cursor_;
    }
  }
  // Skips whitespace, then consumes `c` if it is next.
  bool ConsumeIf(char c) {
    SkipBlanks();
    if (cursor_ == end_ || *cursor_ != c) return false;
    ++cursor_;
    return true;
  }
  // Enter and Exit surround each nesting level. Enter fails beyond the limit.
  Status Enter();
  void Exit() { --depth_; }

 private:
  // The keys of one object so far.
  class SeenKeys {
   public:
    bool Insert(std::string_view key);  // false if the key is already present
    size_t size() const { return size_; }

   private:
    std::array<std::string_view, 16> first_;
    std::vector<std::string_view> rest_;
    size_t size_ = 0;
  };
  static constexpr size_t kMaxMembers = 1024;

  Status ReadKey(SeenKeys& seen, std::string_view& key);
  Status Unescape(std::string_view raw, std::string& out);
  Result<uint32_t> ReadHexQuad(const char* at, const char* end);
  bool ConsumeLiteral(std::string_view word);

  const char* const begin_;
  const char* cursor_;
  const char* const end_;
  const size_t max_depth_;
  size_t depth_ = 0;
  std::string_view Keep(std::string_view text);

  std::string unescaped_;  // the last string that contained escapes
  // Copies of such strings. Blocks, because a client chooses the number of strings.
  std::vector<std::unique_ptr<char[]>> kept_blocks_;
  char* kept_end_ = nullptr;  // in the last block
  size_t kept_left_ = 0;      // free bytes of the last block
};

template <typename OnMember>
Status JsonReader::ReadObject(const OnMember& on_member) {
  if (!ConsumeIf('{')) return Unexpected("an object");
  NEREID_RETURN_IF_ERROR(Enter());
  SeenKeys seen;
  if (!ConsumeIf('}')) {
    do {
      std::string_view key;
      NEREID_RETURN_IF_ERROR(ReadKey(seen, key));
      NEREID_RETURN_IF_ERROR(on_member(key));
    } while (ConsumeIf(','));
    if (!ConsumeIf('}')) return Unexpected("',' or '}'");
  }
  Exit();
  return Status::Ok();
}

template <typename OnElement>
Status JsonReader::ReadArray(const OnElement& on_element) {
  if (!ConsumeIf('[')) return Unexpected("an array");
  NEREID_RETURN_IF_ERROR(Enter());
  if (!ConsumeIf(']')) {
    do {
      NEREID_RETURN_IF_ERROR(on_element());
    } while (ConsumeIf(','));
    if (!ConsumeIf(']')) return Unexpected("',' or ']'");
  }
  Exit();
  return Status::Ok();
}

}  // namespace nereid::http
