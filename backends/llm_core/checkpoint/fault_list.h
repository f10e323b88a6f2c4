// Faults of one kind, for a message that names all of them and yet ends. [any thread]
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "nereid/status.h"

namespace nereid::llm {

class FaultList {
 public:
  static constexpr size_t kMaxNamed = 512;  // so many are named, the others counted

  explicit FaultList(std::string_view title) : title_(title) {}

  void Add(std::string text) {
    if (++count_ <= kMaxNamed) text_ += StrCat(text_.empty() ? "" : ", ", text);
  }
  bool empty() const { return count_ == 0; }
  // "; missing (2): a, b" or "".
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
