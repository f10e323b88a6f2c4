// A block of bytes with a fill mark: what sockets are read into and what a request's tensors point
// into. Moving it never moves the bytes. [one owner at a time, any thread]
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

namespace nereid::http {

class ByteBuffer {
 public:
  ByteBuffer() = default;
  explicit ByteBuffer(size_t capacity)
      : data_(new char[capacity]), capacity_(capacity) {}  // uninitialised: pages come when filled
  // Memory of another's, who has it until this buffer is dropped.
  ByteBuffer(std::shared_ptr<const void> lender, char* data, size_t capacity)
      : data_(data, Release{std::move(lender)}), capacity_(capacity) {}
  ByteBuffer(ByteBuffer&& other) noexcept { *this = std::move(other); }
  ByteBuffer& operator=(ByteBuffer&& other) noexcept {
    data_ = std::move(other.data_);
    capacity_ = std::exchange(other.capacity_, 0);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }

  char* data() { return data_.get(); }
  const char* data() const { return data_.get(); }
  size_t size() const { return size_; }
  size_t capacity() const { return capacity_; }
  size_t free_bytes() const { return capacity_ - size_; }
  bool empty() const { return size_ == 0; }
  std::string_view view() const { return {data_.get(), size_}; }
  // Null where the memory is the buffer's own.
  const std::shared_ptr<const void>& lender() const { return data_.get_deleter().lender; }

  // Where the next free_bytes() bytes may be written; AddFilled says how many were.
  char* tail() { return data_.get() + size_; }
  void AddFilled(size_t count) { size_ += count; }

  void Append(std::string_view bytes) {
    if (bytes.size() > free_bytes()) Grow(size_ + bytes.size());
    if (!bytes.empty()) std::memcpy(tail(), bytes.data(), bytes.size());
    size_ += bytes.size();
  }
  // Removes `count` bytes at `offset`; what follows moves down.
  void Erase(size_t offset, size_t count) {
    if (count == 0) return;
    size_ -= count;
    std::memmove(data_.get() + offset, data_.get() + offset + count, size_ - offset);
  }
  void Truncate(size_t size) { size_ = size; }
  void Clear() { size_ = 0; }

  // At least doubles, so that appending stays linear.
  void Grow(size_t min_capacity) {
    ByteBuffer bigger(min_capacity > capacity_ * 2 ? min_capacity : capacity_ * 2);
    if (size_ != 0) std::memcpy(bigger.data(), data_.get(), size_);
    bigger.size_ = size_;
    *this = std::move(bigger);
  }

 private:
  struct Release {
    std::shared_ptr<const void> lender;  // null: the buffer's own memory
    void operator()(const char* data) const {
      if (lender == nullptr) delete[] data;
    }
  };

  std::unique_ptr<char[], Release> data_;
  size_t capacity_ = 0;
  size_t size_ = 0;
};

}  // namespace nereid::http
