/// \file
/// Chat templates: the part of the Jinja language that published templates use, with the settings
/// of transformers (trim_blocks, lstrip_blocks, loop controls, generation blocks, its `tojson`,
/// `raise_exception` and `strftime_now`, and the sandbox's immutability). Templates come with
/// checkpoints and are not trusted: parsing and rendering are bounded in depth, time and memory,
/// and templates reach nothing but their variables.
#pragma once

#include <cstddef>
#include <ctime>
#include <memory>
#include <string_view>

#include "backends/tokenizer/lib/chat/jinja/value.h"
#include "backends/tokenizer/lib/text/marked_text.h"
#include "nereid/status.h"

namespace nereid::tokenizer::jinja {

/// What one rendering may use.
struct RenderLimits {
  size_t max_output_bytes = size_t{64} << 20;  ///< also of every text on the way
  size_t max_bytes = size_t{512} << 20;        ///< all bytes copied or allocated, added up
  size_t max_steps = 20'000'000;               ///< statements and expressions that are run
  int max_depth = 1200;                        ///< nested statements, expressions and macro calls
};

/// A parsed template. Immutable. [any thread]
class Template {
 public:
  /// INVALID_ARG names the line and what was expected there. `source` is UTF-8 and not used after
  /// the call.
  static Result<std::shared_ptr<const Template>> Parse(std::string_view source);
  ~Template();

  /// Whether the template's code has the word `name`: a variable, or an attribute of that name.
  bool Mentions(std::string_view name) const;

  /// Renders the template with the variables of `context`. Bytes of the result are marked as a
  /// client's where they derive from texts of `context` that are (FromJson).
  ///
  /// `now` is the time that `strftime_now` formats. Errors are INVALID_ARG with the line: what the
  /// template raises by `raise_exception` (its text follows), an operation on a value that does not
  /// exist or has the wrong type, or a limit.
  Result<MarkedText> Render(const Dict& context, const std::tm& now,
                            const RenderLimits& limits = {}) const;

 private:
  struct Tree;
  explicit Template(std::unique_ptr<const Tree> tree);
  std::unique_ptr<const Tree> tree_;
};

}  // namespace nereid::tokenizer::jinja
