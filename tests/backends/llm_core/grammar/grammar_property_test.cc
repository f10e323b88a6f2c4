// Compares masks with the definition: a token is allowed exactly if the text with the token's bytes
// is the beginning of a text of the grammar. Random grammars over few letters are enumerated.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "tests/backends/llm_core/grammar/small_vocabulary.h"
#include "tests/support/sanitizer.h"

namespace nereid::llm::grammar {
namespace {

constexpr size_t kLength = 5;  // of the beginnings that are enumerated

// The texts of an expression: whole ones of up to kLength bytes, and the beginnings of longer ones.
struct Beginnings {
  std::set<std::string> whole, cut;
  bool operator==(const Beginnings&) const = default;
};

Beginnings Joined(const Beginnings& x, const Beginnings& y) {
  Beginnings all = x;
  all.whole.insert(y.whole.begin(), y.whole.end());
  all.cut.insert(y.cut.begin(), y.cut.end());
  return all;
}
Beginnings Sequence(const Beginnings& x, const Beginnings& y) {
  Beginnings all;
  if (!y.whole.empty() || !y.cut.empty()) all.cut = x.cut;
  for (const std::string& head : x.whole) {
    for (const std::string& tail : y.whole) {
      const std::string text = head + tail;
      text.size() <= kLength ? all.whole.insert(text) : all.cut.insert(text.substr(0, kLength));
    }
    for (const std::string& tail : y.cut) all.cut.insert((head + tail).substr(0, kLength));
  }
  return all;
}

struct RandomGrammar {
  struct Node {
    enum Kind { kText, kSet, kRule, kSequence, kUnion, kRepeat } kind;
    std::string text;
    int rule = 0, min = 0, max = 0;
    std::vector<Node> parts;
  };

  explicit RandomGrammar(uint32_t seed) : random(seed) {
    const int num_rules = 1 + Draw(4);
    for (int i = 0; i < num_rules; ++i) rules.emplace_back();
    for (Node& rule : rules) rule = Make(3);
  }

  int Draw(int num) { return static_cast<int>(random() % static_cast<uint32_t>(num)); }

  Node Make(int depth) {
    Node node;
    switch (Draw(depth > 0 ? 8 : 3)) {
      case 0:
        node.kind = Node::kText;
        for (int i = Draw(3); i >= 0; --i) node.text += static_cast<char>('a' + Draw(3));
        return node;
      case 1:
        node.kind = Node::kSet;
        node.text = std::vector<std::string>{"ab", "bc", "abc", "c"}[Draw(4)];
        return node;
      case 2:
      case 3:
        node.kind = Node::kRule;
        node.rule = Draw(static_cast<int>(rules.size()));
        return node;
      case 4:
      case 5:
        node.kind = Node::kSequence;
        break;
      case 6:
        node.kind = Node::kUnion;
        break;
      default:
        node.kind = Node::kRepeat;
        node.min = Draw(3);
        node.max = Draw(2) == 0 ? -1 : node.min + Draw(3);
        node.parts.push_back(Make(depth - 1));
        return node;
    }
    for (int i = 1 + Draw(3); i > 0; --i) node.parts.push_back(Make(depth - 1));
    return node;
  }

  static std::string Print(const Node& node) {
    std::string all;
    switch (node.kind) {
      case Node::kText:
        return '"' + node.text + '"';
      case Node::kSet:
        return '[' + node.text + ']';
      case Node::kRule:
        return node.rule == 0 ? "root" : "r" + std::to_string(node.rule);
      case Node::kRepeat:
        all = "(" + Print(node.parts[0]) + "){" + std::to_string(node.min) + ",";
        return all + (node.max < 0 ? "" : std::to_string(node.max)) + "}";
      default:
        for (const Node& part : node.parts) {
          if (!all.empty()) all += node.kind == Node::kUnion ? " | " : " ";
          all += Print(part);
        }
        return "(" + all + ")";
    }
  }
  std::string Print() const {
    std::string all;
    for (size_t i = 0; i < rules.size(); ++i) {
      all += (i == 0 ? "root" : "r" + std::to_string(i)) + " ::= " + Print(rules[i]) + "\n";
    }
    return all;
  }

