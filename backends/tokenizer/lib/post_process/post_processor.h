// The post_processor component of tokenizer.json: which special tokens surround a single text or a
// pair, and the type id of each token. Compiled at load into templates. Immutable once the
// tokenizer is loaded. [any thread]
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "nereid/status.h"

namespace nereid::tokenizer {

// One element of a template: a special token, or all tokens of one text.
struct TemplateItem {
  int8_t text = -1;   // 0 or 1, the index of the text; -1: a special token
  int8_t owner = -1;  // the text to which the reference attaches a special token; -1: none
  bool is_special = true;
  int32_t id = -1;  // of a special token
  int32_t type_id = 0;
  int32_t overflow_type_id = 0;  // type id where the owner's window overflows
};

// A post-processor that excludes spaces from a text's offsets.
struct OffsetTrim {
  bool add_prefix_space;
  size_t num_before;  // special tokens before the text's tokens that the reference counts with them
};

struct EncodingTemplate {
  std::vector<TemplateItem> items;
  std::vector<OffsetTrim> trims[2];  // for each text
};

class PostProcessor {
 public:
  // Adds no tokens.
  PostProcessor();
  // `spec` is the "post_processor" member; null adds no tokens. UNSUPPORTED names the component. If
  // only pairs cannot be processed, GetTemplate returns the error.
  static Result<PostProcessor> Make(const nlohmann::json& spec);

  // Adds `id` before or after each text, unless a single text already has it there.
  void AddSpecialToken(int32_t id, bool before_text);
  // Removes every `id` on this side of the texts if a single text has it there.
  void RemoveSpecialToken(int32_t id, bool before_text);
  // Gives all tokens of a pair the type id 0.
  void UseSingleTypeId();

  // The special tokens before and after a single text.
  const std::vector<int32_t>& prefix_ids() const { return prefix_ids_; }
  const std::vector<int32_t>& suffix_ids() const { return suffix_ids_; }

  // Returns the template of a single text or a pair, with or without special tokens. UNSUPPORTED if
  // the component does not use each text of a pair exactly once.
  Result<const EncodingTemplate*> GetTemplate(bool is_pair, bool with_special_tokens) const;
  // Number of special tokens that count towards the truncation length.
  size_t NumAdded(bool is_pair) const { return num_added_[is_pair]; }
  bool trims_offsets() const;

 private:
  void UpdateAffixes();

  EncodingTemplate templates_[2][2];  // [is_pair][with_special_tokens]
  size_t num_added_[2] = {};
  Status pair_status_;
  std::vector<int32_t> prefix_ids_, suffix_ids_;
};

}  // namespace nereid::tokenizer
