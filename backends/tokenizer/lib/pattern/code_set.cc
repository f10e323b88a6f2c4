// See code_set.h. PCRE2 itself says what a class contains: it is run over a text of all code
// points.
#include "backends/tokenizer/lib/pattern/code_set.h"

#include <algorithm>
#include <memory>
#include <sstream>

#include "backends/tokenizer/lib/pattern/pattern.h"
#include "backends/tokenizer/lib/text/utf8.h"

namespace nereid::tokenizer {
namespace {

constexpr char32_t kLastCode = 0x10FFFF, kFirstSurrogate = 0xD800, kLastSurrogate = 0xDFFF;

char32_t Next(char32_t code) {
  return code + 1 == kFirstSurrogate ? kLastSurrogate + 1 : code + 1;
}
char32_t Previous(char32_t code) {
  return code == kLastSurrogate + 1 ? kFirstSurrogate - 1 : code - 1;
}

// Made once: a tokenizer may have many classes.
const std::string& AllCodes() {
  static const std::string all = [] {
    std::string text;
    text.reserve(4'400'000);
    for (char32_t code = 0; code <= kLastCode; code = Next(code)) AppendUtf8(code, text);
    return text;
  }();
  return all;
}

char32_t LastOf(std::string_view text) {
  size_t at = text.size() - 1;
  while (IsContinuation(text[at])) --at;
  return CharAt(text, at).code;
}

}  // namespace

Result<CodeSet> CodeSet::OfClass(std::string_view items, bool ignores_case) {
  struct Runs final : PieceSink {
    std::vector<Range> ranges;
    bool Add(std::string_view piece, bool is_match) override {
      if (is_match) ranges.push_back({CharAt(piece, 0).code, LastOf(piece)});
      return true;
    }
  };
  CodeSet set;
  if (items.empty()) return set;
  NEREID_ASSIGN_OR_RETURN(const auto pattern,
                          CompilePcre(StrCat(ignores_case ? "(?i)[" : "[", items, "]++")));
  Runs runs;
  if (!pattern->ForEachSpan(AllCodes(), runs)) {
    return InvalidArgError("class '[", items, "]': its members cannot be found");
  }
  set.ranges_ = std::move(runs.ranges);
  return set;
}

void CodeSet::Add(const CodeSet& other) {
  std::vector<Range> all = ranges_;
  all.insert(all.end(), other.ranges_.begin(), other.ranges_.end());
  std::sort(all.begin(), all.end(), [](Range a, Range b) { return a.first < b.first; });
  ranges_.clear();
  for (const Range& range : all) {
    if (!ranges_.empty() && range.first <= Next(ranges_.back().last)) {
      ranges_.back().last = std::max(ranges_.back().last, range.last);
    } else {
      ranges_.push_back(range);
    }
  }
}

void CodeSet::Intersect(const CodeSet& other) {
  CodeSet outside = other;
  outside.Complement();
  Complement();
  Add(outside);
  Complement();
}

void CodeSet::Complement() {
  std::vector<Range> rest;
  char32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.first > next) rest.push_back({next, Previous(range.first)});
    next = Next(range.last);
  }
  if (next <= kLastCode) rest.push_back({next, kLastCode});
  ranges_ = std::move(rest);
}

std::string CodeSet::ToClass() const {
  if (ranges_.empty()) return R"([^\x{0}-\x{10ffff}])";
  std::ostringstream out;
  out << std::hex << "[";
  for (const Range& range : ranges_) {
    out << "\\x{" << uint32_t{range.first} << "}";
    if (range.last > range.first) out << "-\\x{" << uint32_t{range.last} << "}";
  }
  out << "]";
  return out.str();
}

}  // namespace nereid::tokenizer
