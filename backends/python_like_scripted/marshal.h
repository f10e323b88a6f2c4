// Encodes and decodes messages between host and worker: Python's marshal format, version 2,
// restricted to tuples, texts, bytes, numbers, booleans and None. *Rationale:* a worker encodes or
// decodes a whole message in one call of its standard library, which is faster than any format that
// it would decode in Python code. [any thread; each object: one thread]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "nereid/status.h"

namespace nereid::python {

class MarshalWriter {
 public:
  MarshalWriter() { bytes_.reserve(512); }

  // Call it before the `count` elements.
  void Tuple(uint32_t count) { Tagged('(', count); }
  void None() { bytes_.push_back('N'); }
  void Bool(bool value) { bytes_.push_back(value ? 'T' : 'F'); }
  void Int(int64_t value);
  void Uint(uint64_t value);
  void Float(double value);
  // Replaces bytes that are not UTF-8 by '?': invalid text of a client must not break the message.
  void Text(std::string_view text);
  // Appends a value that another writer encoded.
  void Encoded(std::string_view value) { bytes_.append(value); }
  void Bytes(std::string_view bytes) {
    Tagged('s', static_cast<uint32_t>(bytes.size()));
    bytes_.append(bytes);
  }
  // Appends a bytes object of `size_bytes` and returns where to write its content, which must be
  // written before the next call.
  char* AppendBytes(uint32_t size_bytes) {
    Tagged('s', size_bytes);
    bytes_.resize(bytes_.size() + size_bytes);
    return bytes_.data() + bytes_.size() - size_bytes;
  }

  // The position of the next value; Rewind drops everything after it.
  size_t Mark() const { return bytes_.size(); }
  void Rewind(size_t mark) { bytes_.resize(mark); }
  // Changes the element count of the tuple that begins at `mark`.
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

// Reads a message of a worker, which may contain anything. The first error is kept, and everything
// read after it is empty, so that a caller checks status() once at the end. Texts and bytes are
// views into the message.
class MarshalReader {
 public:
  explicit MarshalReader(std::string_view bytes) : rest_(bytes) {}

  // The number of elements that follow. It is bounded by the remaining bytes, because each element
  // takes at least one.
  uint32_t Tuple();
  void TupleOf(uint32_t count);
  int64_t Int();
  double Float();  // also reads an int
  bool Bool();
  std::string_view Text();
  std::string_view Bytes();
  // Skips a None if it is next.
  bool TakeNone();
  // The bytes that were not read yet.
  std::string_view rest() const { return rest_; }
  // The tag of the next value; 0 at the end.
  char Next() const { return rest_.empty() || !status_.ok() ? '\0' : rest_.front(); }
  // INVALID_ARG also if bytes follow the message.
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

}  // namespace nereid::python
