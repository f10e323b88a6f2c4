// Builds expressions in a form that equal ones share, so that they are the same node.
#include "backends/llm_core/grammar/regex_pool.h"

#include <algorithm>

namespace nereid::llm::grammar {
namespace {

constexpr int kMaxDepth = 400;  // of unions and literals that are built by recursion

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
  return hash ^ hash >> 29;
}

}  // namespace

RegexPool::RegexPool(const RegexLimits& limits) : limits_(limits) {
  table_.resize(1024);
  Node node;
  nodes_.push_back(node);  // kNothing is not in the table: 0 marks a free slot
  node.kind = Kind::kEmpty;
  node.nullable = true;
  Intern(node);
  Complement(kNothing);
}

size_t RegexPool::size_bytes() const {
  return nodes_.capacity() * sizeof(Node) + sets_.capacity() * sizeof(ByteSet) +
         literals_.capacity() + (operands_.capacity() + table_.capacity()) * sizeof(RegexId) +
         memo_.size() * sizeof(Memo);
}

uint64_t RegexPool::HashOf(const Node& node) const {
  uint64_t hash = Mix(17, static_cast<uint64_t>(node.kind));
  switch (node.kind) {
    case Kind::kBytes:
      for (const uint64_t word : sets_[node.a].words) hash = Mix(hash, word);
      return hash;
    case Kind::kLiteral:
      return Mix(hash, std::hash<std::string_view>()({literals_.data() + node.a, node.b}));
    case Kind::kUnion:
    case Kind::kIntersection:
      for (uint32_t i = 0; i < node.b; ++i) hash = Mix(hash, operands_[node.a + i]);
      return hash;
    default:
      return Mix(Mix(hash, uint64_t{node.a} << 32 | node.b), uint64_t{node.c} << 32 | node.d);
  }
}

bool RegexPool::Equal(const Node& x, const Node& y) const {
  if (x.kind != y.kind) return false;
  switch (x.kind) {
    case Kind::kBytes:
      return sets_[x.a] == sets_[y.a];
    case Kind::kLiteral:
      return std::string_view(literals_.data() + x.a, x.b) ==
             std::string_view(literals_.data() + y.a, y.b);
    case Kind::kUnion:
    case Kind::kIntersection:
      return x.b == y.b && std::equal(operands_.begin() + x.a, operands_.begin() + x.a + x.b,
                                      operands_.begin() + y.a);
    default:
      return x.a == y.a && x.b == y.b && x.c == y.c && x.d == y.d;
  }
}

void RegexPool::GrowTable() {
  std::vector<RegexId> larger(table_.size() * 2);
  for (const RegexId id : table_) {
    if (id == 0) continue;
    size_t slot = HashOf(nodes_[id]) & (larger.size() - 1);
    while (larger[slot] != 0) slot = (slot + 1) & (larger.size() - 1);
    larger[slot] = id;
  }
  table_ = std::move(larger);
}

RegexId RegexPool::Intern(const Node& node) {
  if (exhausted_) return kNothing;
  size_t slot = HashOf(node) & (table_.size() - 1);
  for (; table_[slot] != 0; slot = (slot + 1) & (table_.size() - 1)) {
    if (Equal(nodes_[table_[slot]], node)) return table_[slot];
  }
  if ((nodes_.size() & 255) == 0 && size_bytes() > limits_.max_bytes) {
    exhausted_ = true;
    return kNothing;
  }
  const auto id = static_cast<RegexId>(nodes_.size());
  nodes_.push_back(node);
  table_[slot] = id;
  if (nodes_.size() * 2 > table_.size()) GrowTable();
  return id;
}

RegexId RegexPool::Bytes(const ByteSet& set) {
  if (set.IsEmpty()) return kNothing;
  int num = 0, last = 0;
  for (int byte = 0; byte < 256 && num < 2; ++byte) {
    if (set.Has(static_cast<uint8_t>(byte))) ++num, last = byte;
  }
  if (num == 1) {  // a single byte is always a literal
    const char byte = static_cast<char>(last);
    return Literal({&byte, 1});
  }
  Node node;
  node.kind = Kind::kBytes;
  node.a = static_cast<uint32_t>(sets_.size());
  sets_.push_back(set);
  const RegexId id = Intern(node);
  if (nodes_[id].a != node.a) sets_.pop_back();
  return id;
}

