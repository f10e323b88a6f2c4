// A vector that stores up to N elements inside the object, without a heap allocation: a request
// almost always has few dimensions, buffers and inputs. Elements are moved when the vector grows
// beyond its capacity. [one thread at a time]
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

namespace nereid {

template <typename T, size_t N>
class InlineVector {
  static_assert(std::is_nothrow_move_constructible_v<T>);

 public:
  InlineVector() = default;
  InlineVector(std::initializer_list<T> items) { Append(std::span(items.begin(), items.size())); }
  explicit InlineVector(std::span<const T> items) { Append(items); }
  InlineVector(const InlineVector& other) { Append(other.span()); }
  InlineVector(InlineVector&& other) noexcept { Take(other); }
  InlineVector& operator=(const InlineVector& other) {
    if (this != &other) {
      clear();
      Append(other.span());
    }
    return *this;
  }
  InlineVector& operator=(InlineVector&& other) noexcept {
    if (this != &other) {
      FreeAll();
      Take(other);
    }
    return *this;
  }
  ~InlineVector() { FreeAll(); }

  template <typename... Args>
  T& emplace_back(Args&&... args) {
    if (size_ == capacity_) Grow(capacity_ * 2);
    T* item = new (data_ + size_) T(std::forward<Args>(args)...);
    ++size_;
    return *item;
  }
  void push_back(T item) { emplace_back(std::move(item)); }
  void Append(std::span<const T> items) {
    if (size_ + items.size() > capacity_) Grow(size_ + items.size());
    for (const T& item : items) new (data_ + size_++) T(item);
  }
  void assign(std::span<const T> items) {
    clear();
    Append(items);
  }
  // New elements are value-initialised.
  void resize(size_t size) {
    if (size > capacity_) Grow(size);
    while (size_ > size) pop_back();
    while (size_ < size) new (data_ + size_++) T();
  }
  void pop_back() { data_[--size_].~T(); }
  void erase(size_t index) {
    for (size_t i = index; i + 1 < size_; ++i) data_[i] = std::move(data_[i + 1]);
    pop_back();
  }
  void clear() {
    std::destroy_n(data_, size_);
    size_ = 0;
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T& front() { return data_[0]; }
  const T& front() const { return data_[0]; }
  T& back() { return data_[size_ - 1]; }
  const T& back() const { return data_[size_ - 1]; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  std::span<const T> span() const { return {data_, size_}; }

  friend bool operator==(const InlineVector& a, const InlineVector& b) {
    if (a.size_ != b.size_) return false;
    for (size_t i = 0; i < a.size_; ++i) {
      if (!(a.data_[i] == b.data_[i])) return false;
    }
    return true;
  }

 private:
  T* Inline() { return reinterpret_cast<T*>(storage_); }
  bool OnHeap() const { return data_ != reinterpret_cast<const T*>(storage_); }

  void Grow(size_t capacity) {
    T* data = static_cast<T*>(::operator new(capacity * sizeof(T), std::align_val_t(alignof(T))));
    std::uninitialized_move_n(data_, size_, data);
    std::destroy_n(data_, size_);
    if (OnHeap()) ::operator delete(data_, std::align_val_t(alignof(T)));
    data_ = data;
    capacity_ = capacity;
  }
  void FreeAll() {
    clear();
    if (OnHeap()) ::operator delete(data_, std::align_val_t(alignof(T)));
    data_ = Inline();
    capacity_ = N;
  }
  // Requires *this to be empty and inline.
  void Take(InlineVector& other) {
    if (other.OnHeap()) {
      data_ = std::exchange(other.data_, other.Inline());
      capacity_ = std::exchange(other.capacity_, N);
      size_ = std::exchange(other.size_, 0);
      return;
    }
    std::uninitialized_move_n(other.data_, other.size_, data_);
    size_ = other.size_;
    other.clear();
  }

  alignas(T) std::byte storage_[N * sizeof(T)];
  T* data_ = Inline();
  size_t size_ = 0;
  size_t capacity_ = N;
};

}  // namespace nereid
