/// \file
/// Turns a conversation into a prompt, as the chat template of a checkpoint says: transformers'
/// apply_chat_template, without a model. The files come with the checkpoint and are not trusted.
#pragma once

#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "backends/tokenizer/lib/chat/jinja/template.h"
#include "backends/tokenizer/lib/text/marked_text.h"
#include "nereid/status.h"

namespace nereid::tokenizer {

/// What a client sends: messages in OpenAI's form.
struct Conversation {
  nlohmann::ordered_json messages;    ///< a list of objects with `role` and `content`
  nlohmann::ordered_json tools;       ///< a list of function definitions; null if there are none
  nlohmann::ordered_json variables;   ///< an object of further template variables; null if none
  bool add_generation_prompt = true;  ///< end with what begins the model's turn
  // The variables may have the members add_generation_prompt and continue_final_message, which are
  // booleans. With the latter the prompt ends with the content of the last message, so that the
  // model continues it. They exclude each other.
};

/// The chat template of one checkpoint. Immutable. [any thread]
class ChatTemplate {
 public:
  /// Loads the template in `directory`: chat_template.jinja, else chat_template.json, else the
  /// member `chat_template` of tokenizer_config.json, whose special tokens become variables. Null
  /// if there is none. INVALID_ARG names the file and the fault.
  static Result<std::shared_ptr<const ChatTemplate>> Load(const std::string& directory);
  /// The same from texts. `config` is the text of tokenizer_config.json, or empty. `source` is used
  /// in place of its template unless it is empty.
  static Result<std::shared_ptr<const ChatTemplate>> FromTexts(std::string_view config,
                                                               std::string_view source);

  /// Renders the prompt. Bytes that come from the conversation are marked as a client's, except for
  /// roles that templates know. `now` is the local time, for templates that write the date.
  ///
  /// Before rendering, a content that is a list of text parts becomes one text, joined by line
  /// breaks, and the `arguments` of a tool call that are JSON in a text become an object, which is
  /// what most templates expect; a template that fails with objects is rendered with texts.
  /// INVALID_ARG names the message and what is wrong with it, or the line of the template and what
  /// it raised.
  Result<MarkedText> Render(Conversation conversation, const std::tm& now) const;

  /// INVALID_ARG if the conversation has tools or documents, and the template that would render it
  /// does not know these: the model would never see them.
  Status CheckKnown(const Conversation& conversation) const;

  /// The text of the template, or of both.
  const std::string& source() const { return source_; }

 private:
  using SharedTemplate = std::shared_ptr<const jinja::Template>;
  ChatTemplate() = default;
  const jinja::Template& TemplateFor(const Conversation& conversation) const;
  Result<MarkedText> RenderPrepared(const Conversation& conversation, const std::tm& now) const;
  Status ReadConfig(const nlohmann::ordered_json& config, bool has_source);
  Status ReadNamedTemplates(const nlohmann::ordered_json& list);

  std::string source_;
  SharedTemplate default_;
  SharedTemplate tool_use_;  // used where tools are given; null: default_
  jinja::Dict special_tokens_;
};

}  // namespace nereid::tokenizer