  static Beginnings TextsOf(const Node& node, const std::vector<Beginnings>& known) {
    Beginnings all;
    switch (node.kind) {
      case Node::kText:
        all.whole = {node.text};
        return all;
      case Node::kSet:
        for (const char c : node.text) all.whole.insert(std::string(1, c));
        return all;
      case Node::kRule:
        return known[node.rule];
      case Node::kSequence:
        all.whole = {""};
        for (const Node& part : node.parts) all = Sequence(all, TextsOf(part, known));
        return all;
      case Node::kUnion:
        for (const Node& part : node.parts) all = Joined(all, TextsOf(part, known));
        return all;
      case Node::kRepeat:
        break;
    }
    const Beginnings once = TextsOf(node.parts[0], known);
    Beginnings some;
    some.whole = {""};
    for (int i = 0; i < node.min; ++i) some = Sequence(some, once);
    all = some;
    const int more = node.max < 0 ? 2 * static_cast<int>(kLength) : node.max - node.min;
    for (int i = 0; i < more; ++i) {
      some = Sequence(some, once);
      all = Joined(all, some);
    }
    return all;
  }

  Beginnings Texts() const {
    std::vector<Beginnings> known(rules.size());
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t i = 0; i < rules.size(); ++i) {
        Beginnings now = Joined(known[i], TextsOf(rules[i], known));
        changed |= !(now == known[i]);
        known[i] = std::move(now);
      }
    }
    return known[0];
  }

  std::mt19937 random;
  std::vector<Node> rules;
};

TEST(GrammarProperty, AMaskAllowsExactlyTheTokensThatContinueToATextOfTheGrammar) {
  int num_grammars = 0, num_masks = 0;
  for (uint32_t seed = 0; seed < (kHasSanitizer ? 60 : 300); ++seed) {
    RandomGrammar random(seed);
    SCOPED_TRACE(random.Print());
    const Beginnings texts = random.Texts();
    std::vector<std::string> tokens = {"a", "b", "c"};
    for (int i = 0; i < 25; ++i) {
      std::string token;
      for (int n = 2 + random.Draw(3); n > 0; --n) token += static_cast<char>('a' + random.Draw(3));
      tokens.push_back(token);
    }
    tokens.emplace_back();
    const auto end_id = static_cast<int32_t>(tokens.size() - 1);
    const auto vocabulary = Vocabulary::Make(tokens, {end_id}).value();
    const auto grammar = Grammar::FromEbnf(random.Print(), vocabulary);
    if (texts.whole.empty() && texts.cut.empty()) {
      EXPECT_FALSE(grammar.ok());
      continue;
    }
    ASSERT_TRUE(grammar.ok()) << grammar.status().message();
    ++num_grammars;
    std::set<std::string> beginnings;
    for (const auto* part : {&texts.whole, &texts.cut}) {
      for (const std::string& text : *part) {
        for (size_t size = 0; size <= text.size(); ++size) beginnings.insert(text.substr(0, size));
      }
    }
    Matcher matcher(*grammar);
    std::vector<uint32_t> mask(vocabulary->num_mask_words()), walked = mask;
    int num_texts = 0;
    for (const std::string& text : beginnings) {
      if (text.size() > 3 || ++num_texts > 25) continue;
      Matcher own = matcher;
      size_t num_accepted = 0;
      for (const char c : text) num_accepted += own.Accept({&c, 1});
      ASSERT_EQ(num_accepted, text.size()) << text;
      EXPECT_EQ(own.CanEnd(), texts.whole.count(text) == 1) << text;
      own.ComputeMask(mask);
      own.ComputeMaskByWalk(walked);
      EXPECT_EQ(mask, walked) << text;
      ++num_masks;
      for (int32_t id = 0; id < end_id; ++id) {
        const std::string next = text + tokens[id];
        if (next.size() > kLength) continue;
        const bool expected = beginnings.count(next) == 1;
        EXPECT_EQ(MaskHas(mask, id), expected) << "'" << text << "' + '" << tokens[id] << "'";
        EXPECT_EQ(own.AcceptToken(id), expected);
        if (expected) own.Rollback(1);
      }
      // Taking steps back leads to the same masks.
      own.Rollback(text.size());
      for (const char c : text) ASSERT_TRUE(own.Accept({&c, 1}));
      own.ComputeMask(walked);
      EXPECT_EQ(mask, walked);
      const std::string forced = own.ForcedBytes(1);
      int num_next = 0;
      for (const char* c : {"a", "b", "c"}) num_next += beginnings.count(text + c) == 1;
      EXPECT_EQ(!forced.empty(), num_next == 1 && !own.CanEnd()) << text;
    }
  }
  EXPECT_GT(num_grammars, kHasSanitizer ? 30 : 150);
  EXPECT_GT(num_masks, kHasSanitizer ? 200 : 1000);
}

}  // namespace
}  // namespace nereid::llm::grammar
