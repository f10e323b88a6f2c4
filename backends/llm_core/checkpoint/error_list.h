// Collects errors of one kind for a single message of bounded length. [any thread]
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "nereid/status.h"

namespace nereid::llm {

class ErrorList {
 public:
  // Errors named in the message; further ones are only counted.
  static constexpr size_t kMaxNamed = 512;

  explicit ErrorList(std::string_view title) : title_(title) {}

  void Add(std::string text) {
    if (++count_ <= kMaxNamed) text_ += StrCat(text_.empty() ? "" : ", ", text);
  }
  bool empty() const { return count_ == 0; }
  // Returns "; missing (2): a, b", or "" without errors.
  std::string Text() const {
    if (count_ == 0) return "";
    const size_t unnamed = count_ - std::min(count_, kMaxNamed);
    return StrCat("; ", title_, " (", count_, "): ", text_,
                  unnamed > 0 ? StrCat(" and ", unnamed, " more") : "");
  }

 private:
  std::string_view title_;
  std::string text_;
  size_t count_ = 0;
};

}  // namespace nereid::llm
