/// \file
/// The families of models whose answers can be parsed. A family is one file in families/, and one
/// line in parser_family.cc.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "backends/tokenizer/lib/chat/parsers/call_form.h"
#include "backends/tokenizer/lib/chat/parsers/chat_parser.h"

namespace nereid::tokenizer {

/// How a model writes its reasoning: the text with which an answer begins that reasons, and the one
/// that ends the reasoning.
struct ReasoningText {
  std::string_view begin = "<think>", end = "</think>";
};

/// Immutable. [any thread]
struct ParserFamily {
  /// The value of the parameter `chat_parser`.
  std::string_view name;
  /// What it parses, for documents and messages.
  std::string_view summary;
  /// The markers of the family. A parser must see those that are special tokens.
  std::span<const std::string_view> markers;
  /// Whether a chat template is of this family, by markers that no other family has. `source` is
  /// the template's text.
  bool (*recognizes)(std::string_view source);
  std::unique_ptr<ChatParser> (*make)(const ParserOptions& options);
  /// The form in which a model with this chat template calls. Null: calls of the family cannot be
  /// forced.
  CallForm (*call_form)(std::string_view source) = nullptr;
  ReasoningText reasoning = {};
};

/// Whether the prompt has begun the reasoning. `prompt_end` is the end of its text.
bool HasBegunReasoning(const ParserFamily& family, std::string_view prompt_end);
/// All families, in the order in which they are asked whether they recognise a template.
std::span<const ParserFamily* const> ParserFamilies();
/// The family of this name; null if there is none.
const ParserFamily* FindParserFamily(std::string_view name);
/// The family of a chat template; null if none recognises it.
const ParserFamily* ParserFamilyOfTemplate(std::string_view source);

}  // namespace nereid::tokenizer
