// See template.h.
#include "backends/tokenizer/lib/chat/jinja/template.h"

#include <set>
#include <string>
#include <utility>

#include "backends/tokenizer/lib/chat/jinja/ast.h"
#include "backends/tokenizer/lib/chat/jinja/interpreter.h"
#include "backends/tokenizer/lib/chat/jinja/lexer.h"
#include "backends/tokenizer/lib/chat/jinja/parser.h"

namespace nereid::tokenizer::jinja {

struct Template::Tree {
  Block block;
  std::set<std::string, std::less<>> names;
};

Template::Template(std::unique_ptr<const Tree> tree) : tree_(std::move(tree)) {}
Template::~Template() = default;

Result<std::shared_ptr<const Template>> Template::Parse(std::string_view source) {
  Result<Block> block = jinja::Parse(source);
  if (!block.ok()) return std::move(block).status().WithContext("chat template");
  auto tree = std::make_unique<Tree>(Tree{.block = std::move(block).value(), .names = {}});
  NEREID_ASSIGN_OR_RETURN(const std::vector<Token> tokens, Tokenize(source));
  for (const Token& token : tokens) {
    if (token.kind == TokenKind::kName) tree->names.insert(token.text);
  }
  return std::shared_ptr<const Template>(new Template(std::move(tree)));
}

bool Template::Mentions(std::string_view name) const {
  return tree_->names.contains(name);
}

Result<MarkedText> Template::Render(const Dict& context, const std::tm& now,
                                    const RenderLimits& limits) const {
  Interpreter interpreter(context, limits, now);
  Result<MarkedText> text = interpreter.Run(tree_->block);
  if (!text.ok()) return std::move(text).status().WithContext("chat template");
  return text;
}

}  // namespace nereid::tokenizer::jinja
