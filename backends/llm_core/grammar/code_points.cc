// See code_points.h.
#include "backends/llm_core/grammar/code_points.h"

#include <algorithm>

namespace nereid::llm::grammar {
namespace {

uint32_t LowBits(int bits) {
  return (uint32_t{1} << bits) - 1;
}

ByteSet HexDigits(unsigned first, unsigned last) {
  ByteSet set;
  for (unsigned digit = first; digit <= last; ++digit) {
    if (digit < 10) {
      set.Add(static_cast<uint8_t>('0' + digit));
    } else {
      set.Add(static_cast<uint8_t>('a' + digit - 10));
      set.Add(static_cast<uint8_t>('A' + digit - 10));
    }
  }
  return set;
}

// Numbers of first..last as `num_units` units of `bits` bits, each spelled by `spell(first, last)`.
template <typename SpellUnits>
RegexId UnitsBetween(RegexPool& pool, uint32_t first, uint32_t last, int num_units, int bits,
                     const SpellUnits& spell) {
  if (num_units == 1) return spell(first, last, 1);
  const int shift = bits * (num_units - 1);
  const uint32_t low = LowBits(shift);
  std::vector<RegexId> parts;
  const auto rest = [&](uint32_t from, uint32_t to) {
    return UnitsBetween(pool, from, to, num_units - 1, bits, spell);
  };
  uint32_t head = first >> shift;
  const uint32_t head_end = last >> shift;
  if (head == head_end) {
    return pool.Concat(spell(head, head, num_units), rest(first & low, last & low));
  }
  if ((first & low) != 0) {
    parts.push_back(pool.Concat(spell(head, head, num_units), rest(first & low, low)));
    ++head;
  }
  const bool ends_full = (last & low) == low;
  if (head < head_end || ends_full) {
    const uint32_t full_end = ends_full ? head_end : head_end - 1;
    if (head <= full_end) {
      parts.push_back(pool.Concat(spell(head, full_end, num_units), rest(0, low)));
    }
  }
  if (!ends_full) {
    parts.push_back(pool.Concat(spell(head_end, head_end, num_units), rest(0, last & low)));
  }
  return pool.Union(std::move(parts));
}

RegexId Utf8Range(RegexPool& pool, uint32_t first, uint32_t last) {
  static constexpr struct {
    uint32_t first, last;
    int num_units;
    uint8_t lead;
  } kForms[] = {{0, 0x7F, 1, 0},
                {0x80, 0x7FF, 2, 0xC0},
                {0x800, 0xFFFF, 3, 0xE0},
                {0x10000, 0x10FFFF, 4, 0xF0}};
  std::vector<RegexId> parts;
  for (const auto& form : kForms) {
    const uint32_t from = std::max(first, form.first), to = std::min(last, form.last);
    if (from > to) continue;
    const auto spell = [&](uint32_t low, uint32_t high, int left) {
      const unsigned base = left == form.num_units ? form.lead : 0x80;
      return pool.Bytes(ByteSet::Range(base + low, base + high));
    };
    parts.push_back(UnitsBetween(pool, from, to, form.num_units, 6, spell));
  }
  return pool.Union(std::move(parts));
}

RegexId HexRange(RegexPool& pool, uint32_t first, uint32_t last) {
  return UnitsBetween(pool, first, last, 4, 4, [&](uint32_t low, uint32_t high, int) {
    return pool.Bytes(HexDigits(low, high));
  });
}

// \uXXXX of a range, as a pair of escapes beyond U+FFFF.
RegexId EscapedRange(RegexPool& pool, uint32_t first, uint32_t last) {
  const RegexId mark = pool.Literal("\\u");
  std::vector<RegexId> parts;
  if (first <= 0xFFFF) {
    parts.push_back(pool.Concat(mark, HexRange(pool, first, std::min(last, 0xFFFFu))));
  }
  if (last >= 0x10000) {
    const uint32_t from = std::max(first, 0x10000u) - 0x10000, to = last - 0x10000;
    const auto spell = [&](uint32_t low, uint32_t high, int left) {
      const uint32_t base = left == 2 ? kFirstHighSurrogate : kFirstLowSurrogate;
      return pool.Concat(mark, HexRange(pool, base + low, base + high));
    };
    parts.push_back(UnitsBetween(pool, from, to, 2, 10, spell));
  }
  return pool.Union(std::move(parts));
}

RegexId RangesOf(RegexPool& pool, const CodePointSet& set,
                 RegexId (*range)(RegexPool&, uint32_t, uint32_t)) {
  std::vector<RegexId> parts;
  for (const auto& each : set.ranges()) parts.push_back(range(pool, each.first, each.last));
  return pool.Union(std::move(parts));
}

}  // namespace

CodePointSet::CodePointSet(std::vector<Range> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& x, const Range& y) { return x.first < y.first; });
  for (Range each : ranges) {
    each.last = std::min(each.last, kMaxCodePoint);
    if (each.first > each.last) continue;
    if (!ranges_.empty() && each.first <= ranges_.back().last + 1) {
      ranges_.back().last = std::max(ranges_.back().last, each.last);
    } else {
      ranges_.push_back(each);
    }
  }
  // Surrogates are cut out.
  for (size_t i = 0; i < ranges_.size(); ++i) {
    Range& each = ranges_[i];
    if (each.last < kFirstHighSurrogate || each.first > kLastSurrogate) continue;
    const Range below{each.first, kFirstHighSurrogate - 1}, above{kLastSurrogate + 1, each.last};
    ranges_.erase(ranges_.begin() + static_cast<ptrdiff_t>(i));
    if (above.first <= above.last)
      ranges_.insert(ranges_.begin() + static_cast<ptrdiff_t>(i), above);
    if (below.first <= below.last)
      ranges_.insert(ranges_.begin() + static_cast<ptrdiff_t>(i), below);
    if (below.first <= below.last) ++i;
    if (!(above.first <= above.last)) --i;
  }
}

