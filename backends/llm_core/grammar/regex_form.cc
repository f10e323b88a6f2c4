// See regex_pool.h: what the form of an expression says.
#include <algorithm>

#include "backends/llm_core/grammar/regex_pool.h"

namespace nereid::llm::grammar {
namespace {

constexpr int kMaxFormDepth = 60;          // of nested expressions that are looked at
constexpr uint32_t kMaxFormOperands = 64;  // of a union that is changed

}  // namespace

std::optional<RegexPool::RepeatForm> RegexPool::LeadingRepeat(RegexId id) const {
  RegexId rest = kEmpty;
  const Node* node = &nodes_[id];
  if (node->kind == Kind::kConcat) {
    rest = node->b;
    node = &nodes_[node->a];
  }
  if (node->kind != Kind::kRepeat) return std::nullopt;
  return RepeatForm{node->a, static_cast<int>(node->b), static_cast<int>(node->c), rest};
}

bool RegexPool::PlainlyRequires(RegexId id, uint8_t byte, int depth) const {
  if (depth > kMaxFormDepth) return false;
  const auto requires_it = [&](RegexId each) { return PlainlyRequires(each, byte, depth + 1); };
  const auto first = operands_.begin() + nodes_[id].a;
  for (const Node* node = &nodes_[id];; node = &nodes_[node->b]) {
    switch (node->kind) {
      case Kind::kNothing:
        return true;
      case Kind::kLiteral:
        return std::string_view(literals_.data() + node->a, node->b)
                   .find(static_cast<char>(byte)) != std::string_view::npos;
      case Kind::kConcat:
        if (requires_it(node->a)) return true;
        continue;  // with the second operand
      case Kind::kUnion:
        if (node != &nodes_[id]) return requires_it(static_cast<RegexId>(node - nodes_.data()));
        return std::all_of(first, first + node->b, requires_it);
      case Kind::kIntersection:
        if (node != &nodes_[id]) return requires_it(static_cast<RegexId>(node - nodes_.data()));
        return std::any_of(first, first + node->b, requires_it);
      case Kind::kRepeat:
        return node->b > 0 && requires_it(node->a);
      default:
        return false;
    }
  }
}

bool RegexPool::IsPlainlyFinite(RegexId id, int depth) const {
  if (depth > kMaxFormDepth) return false;
  const Node& node = nodes_[id];
  switch (node.kind) {
    case Kind::kNothing:
    case Kind::kEmpty:
    case Kind::kBytes:
    case Kind::kLiteral:
      return true;
    case Kind::kConcat:
      return IsPlainlyFinite(node.a, depth + 1) && IsPlainlyFinite(node.b, depth + 1);
    case Kind::kUnion:
      return std::all_of(operands_.begin() + node.a, operands_.begin() + node.a + node.b,
                         [&](RegexId each) { return IsPlainlyFinite(each, depth + 1); });
    case Kind::kRepeat:
      return static_cast<int>(node.c) != kUnlimited && IsPlainlyFinite(node.a, depth + 1);
    default:
      return false;
  }
}

bool RegexPool::IsPlainlyOpen(RegexId id, std::span<const RegexId> any, int num) const {
  const auto repeats_any = [&](RegexId each, int least) {
    const std::optional<RepeatForm> form = LeadingRepeat(each);
    return form && std::find(any.begin(), any.end(), form->operand) != any.end() &&
           (form->max == kUnlimited || (least != kUnlimited && form->max >= least));
  };
  if (repeats_any(id, num)) return true;
  const Node* node = &nodes_[id];
  if (node->kind == Kind::kConcat) node = &nodes_[node->a];
  if (node->kind != Kind::kIntersection) return false;
  // What is left of an infinite set without a finite one is infinite.
  int num_open = 0;
  for (uint32_t i = 0; i < node->b; ++i) {
    const RegexId each = operands_[node->a + i];
    if (nodes_[each].kind == Kind::kComplement) {
      if (!IsPlainlyFinite(nodes_[each].a, 0)) return false;
    } else if (!repeats_any(each, kUnlimited) || ++num_open > 1) {
      return false;
    }
  }
  return num_open == 1;
}

// An intersection may have no text left whatever its counts are, so that it is not changed.
RegexId RegexPool::Saturate(RegexId id, int num_bytes, int depth) {
  const Node node = nodes_[id];
  if (depth > kMaxFormDepth || !Count()) return id;
  switch (node.kind) {
    case Kind::kConcat: {
      const RegexId first = Saturate(node.a, num_bytes, depth + 1);
      const RegexId second = Saturate(node.b, num_bytes, depth + 1);
      return first == node.a && second == node.b ? id : Concat(first, second);
    }
    case Kind::kRepeat: {
      const int min = static_cast<int>(node.b), max = static_cast<int>(node.c);
      const bool is_many = max != kUnlimited && max >= num_bytes;
      if (!node.is_plain || (!is_many && min <= num_bytes)) return id;
      return Repeat(node.a, std::min(min, num_bytes + 1), is_many ? kUnlimited : max);
    }
    case Kind::kUnion: {
      if (node.b > kMaxFormOperands) return id;
      std::vector<RegexId> operands(operands_.begin() + node.a,
                                    operands_.begin() + node.a + node.b);
      for (RegexId& each : operands) each = Saturate(each, num_bytes, depth + 1);
      return Union(std::move(operands));
    }
    default:
      return id;
  }
}

}  // namespace nereid::llm::grammar
