// Grammars that generated texts must fit. A grammar is compiled once, from a JSON schema, a regular
// expression, a list of choices or rules in EBNF, for one vocabulary, and serves any number of
// matchers. Whatever cannot be enforced exactly is refused by name. [any thread]
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "backends/llm_core/grammar/lexer.h"
#include "backends/llm_core/grammar/syntax_graph.h"
#include "backends/llm_core/grammar/vocabulary.h"
#include "nereid/status.h"

namespace nereid::llm::grammar {

struct GrammarOptions {
  // The longest run of white space between two tokens of JSON, in bytes: -1 without limit, 0 none.
  int max_json_whitespace = 128;
  size_t max_text_bytes = size_t{8} << 20;  // of the schema, expression or rules
  size_t max_memory_bytes = size_t{256} << 20;
  // Work of compiling. One step takes about a tenth of a microsecond.
  uint64_t max_compile_steps = 20'000'000;
  // Whether a schema that nothing fits is a grammar without texts, instead of an error.
  bool allows_no_text = false;
};

class Grammar {
 public:
  // Errors: INVALID_ARG for what is malformed, too large or fits no text, UNSUPPORTED for what
  // cannot be enforced. Those of a schema name the path in the schema and the keyword.
  static Result<std::shared_ptr<const Grammar>> FromJsonSchema(
      std::string_view schema, std::shared_ptr<const Vocabulary> vocabulary,
      const GrammarOptions& options = {});
  static Result<std::shared_ptr<const Grammar>> FromRegex(
      std::string_view regex, std::shared_ptr<const Vocabulary> vocabulary,
      const GrammarOptions& options = {});
  static Result<std::shared_ptr<const Grammar>> FromChoices(
      std::vector<std::string> choices, std::shared_ptr<const Vocabulary> vocabulary,
      const GrammarOptions& options = {});
  static Result<std::shared_ptr<const Grammar>> FromEbnf(
      std::string_view rules, std::shared_ptr<const Vocabulary> vocabulary,
      const GrammarOptions& options = {});
  // `graph` is finished.
  static std::shared_ptr<const Grammar> FromGraph(std::unique_ptr<SyntaxGraph> graph,
                                                  std::shared_ptr<const Vocabulary> vocabulary,
                                                  const GrammarOptions& options = {});

  // The lexer for a new matcher. A lexer that has grown is replaced, and lives on in its matchers.
  std::shared_ptr<Lexer> AcquireLexer() const;

  const SyntaxGraph& graph() const { return *graph_; }
  const Vocabulary& vocabulary() const { return *vocabulary_; }
  // The memory of the grammar and its current lexer.
  size_t size_bytes() const;

 private:
  Grammar() = default;
  std::shared_ptr<Lexer> NewLexer() const;

  std::unique_ptr<const SyntaxGraph> graph_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  size_t max_memory_bytes_ = 0;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<Lexer> lexer_;  // guarded by mutex_
};

}  // namespace nereid::llm::grammar