RegexId RegexPool::Literal(std::string_view text) {
  if (text.empty()) return kEmpty;
  Node node;
  node.kind = Kind::kLiteral;
  node.a = static_cast<uint32_t>(literals_.size());
  node.b = static_cast<uint32_t>(text.size());
  literals_.append(text);
  const RegexId id = Intern(node);
  if (nodes_[id].a != node.a) literals_.resize(node.a);
  return id;
}

RegexId RegexPool::Concat(RegexId first, RegexId second) {
  if (first == kNothing || second == kNothing) return kNothing;
  if (first == kEmpty) return second;
  if (second == kEmpty) return first;
  // The first operand of a concatenation is never a concatenation.
  std::vector<RegexId> heads;
  while (nodes_[first].kind == Kind::kConcat) {
    heads.push_back(nodes_[first].a);
    first = nodes_[first].b;
  }
  heads.push_back(first);
  while (!heads.empty()) {
    if (!Count()) return kNothing;
    Node node;
    node.kind = Kind::kConcat;
    node.a = heads.back();
    node.b = second;
    node.nullable = nodes_[node.a].nullable && nodes_[second].nullable;
    node.is_plain = nodes_[node.a].is_plain && nodes_[second].is_plain;
    second = Intern(node);
    heads.pop_back();
  }
  return second;
}

RegexId RegexPool::Concat(std::initializer_list<RegexId> parts) {
  RegexId all = kEmpty;
  for (auto part = std::rbegin(parts); part != std::rend(parts); ++part) all = Concat(*part, all);
  return all;
}

RegexId RegexPool::InternOperands(Kind kind, std::vector<RegexId>& operands) {
  Node node;
  node.kind = kind;
  node.a = static_cast<uint32_t>(operands_.size());
  node.b = static_cast<uint32_t>(operands.size());
  node.is_plain = kind == Kind::kUnion;
  node.nullable = kind == Kind::kIntersection;
  for (const RegexId id : operands) {
    if (kind == Kind::kUnion) {
      node.nullable |= nodes_[id].nullable;
      node.is_plain &= nodes_[id].is_plain;
    } else {
      node.nullable &= nodes_[id].nullable;
    }
  }
  operands_.insert(operands_.end(), operands.begin(), operands.end());
  const RegexId id = Intern(node);
  if (nodes_[id].a != node.a || id == kNothing) operands_.resize(node.a);
  return id;
}

RegexId RegexPool::Union(std::vector<RegexId> operands) {
  if (!Count(operands.size())) return kNothing;
  for (size_t i = 0; i < operands.size(); ++i) {  // operands of unions become operands of this one
    const Node node = nodes_[operands[i]];
    if (node.kind != Kind::kUnion) continue;
    if (!Count(node.b)) return kNothing;
    operands[i] = kNothing;
    operands.insert(operands.end(), operands_.begin() + node.a,
                    operands_.begin() + node.a + node.b);
  }
  ByteSet bytes;
  int num_bytes = 0;
  bool has_nullable = false;
  for (const RegexId id : operands) {
    const Node& node = nodes_[id];
    if (id == kAll) return kAll;
    if (node.kind == Kind::kBytes) bytes |= sets_[node.a], ++num_bytes;
    if (node.kind == Kind::kLiteral && node.b == 1) {
      bytes.Add(static_cast<uint8_t>(literals_[node.a])), ++num_bytes;
    }
    has_nullable |= node.nullable && id != kEmpty;
  }
  std::erase_if(operands, [&](RegexId id) {
    const Node& node = nodes_[id];
    return id == kNothing || (id == kEmpty && has_nullable) ||
           (num_bytes > 1 &&
            (node.kind == Kind::kBytes || (node.kind == Kind::kLiteral && node.b == 1)));
  });
  if (num_bytes > 1) operands.push_back(Bytes(bytes));
  std::sort(operands.begin(), operands.end());
  operands.erase(std::unique(operands.begin(), operands.end()), operands.end());
  if (operands.empty()) return kNothing;
  if (operands.size() == 1) return operands[0];
  return InternOperands(Kind::kUnion, operands);
}

