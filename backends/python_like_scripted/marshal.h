// Messages between host and worker: Python's marshal format, version 2, of which tuples, texts,
// bytes, numbers, booleans and None are used. *Rationale:* a worker packs or unpacks a whole
// message in one call of its standard library, which no format that it would read in Python can
// match. [any thread; one object, one thread]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "nereid/status.h"

namespace nereid::scripted {

class MarshalWriter {
 public:
  MarshalWriter() { bytes_.reserve(512); }

  // Precedes its `count` elements.
  void Tuple(uint32_t count) { Tagged('(', count); }
  void None() { bytes_.push_back('N'); }
  void Bool(bool value) { bytes_.push_back(value ? 'T' : 'F'); }
  void Int(int64_t value);
  void Uint(uint64_t value);
  void Float(double value);
  // Bytes that are not UTF-8 become '?': what a client sent must not break the message.
  void Text(std::string_view text);
  // A value that another writer made.
  void Packed(std::string_view value) { bytes_.append(value); }
  void Bytes(std::string_view bytes) {
    Tagged('s', static_cast<uint32_t>(bytes.size()));
    bytes_.append(bytes);
  }
  // Room for `size_bytes` of a bytes object, to be filled before the next call.
  char* BytesPlace(uint32_t size_bytes) {
    Tagged('s', size_bytes);
    bytes_.resize(bytes_.size() + size_bytes);
    return bytes_.data() + bytes_.size() - size_bytes;
  }

  // Where the next value goes; Rewind drops everything from there on.
  size_t Mark() const { return bytes_.size(); }
  void Rewind(size_t mark) { bytes_.resize(mark); }
  // Changes the count of the tuple that begins at `mark`.
  void PatchTuple(size_t mark, uint32_t count) {
    bytes_.replace(mark + 1, sizeof count, reinterpret_cast<const char*>(&count), sizeof count);
  }

  const std::string& bytes() const { return bytes_; }
  std::string Take() { return std::move(bytes_); }

 private:
  void Tagged(char tag, uint32_t number) {
    bytes_.push_back(tag);
    Raw(&number, sizeof number);
  }
  void Raw(const void* base, size_t size_bytes) {
    bytes_.append(static_cast<const char*>(base), size_bytes);
  }
  void Digits(uint64_t magnitude, bool is_negative);

  std::string bytes_;
};

// Reads what a worker sent, which may be anything: the first fault sticks, and everything read
// after it is empty, so that a caller checks status() once at the end. Texts and bytes are views
// into the message.
class MarshalReader {
 public:
  explicit MarshalReader(std::string_view bytes) : rest_(bytes) {}

  // The number of elements that follow; each takes at least one byte, so it is bounded.
  uint32_t Tuple();
  void TupleOf(uint32_t count);
  int64_t Int();
  double Float();  // of an int too
  bool Bool();
  std::string_view Text();
  std::string_view Bytes();
  // Takes a None when one is next.
  bool TakeNone();
  // What was not read yet.
  std::string_view rest() const { return rest_; }
  // The tag of what is next, 0 at the end.
  char Next() const { return rest_.empty() || !status_.ok() ? '\0' : rest_.front(); }
  // INVALID_ARG also when something follows the message.
  Status Finish();

  void Fail(std::string message) {
    if (status_.ok()) status_ = {StatusCode::kInvalidArg, std::move(message)};
    rest_ = {};
  }
  const Status& status() const { return status_; }

 private:
  bool Tag(char tag, const char* expected);
  uint32_t Number();
  std::string_view Take(size_t size_bytes);
  int64_t Digits();

  std::string_view rest_;
  Status status_;
};

}  // namespace nereid::scripted