CodePointSet CodePointSet::All() {
  return Of(0, kMaxCodePoint);
}

CodePointSet CodePointSet::Union(const CodePointSet& other) const {
  std::vector<Range> all = ranges_;
  all.insert(all.end(), other.ranges_.begin(), other.ranges_.end());
  return CodePointSet(std::move(all));
}

CodePointSet CodePointSet::Complement() const {
  std::vector<Range> gaps;
  uint32_t next = 0;
  for (const Range& each : ranges_) {
    if (each.first > next) gaps.push_back({next, each.first - 1});
    next = each.last + 1;
  }
  if (next <= kMaxCodePoint) gaps.push_back({next, kMaxCodePoint});
  return CodePointSet(std::move(gaps));
}

CodePointSet CodePointSet::Within(uint32_t first, uint32_t last) const {
  std::vector<Range> inside;
  for (const Range& each : ranges_) {
    inside.push_back({std::max(each.first, first), std::min(each.last, last)});
  }
  return CodePointSet(std::move(inside));
}

CodePointSet CodePointSet::IgnoringCase() const {
  std::vector<Range> all = ranges_;
  for (const Range& each : ranges_) {
    for (uint32_t c = std::max(each.first, 65u); c <= std::min(each.last, 122u); ++c) {
      if ((c | 32) >= 'a' && (c | 32) <= 'z') all.push_back({c ^ 32, c ^ 32});
    }
  }
  return CodePointSet(std::move(all));
}

bool CodePointSet::Has(uint32_t code_point) const {
  return std::any_of(ranges_.begin(), ranges_.end(), [&](const Range& each) {
    return each.first <= code_point && code_point <= each.last;
  });
}

RegexId SpellSet(RegexPool& pool, const CodePointSet& set, Spelling spelling) {
  if (spelling == Spelling::kUtf8) return RangesOf(pool, set, Utf8Range);
  static const CodePointSet kEscaped = CodePointSet::Of(0, 0x1F)
                                           .Union(CodePointSet::Of('"', '"'))
                                           .Union(CodePointSet::Of('\\', '\\'));
  std::vector<RegexId> parts{RangesOf(pool, set.Without(kEscaped), Utf8Range)};
  ByteSet letters;
  constexpr char kShort[][2] = {{'"', '"'},  {'\\', '\\'}, {'/', '/'},  {'\b', 'b'},
                                {'\f', 'f'}, {'\n', 'n'},  {'\r', 'r'}, {'\t', 't'}};
  for (const auto& [code, letter] : kShort) {
    if (set.Has(static_cast<uint32_t>(code))) letters.Add(static_cast<uint8_t>(letter));
  }
  if (!letters.IsEmpty()) parts.push_back(pool.Concat(pool.Literal("\\"), pool.Bytes(letters)));
  const CodePointSet numbered = spelling == Spelling::kJsonAnyEscape
                                    ? set
                                    : set.Within(0, 0x1F).Union(set.Within(0x7F, 0x10FFFF));
  parts.push_back(RangesOf(pool, numbered, EscapedRange));
  return pool.Union(std::move(parts));
}

RegexId SpellText(RegexPool& pool, std::string_view text, Spelling spelling) {
  if (spelling == Spelling::kUtf8) return pool.Literal(text);
  std::vector<RegexId> parts;
  std::string plain;  // characters with one spelling, as one literal
  for (size_t pos = 0; pos < text.size();) {
    const uint32_t code_point = ReadUtf8(text, pos);
    if (code_point >= 0x20 && code_point < 0x7F && code_point != '"' && code_point != '\\' &&
        code_point != '/' && spelling != Spelling::kJsonAnyEscape) {
      plain += static_cast<char>(code_point);
      continue;
    }
    parts.push_back(pool.Literal(plain));
    plain.clear();
    parts.push_back(SpellSet(pool, CodePointSet::Of(code_point, code_point), spelling));
  }
  RegexId all = pool.Literal(plain);
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) all = pool.Concat(*part, all);
  return all;
}

uint32_t ReadUtf8(std::string_view text, size_t& pos) {
  const auto byte = [&](size_t i) -> uint32_t {
    return i < text.size() ? static_cast<uint8_t>(text[i]) : 0;
  };
  const uint32_t lead = byte(pos);
  const int num = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  uint32_t code_point = num == 1 ? lead : lead & (0xFFu >> (num + 1));
  for (int i = 1; i < num; ++i) code_point = code_point << 6 | (byte(pos + i) & 0x3F);
  pos = std::min(text.size(), pos + num);
  return code_point;
}

bool IsUtf8(std::string_view text) {
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    const uint32_t code_point = ReadUtf8(text, pos);
    std::string again;
    if (code_point > kMaxCodePoint || IsSurrogate(code_point)) return false;
    AppendUtf8(code_point, again);
    if (again != text.substr(begin, pos - begin)) return false;
  }
  return true;
}

void AppendUtf8(uint32_t code_point, std::string& out) {
  if (code_point < 0x80) {
    out += static_cast<char>(code_point);
    return;
  }
  const int num = code_point < 0x800 ? 2 : code_point < 0x10000 ? 3 : 4;
  out += static_cast<char>((0xF00 >> num & 0xFF) | code_point >> 6 * (num - 1));
  for (int i = num - 2; i >= 0; --i) out += static_cast<char>(0x80 | (code_point >> 6 * i & 0x3F));
}

}  // namespace nereid::llm::grammar