RegexId RegexPool::Intersection(std::vector<RegexId> operands) {
  if (!Count(operands.size())) return kNothing;
  for (size_t i = 0; i < operands.size(); ++i) {
    const Node node = nodes_[operands[i]];
    if (node.kind != Kind::kIntersection) continue;
    if (!Count(node.b)) return kNothing;
    operands[i] = kAll;
    operands.insert(operands.end(), operands_.begin() + node.a,
                    operands_.begin() + node.a + node.b);
  }
  std::sort(operands.begin(), operands.end());
  operands.erase(std::unique(operands.begin(), operands.end()), operands.end());
  std::erase(operands, kAll);
  if (operands.empty()) return kAll;
  if (operands.front() == kNothing) return kNothing;
  if (operands.size() == 1) return operands[0];
  if (operands.front() == kEmpty) {
    const auto nullable = [&](RegexId id) { return nodes_[id].nullable; };
    return std::all_of(operands.begin(), operands.end(), nullable) ? kEmpty : kNothing;
  }
  return InternOperands(Kind::kIntersection, operands);
}

RegexId RegexPool::Complement(RegexId operand) {
  if (exhausted_) return kNothing;
  if (nodes_[operand].kind == Kind::kComplement) return nodes_[operand].a;
  Node node;
  node.kind = Kind::kComplement;
  node.a = operand;
  node.nullable = !nodes_[operand].nullable;
  node.is_plain = operand == kNothing;
  return Intern(node);
}

RegexId RegexPool::Repeat(RegexId operand, int min, int max) {
  if (max == 0) return kEmpty;
  if (operand == kNothing) return min == 0 ? kEmpty : kNothing;
  if (operand == kEmpty || (min == 1 && max == 1)) return operand;
  if (operand == kAll) return min == 0 || nodes_[kAll].nullable ? kAll : kNothing;
  if (nodes_[operand].nullable) min = 0;
  if (min == 0 && max == 1) return Optional(operand);
  const Node& inner = nodes_[operand];
  if (inner.kind == Kind::kRepeat && inner.b == 0 && static_cast<int>(inner.c) == kUnlimited) {
    return operand;
  }
  Node node;
  node.kind = Kind::kRepeat;
  node.a = operand;
  node.b = static_cast<uint32_t>(min);
  node.c = static_cast<uint32_t>(max);
  node.nullable = min == 0;
  node.is_plain = inner.is_plain;
  return Intern(node);
}

RegexId RegexPool::Literals(std::vector<std::string>& texts) {
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  return LiteralsBelow(texts, 0);
}

// The union of the rests of sorted texts that share their first `depth` bytes.
RegexId RegexPool::LiteralsBelow(std::span<const std::string> texts, size_t depth) {
  if (!Count()) return kNothing;
  if (texts.empty()) return kNothing;
  if (texts.size() == 1) return Literal(std::string_view(texts[0]).substr(depth));
  size_t common = depth;
  const std::string &first = texts.front(), &last = texts.back();
  while (common < first.size() && common < last.size() && first[common] == last[common]) ++common;
  if (common > depth) {
    return Concat(Literal(std::string_view(first).substr(depth, common - depth)),
                  LiteralsBelow(texts, common));
  }
  std::vector<RegexId> operands;
  if (depth > kMaxDepth) {  // bounds the recursion
    for (const std::string& text : texts) {
      operands.push_back(Literal(std::string_view(text).substr(depth)));
    }
    return Union(std::move(operands));
  }
  for (size_t begin = 0; begin < texts.size();) {
    if (texts[begin].size() == depth) {
      operands.push_back(kEmpty);
      ++begin;
      continue;
    }
    size_t end = begin;
    while (end < texts.size() && texts[end][depth] == texts[begin][depth]) ++end;
    operands.push_back(LiteralsBelow(texts.subspan(begin, end - begin), depth));
    begin = end;
  }
  return Union(std::move(operands));
}

RegexId RegexPool::Multiples(uint32_t divisor, int scale) {
  return InternMultiples(divisor, 0, scale, -1);
}

RegexId RegexPool::InternMultiples(uint32_t divisor, uint32_t remainder, int scale, int left) {
  Node node;
  node.kind = Kind::kMultiples;
  node.a = divisor;
  node.b = remainder;
  node.c = static_cast<uint32_t>(scale);
  node.d = static_cast<uint32_t>(left);
  uint64_t rest = remainder;
  for (int i = left < 0 ? scale : left; i > 0; --i) rest = rest * 10 % divisor;
  node.nullable = rest == 0;
  node.is_plain = left < 0;  // before the point, further digits lead to every remainder
  return Intern(node);
}

}  // namespace nereid::llm::grammar
