// The post_processor component of tokenizer.json: which special tokens stand around a text, or
// around two texts that belong together, and what type each token has. Worked out at load, so that
// a call only fills in. Immutable once the tokenizer is loaded. [any thread]
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "nereid/status.h"

namespace nereid::tokenizer {

// One place of what a call gives: a special token, or all tokens of a text.
struct PostItem {
  int8_t text = -1;   // 0 or 1, the second of two; -1: a special token
  int8_t owner = -1;  // the text with which the reference wraps a special token; -1: none
  bool is_special = true;
  int32_t id = -1;  // of a special token
  int32_t type_id = 0;
  int32_t overflow_type_id = 0;  // where the owner stands with what truncation cut off
};

// A post-processor that leaves spaces out of a text's offsets.
struct OffsetTrim {
  bool add_prefix_space;
  size_t num_before;  // special tokens that the reference counts with the text's tokens
};

struct PostLayout {
  std::vector<PostItem> items;
  std::vector<OffsetTrim> trims[2];  // of each text
};

class PostProcessor {
 public:
  // Adds nothing.
  PostProcessor();
  // From the "post_processor" member; null adds nothing. UNSUPPORTED names the component; what it
  // cannot do with two texts is said by the first call that has two.
  static Result<PostProcessor> Make(const nlohmann::json& spec);

  // Puts `id` before each text, or behind it, unless a single text has it there already.
  void Surround(int32_t id, bool in_front);
  // Takes every `id` away if a single text has it there.
  void Remove(int32_t id, bool in_front);
  // All tokens of two texts are of type 0.
  void GiveOneType();

  // The special tokens around a single text.
  const std::vector<int32_t>& prefix_ids() const { return prefix_ids_; }
  const std::vector<int32_t>& suffix_ids() const { return suffix_ids_; }

  // What one text or two become, with special tokens or without. UNSUPPORTED where the component
  // has no place for each of two texts.
  Result<const PostLayout*> Layout(bool is_pair, bool with_special_tokens) const;
  // How many of a truncated length are special tokens.
  size_t NumAdded(bool is_pair) const { return num_added_[is_pair]; }
  bool trims_offsets() const;

 private:
  void FindAround();

  PostLayout layouts_[2][2];  // [is_pair][with_special_tokens]
  size_t num_added_[2] = {};
  Status pair_fault_;
  std::vector<int32_t> prefix_ids_, suffix_ids_;
};

}  // namespace nereid::tokenizer
