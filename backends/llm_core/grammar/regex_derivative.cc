// Derivatives of expressions, and what is found by walking along them: the classes of bytes that
// they distinguish, and whether texts match. See regex_pool.h.
#include <algorithm>
#include <deque>
#include <unordered_map>

#include "backends/llm_core/grammar/regex_pool.h"

namespace nereid::llm::grammar {
namespace {

constexpr int kMemoBits = 15;  // the memo has 2^kMemoBits derivatives
// Unions whose classes of bytes are kept: so many, with so many operands.
constexpr size_t kMaxKnownClasses = 256;
constexpr uint32_t kMinKnownOperands = 4, kMaxKnownOperands = 64;

}  // namespace

RegexId RegexPool::Derivative(RegexId id, uint8_t byte) {
  const Kind kind = nodes_[id].kind;
  if (kind <= Kind::kLiteral) return ComputeDerivative(id, byte);
  if (memo_.empty()) memo_.resize(size_t{1} << kMemoBits);
  const uint64_t key = uint64_t{id} << 8 | byte;
  const size_t slot = (key * 0x9E3779B97F4A7C15u) >> (64 - kMemoBits);
  if (memo_[slot].key == key) return memo_[slot].value;
  const RegexId value = ComputeDerivative(id, byte);
  memo_[slot] = {key, value};
  return value;
}

RegexId RegexPool::ComputeDerivative(RegexId id, uint8_t byte) {
  if (!Count()) return kNothing;
  const Node node = nodes_[id];
  switch (node.kind) {
    case Kind::kNothing:
    case Kind::kEmpty:
      return kNothing;
    case Kind::kBytes:
      return sets_[node.a].Has(byte) ? kEmpty : kNothing;
    case Kind::kLiteral: {
      if (static_cast<uint8_t>(literals_[node.a]) != byte) return kNothing;
      if (node.b == 1) return kEmpty;
      Node rest;  // shares the bytes of the literal
      rest.kind = Kind::kLiteral;
      rest.a = node.a + 1;
      rest.b = node.b - 1;
      return Intern(rest);
    }
    case Kind::kConcat:
      return DerivativeOfConcat(id, byte);
    case Kind::kUnion:
    case Kind::kIntersection: {
      std::vector<RegexId> operands;
      for (uint32_t i = 0; i < node.b; ++i) {
        const RegexId derivative = Derivative(operands_[node.a + i], byte);
        if (derivative != kNothing) {
          operands.push_back(derivative);
        } else if (node.kind == Kind::kIntersection) {
          return kNothing;
        }
      }
      return node.kind == Kind::kUnion ? Union(std::move(operands))
                                       : Intersection(std::move(operands));
    }
    case Kind::kComplement:
      return Complement(Derivative(node.a, byte));
    case Kind::kRepeat: {
      const int min = static_cast<int>(node.b), max = static_cast<int>(node.c);
      const RegexId rest =
          Repeat(node.a, std::max(min - 1, 0), max == kUnlimited ? kUnlimited : max - 1);
      return Concat(Derivative(node.a, byte), rest);
    }
    case Kind::kMultiples:
      return DerivativeOfMultiples(id, byte);
  }
  return kNothing;
}

RegexId RegexPool::DerivativeOfConcat(RegexId id, uint8_t byte) {
  std::vector<RegexId> operands;
  while (nodes_[id].kind == Kind::kConcat) {
    const Node node = nodes_[id];
    operands.push_back(Concat(Derivative(node.a, byte), node.b));
    id = node.b;
    if (!nodes_[node.a].nullable) return Union(std::move(operands));
    if (!Count()) return kNothing;
  }
  operands.push_back(Derivative(id, byte));
  return Union(std::move(operands));
}

RegexId RegexPool::DerivativeOfMultiples(RegexId id, uint8_t byte) {
  const Node node = nodes_[id];
  const uint32_t divisor = node.a;
  const int scale = static_cast<int>(node.c), left = static_cast<int>(node.d);
  if (byte == '.') return left < 0 ? InternMultiples(divisor, node.b, scale, scale) : kNothing;
  if (byte < '0' || byte > '9') return kNothing;
  if (left == 0) return byte == '0' ? id : kNothing;
  const auto remainder = static_cast<uint32_t>((uint64_t{node.b} * 10 + (byte - '0')) % divisor);
  return InternMultiples(divisor, remainder, scale, left < 0 ? -1 : left - 1);
}

bool RegexPool::IsAlive(RegexId id) {
  if (nodes_[id].is_plain) return id != kNothing;
  if (nodes_[id].nullable) return true;
  if (nodes_[id].alive >= 0) return nodes_[id].alive > 0;
  // Searches breadth first for a text that matches.
  std::unordered_map<RegexId, RegexId> parents{{id, id}};
  std::deque<RegexId> queue{id};
  while (!queue.empty() && !exhausted_) {
    const RegexId state = queue.front();
    queue.pop_front();
    ByteClasses classes;
    SplitClasses(state, classes);
    std::vector<bool> seen(classes.num_classes);
    for (int byte = 0; byte < 256; ++byte) {
      if (seen[classes.class_of[byte]]) continue;
      seen[classes.class_of[byte]] = true;
      const RegexId next = Derivative(state, static_cast<uint8_t>(byte));
      const Node& node = nodes_[next];
      if (next == kNothing || node.alive == 0) continue;
      if (node.nullable || node.is_plain || node.alive > 0) {
        for (RegexId each = state;; each = parents[each]) {
          nodes_[each].alive = 1;
          if (each == id) return true;
        }
      }
      if (parents.emplace(next, state).second) queue.push_back(next);
    }
  }
  if (exhausted_) return false;
  for (const auto& [state, parent] : parents) nodes_[state].alive = 0;
  return false;
}

void RegexPool::SplitClasses(std::span<const RegexId> ids, ByteClasses& classes) {
  ++visit_;
  ByteSet singles;
  for (const RegexId id : ids) SplitClassesOf(id, classes, singles);
  if (singles.IsEmpty()) return;
  std::array<uint16_t, 256> sizes{};
  for (const uint8_t each : classes.class_of) ++sizes[each];
  for (int byte = 0; byte < 256; ++byte) {
    uint8_t& own = classes.class_of[byte];
    if (!singles.Has(static_cast<uint8_t>(byte)) || sizes[own] == 1) continue;
    --sizes[own];
    own = static_cast<uint8_t>(classes.num_classes++);
    sizes[own] = 1;
  }
}

// The classes of a union that occurs in many expressions, such as that of all characters, or null.
const ByteClasses* RegexPool::KnownClasses(RegexId id) {
  if (nodes_[id].kind != Kind::kUnion || nodes_[id].b < kMinKnownOperands ||
      nodes_[id].b > kMaxKnownOperands) {
    return nullptr;
  }
  if (const auto known = classes_.find(id); known != classes_.end()) return &known->second;
  if (classes_.size() >= kMaxKnownClasses) return nullptr;
  // The visits of the operands are new ones. The outer visit goes on under the newest number, which
  // may visit a node twice but leaves none out.
  ByteClasses own;
  const Node node = nodes_[id];
  for (uint32_t i = 0; i < node.b; ++i) {
    ByteClasses each;
    SplitClasses(operands_[node.a + i], each);
    own.Split(each);
  }
  return &classes_.emplace(id, own).first->second;
}

void RegexPool::SplitClassesOf(RegexId id, ByteClasses& classes, ByteSet& singles) {
  while (true) {
    if (nodes_[id].visit == visit_ || !Count()) return;
    nodes_[id].visit = visit_;
    const Node node = nodes_[id];
    switch (node.kind) {
      case Kind::kNothing:
      case Kind::kEmpty:
        return;
      case Kind::kBytes:
        return classes.Split(sets_[node.a]);
      case Kind::kLiteral:
        return singles.Add(static_cast<uint8_t>(literals_[node.a]));
      case Kind::kMultiples:
        for (char c = '0'; c <= '9'; ++c) singles.Add(static_cast<uint8_t>(c));
        return singles.Add('.');
      case Kind::kConcat:
        SplitClassesOf(node.a, classes, singles);
        if (!nodes_[node.a].nullable) return;
        id = node.b;
        break;
      case Kind::kComplement:
      case Kind::kRepeat:
        id = node.a;
        break;
      case Kind::kUnion:
      case Kind::kIntersection:
        if (const ByteClasses* known = KnownClasses(id)) return classes.Split(*known);
        for (uint32_t i = 0; i < node.b; ++i) {
          SplitClassesOf(operands_[node.a + i], classes, singles);
        }
        return;
    }
  }
}

bool RegexPool::Matches(RegexId id, std::string_view text) {
  for (const char c : text) {
    id = Derivative(id, static_cast<uint8_t>(c));
    if (id == kNothing) return false;
  }
  return nodes_[id].nullable;
}

bool RegexPool::IsInfinite(RegexId id, size_t max_texts, std::vector<std::string>& texts) {
  // A path with many bytes counts as a cycle, and so do many open paths.
  constexpr size_t kMaxTextBytes = 256;
  const size_t max_open = max_texts * 8 + 256;
  struct Entry {
    RegexId state;
    std::string text;
  };
  std::vector<Entry> stack{{id, ""}};
  while (!stack.empty()) {
    const Entry entry = std::move(stack.back());
    stack.pop_back();
    if (entry.text.size() > kMaxTextBytes || stack.size() > max_open || exhausted_) return true;
    if (nodes_[entry.state].nullable) {
      texts.push_back(entry.text);
      if (texts.size() > max_texts) return true;
    }
    ByteClasses classes;
    SplitClasses(entry.state, classes);
    for (int byte = 0; byte < 256; ++byte) {
      const RegexId next = Derivative(entry.state, static_cast<uint8_t>(byte));
      if (IsAlive(next)) stack.push_back({next, entry.text + static_cast<char>(byte)});
    }
  }
  return false;
}

}  // namespace nereid::llm::grammar
