// A block of bytes with a fill level. Sockets are read into it, and a request's tensors point into
// it. Moving the buffer does not move the bytes. [one owner at a time, any thread]
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <string_view>
#include <utility>

namespace nereid::http {

class ByteBuffer {
 public:
  ByteBuffer() = default;
  explicit ByteBuffer(size_t capacity)
      // uninitialized: pages are mapped when they are filled
      : data_(new char[capacity]), capacity_(capacity) {}
  // Uses the memory at `data`. `external_owner` keeps it alive and is released with this buffer.
  ByteBuffer(std::shared_ptr<const void> external_owner, char* data, size_t capacity)
      : data_(data, Release{std::move(external_owner)}), capacity_(capacity) {}
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
  // Null if the buffer owns its memory.
  const std::shared_ptr<const void>& external_owner() const {
    return data_.get_deleter().external_owner;
  }

  // The caller may write up to free_bytes() bytes here and reports their number with AddFilled.
  char* tail() { return data_.get() + size_; }
  void AddFilled(size_t count) { size_ += count; }

  void Append(std::string_view bytes) {
    if (bytes.size() > free_bytes()) Grow(size_ + bytes.size());
    if (!bytes.empty()) std::memcpy(tail(), bytes.data(), bytes.size());
    size_ += bytes.size();
  }
  // Removes `count` bytes at `offset` and moves the following bytes down.
  void Erase(size_t offset, size_t count) {
    if (count == 0) return;
    size_ -= count;
    std::memmove(data_.get() + offset, data_.get() + offset + count, size_ - offset);
  }
  void Truncate(size_t size) { size_ = size; }
  void Clear() { size_ = 0; }

  // Grows to a capacity of at least `capacity`. Returns false, and changes nothing, if the memory
  // cannot be allocated. Used wherever a client chooses the size.
  [[nodiscard]] bool TryReserve(size_t capacity) {
    if (capacity <= capacity_) return true;
    char* const memory = new (std::nothrow) char[capacity];
    if (memory == nullptr) return false;
    if (size_ != 0) std::memcpy(memory, data_.get(), size_);
    data_ = std::unique_ptr<char[], Release>(memory);
    capacity_ = capacity;
    return true;
  }

  // Grows to at least `min_capacity` and at least doubles, so that appending takes linear time.
  void Grow(size_t min_capacity) {
    ByteBuffer bigger(min_capacity > capacity_ * 2 ? min_capacity : capacity_ * 2);
    if (size_ != 0) std::memcpy(bigger.data(), data_.get(), size_);
    bigger.size_ = size_;
    *this = std::move(bigger);
  }

 private:
  struct Release {
    std::shared_ptr<const void> external_owner;  // null if the buffer owns its memory
    void operator()(const char* data) const {
      if (external_owner == nullptr) delete[] data;
    }
  };

  std::unique_ptr<char[], Release> data_;
  size_t capacity_ = 0;
  size_t size_ = 0;
};

}  // namespace nereid::http
