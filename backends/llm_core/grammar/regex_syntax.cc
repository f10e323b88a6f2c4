// A tree of parts becomes a regular expression from its end to its beginning: each part is built
// together with the expression of everything that follows it, which makes look-ahead an
// intersection and `$` a test of what follows.
#include "backends/llm_core/grammar/regex_syntax.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "backends/llm_core/grammar/regex_parser.h"

namespace nereid::llm::grammar {
namespace {

// Parts of a sequence up to its last '^': the expression grows with them.
constexpr size_t kMaxPartsBeforeBegin = 100;

using Part = RegexPart;

class Builder {
 public:
  Builder(RegexPool& pool, Spelling spelling) : pool_(pool), spelling_(spelling) {
    any_ = SpellSet(pool, CodePointSet::All(), spelling);
    all_ = pool.Repeat(any_, 0, RegexPool::kUnlimited);
  }

  // The texts in which the pattern matches.
  RegexId Build(const Part& part, RegexMatch match) {
    const RegexId texts =
        match == RegexMatch::kWhole ? FollowedBy(part, RegexPool::kEmpty, true) : Search(part);
    return part.is_plain ? texts : pool_.Intersection({all_, texts});
  }

  // Whether '^' stands where its meaning is not held. The result is then unusable.
  bool refused() const { return refused_; }

 private:
  // The texts in some part of which `part` matches. With '^', a match at the beginning of the text
  // is not one behind other characters.
  RegexId Search(const Part& part) {
    if (!part.has_begin) return pool_.Concat(all_, FollowedBy(part, all_, false));
    const RegexId some = pool_.Repeat(any_, 1, RegexPool::kUnlimited);
    const RegexId later = pool_.Concat(some, FollowedBy(part, all_, false));
    return pool_.Union({FollowedBy(part, all_, true), later});
  }

  // What matches `part`, which is plain.
  RegexId PlainRegex(const Part& part) {
    switch (part.kind) {
      case Part::Kind::kSet:
        return SpellSet(pool_, part.set, spelling_);
      case Part::Kind::kConcat: {
        RegexId all = RegexPool::kEmpty;
        for (auto each = part.parts.rbegin(); each != part.parts.rend(); ++each) {
          all = pool_.Concat(PlainRegex(**each), all);
        }
        return all;
      }
      case Part::Kind::kUnion: {
        std::vector<RegexId> operands;
        for (const auto& each : part.parts) operands.push_back(PlainRegex(*each));
        return pool_.Union(std::move(operands));
      }
      default:
        return pool_.Repeat(PlainRegex(*part.parts[0]), part.min, part.max);
    }
  }

  // What matches `part` and then `rest`, which is everything up to the end of the text. `at_begin`:
  // the part begins where the text begins.
  RegexId FollowedBy(const Part& part, RegexId rest, bool at_begin) {
    if (part.is_plain) return pool_.Concat(PlainRegex(part), rest);
    switch (part.kind) {
      case Part::Kind::kBegin:
        return at_begin ? rest : RegexPool::kNothing;
      case Part::Kind::kEnd:
        return pool_.Intersection({RegexPool::kEmpty, rest});
      case Part::Kind::kAhead:
        return pool_.Intersection({FollowedBy(*part.parts[0], all_, at_begin), rest});
      case Part::Kind::kNotAhead:
        return pool_.Intersection(
            {pool_.Complement(FollowedBy(*part.parts[0], all_, at_begin)), rest});
      case Part::Kind::kUnion: {
        std::vector<RegexId> operands;
        for (const auto& each : part.parts) operands.push_back(FollowedBy(*each, rest, at_begin));
        return pool_.Union(std::move(operands));
      }
      case Part::Kind::kRepeat: {
        if (part.max == 0) return rest;
        const RegexId once = FollowedBy(*part.parts[0], rest, at_begin);
        return part.min == 0 ? pool_.Union({rest, once}) : once;
      }
      case Part::Kind::kConcat:
        return SequenceFollowedBy(part, rest, at_begin);
      default:
        return RegexPool::kNothing;
    }
  }

  // A sequence of parts and then `rest`.
  RegexId SequenceFollowedBy(const Part& part, RegexId rest, bool at_begin) {
    size_t end = part.parts.size();  // of the parts up to the last one with '^'
    while (end > 0 && !part.parts[end - 1]->has_begin) --end;
    if (end > kMaxPartsBeforeBegin) return Refuse();
    for (size_t i = part.parts.size(); i-- > end;) {
      rest = FollowedBy(*part.parts[i], rest, at_begin);
    }
    return end == 0 ? rest : PartsFollowedBy(part, 0, end, rest, at_begin);
  }

  // The parts of a sequence from `index` to `end`, the last of which has '^', and then `rest`.
  // Whether '^' stands at the beginning of the text depends on whether the parts before it match
  // the empty text. So where the first part may, both cases are built.
  RegexId PartsFollowedBy(const Part& part, size_t index, size_t end, RegexId rest, bool at_begin) {
    const Part& first = *part.parts[index];
    if (end == index + 1) return FollowedBy(first, rest, at_begin);
    const auto others = [&](bool begins) {
      return PartsFollowedBy(part, index + 1, end, rest, begins);
    };
    if (first.kind >= Part::Kind::kBegin || !at_begin) {
      return FollowedBy(first, others(at_begin), at_begin);
    }
    if (!first.is_plain) return Refuse();
    const RegexId text = PlainRegex(first);
    const RegexId some = pool_.Intersection({text, pool_.Complement(RegexPool::kEmpty)});
    const RegexId after_some = pool_.Concat(some, others(false));
    if (!pool_.IsNullable(text)) return after_some;
    return pool_.Union({after_some, others(true)});
  }

  RegexId Refuse() {
    refused_ = true;
    return RegexPool::kNothing;
  }

  RegexPool& pool_;
  const Spelling spelling_;
  RegexId any_, all_;  // one character, and any text
  bool refused_ = false;
};

}  // namespace

Result<RegexId> ParseRegex(RegexPool& pool, std::string_view pattern, RegexMatch match,
                           Spelling spelling) {
  NEREID_ASSIGN_OR_RETURN(const std::unique_ptr<RegexPart> part, ParsePattern(pattern));
  Builder builder(pool, spelling);
  const RegexId regex = builder.Build(*part, match);
  if (builder.refused()) {
    return UnsupportedError("a '^' in this position of the pattern cannot be enforced");
  }
  return regex;
}

}  // namespace nereid::llm::grammar
