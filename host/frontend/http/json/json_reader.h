// Reads JSON (RFC 8259) from one piece of memory, front to back, without building a tree. Strict:
// no NaN, no comment, no repeated member, no bytes that are not UTF-8, no nesting beyond a limit.
// Every error names the byte where it was met. [one thread]
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <vector>

#include "nereid/status.h"

namespace nereid::http {

enum class JsonKind { kObject, kArray, kString, kNumber, kBool, kNull, kEnd, kInvalid };

// "an object", "a number" ...: for messages.
std::string_view Describe(JsonKind kind);

// A number as it is written; the grammar has been checked.
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

  // What comes next; consumes blanks alone.
  JsonKind Peek();

  // Calls on_member(std::string_view key) -> Status for each member; it consumes the value. The key
  // stays valid as long as the reader.
  template <typename OnMember>
  Status ReadObject(const OnMember& on_member);
  // Calls on_element() -> Status before each element; it consumes the element.
  template <typename OnElement>
  Status ReadArray(const OnElement& on_element);

  // Valid as long as the reader.
  Result<std::string_view> ReadString();
  Result<JsonNumber> ReadNumber();
  Result<int64_t> ReadInt64();
  Result<uint64_t> ReadUint64();
  Result<double> ReadDouble();
  Result<bool> ReadBool();
  Status SkipValue();
  // Ok when nothing but blanks is left.
  Status ExpectEnd();

  size_t position() const { return cursor_ - begin_; }
  size_t bytes_left() const { return end_ - cursor_; }
  // Goes back to a position() of before, where a value begins.
  void Rewind(size_t position) { cursor_ = begin_ + position; }

  // "invalid JSON at byte 12: " and the reason.
  template <typename... Args>
  Status ErrorHere(const Args&... reason) const {
    return InvalidArgError("invalid JSON at byte ", position(), ": ", reason...);
  }
  // An error that says what was expected and what is there.
  Status Unexpected(std::string_view expected);

  // ---- for element loops that go over the text themselves
  void SkipBlanks() {
    while (cursor_ != end_ &&
           (*cursor_ == ' ' || *cursor_ == '\n' || *cursor_ == '\r' || *cursor_ == '\t')) {
      ++cursor_;
    }
  }
  // Consumes `c`, after blanks, when it comes next.
  bool Take(char c) {
    SkipBlanks();
    if (cursor_ == end_ || *cursor_ != c) return false;
    ++cursor_;
    return true;
  }
  // Around whatever opens a bracket; Enter fails beyond the limit.
  Status Enter();
  void Leave() { --depth_; }

 private:
  // The keys of one object so far.
  class SeenKeys {
   public:
    bool Insert(std::string_view key);  // false when it was there
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
  bool TakeWord(std::string_view word);

  const char* const begin_;
  const char* cursor_;
  const char* const end_;
  const size_t max_depth_;
  size_t depth_ = 0;
  std::list<std::string> unescaped_;  // strings that are not in the text as they stand
};

template <typename OnMember>
Status JsonReader::ReadObject(const OnMember& on_member) {
  if (!Take('{')) return Unexpected("an object");
  NEREID_RETURN_IF_ERROR(Enter());
  SeenKeys seen;
  if (!Take('}')) {
    do {
      std::string_view key;
      NEREID_RETURN_IF_ERROR(ReadKey(seen, key));
      NEREID_RETURN_IF_ERROR(on_member(key));
    } while (Take(','));
    if (!Take('}')) return Unexpected("',' or '}'");
  }
  Leave();
  return Status::Ok();
}

template <typename OnElement>
Status JsonReader::ReadArray(const OnElement& on_element) {
  if (!Take('[')) return Unexpected("an array");
  NEREID_RETURN_IF_ERROR(Enter());
  if (!Take(']')) {
    do {
      NEREID_RETURN_IF_ERROR(on_element());
    } while (Take(','));
    if (!Take(']')) return Unexpected("',' or ']'");
  }
  Leave();
  return Status::Ok();
}

}  // namespace nereid::http
