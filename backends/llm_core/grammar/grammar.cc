// See grammar.h.
#include "backends/llm_core/grammar/grammar.h"

#include <utility>

#include "backends/llm_core/grammar/code_points.h"
#include "backends/llm_core/grammar/ebnf.h"
#include "backends/llm_core/grammar/json_schema.h"
#include "backends/llm_core/grammar/regex_syntax.h"

namespace nereid::llm::grammar {
namespace {

Status CheckSize(std::string_view what, size_t size, const GrammarOptions& options) {
  if (size <= options.max_text_bytes) return Status::Ok();
  return InvalidArgError(what, " has ", size, " bytes; at most ", options.max_text_bytes,
                         " are allowed");
}

std::unique_ptr<SyntaxGraph> NewGraph(const GrammarOptions& options) {
  return std::make_unique<SyntaxGraph>(
      RegexLimits{.max_bytes = options.max_memory_bytes, .max_steps = options.max_compile_steps});
}

// A graph that reads one terminal.
Result<std::shared_ptr<const Grammar>> FromTerminal(std::unique_ptr<SyntaxGraph> graph,
                                                    RegexId regex,
                                                    std::shared_ptr<const Vocabulary> vocabulary,
                                                    const GrammarOptions& options) {
  const RuleId root = graph->AddRule();
  const StateId end = graph->AddState(root);
  graph->Read(graph->rule(root).start, graph->AddTerminal(regex), end);
  graph->Accept(end);
  NEREID_RETURN_IF_ERROR(graph->Finish());
  return Grammar::FromGraph(std::move(graph), std::move(vocabulary), options);
}

}  // namespace

Result<std::shared_ptr<const Grammar>> Grammar::FromJsonSchema(
    std::string_view schema, std::shared_ptr<const Vocabulary> vocabulary,
    const GrammarOptions& options) {
  NEREID_RETURN_IF_ERROR(CheckSize("the schema", schema.size(), options));
  std::unique_ptr<SyntaxGraph> graph = NewGraph(options);
  NEREID_RETURN_IF_ERROR(AddJsonSchema(schema, options.max_json_whitespace, *graph).status());
  NEREID_RETURN_IF_ERROR(graph->Finish(options.allows_no_text));
  return FromGraph(std::move(graph), std::move(vocabulary), options);
}

Result<std::shared_ptr<const Grammar>> Grammar::FromRegex(
    std::string_view regex, std::shared_ptr<const Vocabulary> vocabulary,
    const GrammarOptions& options) {
  NEREID_RETURN_IF_ERROR(CheckSize("the regular expression", regex.size(), options));
  std::unique_ptr<SyntaxGraph> graph = NewGraph(options);
  NEREID_ASSIGN_OR_RETURN(const RegexId id,
                          ParseRegex(graph->pool(), regex, RegexMatch::kWhole, Spelling::kUtf8));
  return FromTerminal(std::move(graph), id, std::move(vocabulary), options);
}

Result<std::shared_ptr<const Grammar>> Grammar::FromChoices(
    std::vector<std::string> choices, std::shared_ptr<const Vocabulary> vocabulary,
    const GrammarOptions& options) {
  size_t num_bytes = 0;
  for (const std::string& choice : choices) num_bytes += choice.size();
  NEREID_RETURN_IF_ERROR(CheckSize("the list of choices", num_bytes, options));
  if (choices.empty()) return InvalidArgError("the list of choices is empty");
  std::unique_ptr<SyntaxGraph> graph = NewGraph(options);
  const RegexId id = graph->pool().Literals(choices);
  return FromTerminal(std::move(graph), id, std::move(vocabulary), options);
}

Result<std::shared_ptr<const Grammar>> Grammar::FromEbnf(
    std::string_view rules, std::shared_ptr<const Vocabulary> vocabulary,
    const GrammarOptions& options) {
  NEREID_RETURN_IF_ERROR(CheckSize("the grammar", rules.size(), options));
  std::unique_ptr<SyntaxGraph> graph = NewGraph(options);
  NEREID_RETURN_IF_ERROR(AddEbnf(rules, *graph));
  NEREID_RETURN_IF_ERROR(graph->Finish());
  return FromGraph(std::move(graph), std::move(vocabulary), options);
}

std::shared_ptr<const Grammar> Grammar::FromGraph(std::unique_ptr<SyntaxGraph> graph,
                                                  std::shared_ptr<const Vocabulary> vocabulary,
                                                  const GrammarOptions& options) {
  std::shared_ptr<Grammar> grammar(new Grammar);
  grammar->graph_ = std::move(graph);
  grammar->vocabulary_ = std::move(vocabulary);
  grammar->max_memory_bytes_ = options.max_memory_bytes;
  grammar->lexer_ = grammar->NewLexer();
  return grammar;
}

std::shared_ptr<Lexer> Grammar::NewLexer() const {
  return std::make_shared<Lexer>(
      *graph_, vocabulary_,
      LexerLimits{.max_bytes = max_memory_bytes_, .max_token_set_bytes = max_memory_bytes_ / 4});
}

std::shared_ptr<Lexer> Grammar::AcquireLexer() const {
  std::lock_guard lock(mutex_);
  if (lexer_->exhausted() || lexer_->size_bytes() > graph_->size_bytes() + max_memory_bytes_ / 2) {
    lexer_ = NewLexer();
  }
  return lexer_;
}

size_t Grammar::size_bytes() const {
  std::lock_guard lock(mutex_);
  return graph_->size_bytes() + lexer_->size_bytes();
}

}  // namespace nereid::llm::grammar
