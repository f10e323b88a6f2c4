// Regular expressions over bytes as a graph of shared nodes, and their derivatives. The derivative
// of an expression by a byte is the expression of what may follow that byte, so that a node is a
// state of a deterministic automaton that is built where it is walked. Union, intersection,
// complement and counted repetition are nodes of their own and are never expanded.
//
// Equal expressions are the same node. All work is counted: past the limits of the pool every
// operation returns kNothing and exhausted() is true, and no result may be used any more. [one
// thread at a time]
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "backends/llm_core/grammar/byte_set.h"

namespace nereid::llm::grammar {

using RegexId = uint32_t;

struct RegexLimits {
  size_t max_bytes = size_t{192} << 20;  // memory of nodes and tables
  uint64_t max_steps = 20'000'000;       // derivatives and visited operands
};

class RegexPool {
 public:
  static constexpr RegexId kNothing = 0;  // matches no text
  static constexpr RegexId kEmpty = 1;    // matches the empty text
  static constexpr RegexId kAll = 2;      // matches every text
  static constexpr int kUnlimited = -1;

  explicit RegexPool(const RegexLimits& limits = {});

  RegexId Bytes(const ByteSet& set);
  RegexId Literal(std::string_view text);
  RegexId Concat(RegexId first, RegexId second);
  RegexId Concat(std::initializer_list<RegexId> parts);
  RegexId Union(std::vector<RegexId> operands);
  RegexId Intersection(std::vector<RegexId> operands);
  RegexId Complement(RegexId operand);
  // `max` may be kUnlimited.
  RegexId Repeat(RegexId operand, int min, int max);
  RegexId Optional(RegexId operand) { return Union({kEmpty, operand}); }
  // The union of many texts, with common beginnings shared. Sorts `texts`.
  RegexId Literals(std::vector<std::string>& texts);
  // Decimal digits whose number, scaled by ten to the power of `scale`, is a multiple of `divisor`,
  // with at most `scale` digits and further zeros after a point. INVARIANT: divisor < 2^31.
  RegexId Multiples(uint32_t divisor, int scale);

  RegexId Derivative(RegexId id, uint8_t byte);
  // Whether the empty text matches.
  bool IsNullable(RegexId id) const { return nodes_[id].nullable; }
  // Whether any text matches.
  bool IsAlive(RegexId id);
  // Divides `classes` until the derivative is the same for all bytes of a class.
  void SplitClasses(RegexId id, ByteClasses& classes) { SplitClasses({&id, 1}, classes); }
  void SplitClasses(std::span<const RegexId> ids, ByteClasses& classes);
  // Whether `text` matches.
  bool Matches(RegexId id, std::string_view text);
  // Whether infinitely many texts match; meaningful only if IsAlive. Otherwise collects the texts,
  // up to `max_texts`, into `texts`; more of them count as infinite.
  bool IsInfinite(RegexId id, size_t max_texts, std::vector<std::string>& texts);

  // What the form of an expression says of it, without derivatives; see regex_form.cc.
  // A repetition, and what follows it.
  struct RepeatForm {
    RegexId operand;
    int min, max;
    RegexId rest;
  };
  std::optional<RepeatForm> LeadingRepeat(RegexId id) const;
  // Whether it is plain that each matching text contains the byte.
  bool PlainlyRequires(RegexId id, uint8_t byte) const { return PlainlyRequires(id, byte, 0); }
  // Whether it is plain that, after each text of characters of `any`, infinitely many texts still
  // match: any text of at least `num` such characters matches, but for finitely many.
  bool IsPlainlyOpen(RegexId id, std::span<const RegexId> any, int num) const;
  // An expression that has the same beginnings, of at most `num_bytes` bytes, of matching texts, of
  // which the same ones match, with counts above `num_bytes` replaced. Expressions that differ only
  // in large counts become the same.
  RegexId Saturate(RegexId id, int num_bytes) { return Saturate(id, num_bytes, 0); }

  bool exhausted() const { return exhausted_; }
  size_t size_bytes() const;
  uint64_t num_steps() const { return num_steps_; }
  // Counts work. Returns false past the limit.
  bool Count(uint64_t steps = 1) {
    num_steps_ += steps;
    if (num_steps_ > limits_.max_steps) exhausted_ = true;
    return !exhausted_;
  }
  // Starts a new count of steps.
  void ResetSteps() { num_steps_ = 0; }
  void set_limits(const RegexLimits& limits) { limits_ = limits; }

 private:
  // What the members `a`, `b`, `c` and `d` of a node of each kind are.
  enum class Kind : uint8_t {
    kNothing,
    kEmpty,
    kBytes,         // index into sets_
    kLiteral,       // offset and size in literals_
    kConcat,        // two operands
    kUnion,         // offset and number in operands_
    kIntersection,  // the same
    kComplement,    // operand
    kRepeat,        // operand, min, max
    kMultiples,     // divisor, remainder, scale, and remaining digits after the point or -1 before
  };
  struct Node {
    Kind kind = Kind::kNothing;
    bool nullable = false;
    bool is_plain = true;  // has no intersection or complement: it is alive unless kNothing
    int8_t alive = -1;     // -1: not known
    uint32_t visit = 0;
    uint32_t a = 0, b = 0, c = 0, d = 0;
  };

  RegexId Intern(const Node& node);
  uint64_t HashOf(const Node& node) const;
  bool Equal(const Node& x, const Node& y) const;
  RegexId InternOperands(Kind kind, std::vector<RegexId>& operands);
  RegexId InternMultiples(uint32_t divisor, uint32_t remainder, int scale, int left);
  RegexId LiteralsBelow(std::span<const std::string> texts, size_t depth);
  RegexId ComputeDerivative(RegexId id, uint8_t byte);
  RegexId DerivativeOfConcat(RegexId id, uint8_t byte);
  RegexId DerivativeOfMultiples(RegexId id, uint8_t byte);
  const ByteClasses* KnownClasses(RegexId id);
  void SplitClassesOf(RegexId id, ByteClasses& classes, ByteSet& singles);
  bool PlainlyRequires(RegexId id, uint8_t byte, int depth) const;
  bool IsPlainlyFinite(RegexId id, int depth) const;
  RegexId Saturate(RegexId id, int num_bytes, int depth);
  void GrowTable();

  RegexLimits limits_;
  std::vector<Node> nodes_;
  std::vector<ByteSet> sets_;
  std::string literals_;
  std::vector<RegexId> operands_;
  std::vector<RegexId> table_;  // open addressing over nodes_; 0 is a free slot
  struct Memo {
    uint64_t key = ~uint64_t{0};
    RegexId value = 0;
  };
  std::vector<Memo> memo_;  // derivatives, direct mapped: an old entry gives way to a new one
  std::unordered_map<RegexId, ByteClasses> classes_;  // of some unions with many operands
  uint32_t visit_ = 0;
  uint64_t num_steps_ = 0;
  bool exhausted_ = false;
};

}  // namespace nereid::llm::grammar
