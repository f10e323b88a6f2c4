// See post_processor.h. The reference passes a list of encodings from step to step and joins them
// at the end. This file does the same at load with placeholders for the texts' tokens, because the
// result depends only on the steps.
#include "backends/tokenizer/lib/post_process/post_processor.h"

#include <algorithm>

#include "backends/tokenizer/lib/parse/json_fields.h"
#include "backends/tokenizer/lib/vocabulary/token_table.h"

namespace nereid::tokenizer {
namespace {

// Corresponds to one encoding in the reference's list.
struct Group {
  int8_t text;  // whose tokens it contains; -1: none
  std::vector<TemplateItem> items;
};

// Applies the steps to the encodings of a single text or a pair.
class TemplateBuilder {
 public:
  TemplateBuilder(bool is_pair, bool with_special_tokens)
      : is_pair_(is_pair), with_special_tokens_(with_special_tokens) {
    const int8_t num_texts = is_pair ? 2 : 1;
    for (int8_t text = 0; text < num_texts; ++text) {
      groups_.push_back({text, {{text, text, false, -1, text, text}}});
    }
  }

  Status Apply(const Json& spec) {
    if (spec.is_null()) return {};
    const std::string type = TypeOf(spec);
    if (type == "ByteLevel") return Trim(spec, type);
    if (type == "Sequence") {
      NEREID_ASSIGN_OR_RETURN(const Json* list,
                              ArrayField(spec, "processors", "post_processor Sequence"));
      for (const Json& step : *list) NEREID_RETURN_IF_ERROR(Apply(step));
      return {};
    }
    if (type == "TemplateProcessing") return ApplyTemplate(spec);
    if (type == "RobertaProcessing") {
      NEREID_RETURN_IF_ERROR(Trim(spec, type));
      for (Group& group : groups_) SetType(group, 0);
    }
    if (type == "RobertaProcessing" || type == "BertProcessing") return ApplyClsSep(spec, type);
    return UnsupportedError("post_processor '", type, "' is not supported");
  }

  EncodingTemplate Finish() {
    for (const Group& group : groups_) {
      template_.items.insert(template_.items.end(), group.items.begin(), group.items.end());
    }
    return std::move(template_);
  }
  // Number of special tokens that the steps define.
  size_t num_added() const { return num_added_; }

 private:
  Status Trim(const Json& spec, const std::string& type) {
    const std::string where = "post_processor " + type;
    NEREID_ASSIGN_OR_RETURN(const bool trims, BoolField(spec, "trim_offsets", true, where));
    NEREID_ASSIGN_OR_RETURN(const bool prefix, BoolField(spec, "add_prefix_space", true, where));
    if (!trims) return {};
    for (const Group& group : groups_) {
      if (group.text < 0) continue;
      const auto is_text = [](const TemplateItem& item) { return item.text >= 0; };
      const auto at = std::find_if(group.items.begin(), group.items.end(), is_text);
      template_.trims[group.text].push_back(
          {prefix, static_cast<size_t>(at - group.items.begin())});
    }
    return {};
  }

  // As in the reference, overflowing windows keep their type ids.
  static void SetType(Group& group, int32_t type_id) {
    for (TemplateItem& item : group.items) item.type_id = type_id;
  }

  Status ApplyTemplate(const Json& spec) {
    constexpr std::string_view kWhere = "post_processor TemplateProcessing";
    if (groups_.size() > 2) {
      return UnsupportedError(kWhere, " after another template is not supported");
    }
    const char* const key = groups_.size() == 2 ? "pair" : "single";
    NEREID_ASSIGN_OR_RETURN(const Json* elements, ArrayField(spec, key, kWhere));
    std::vector<Group> result;
    int num_texts[2] = {};
    for (const Json& element : *elements) {
      if (const Json& text = Member(element, "Sequence"); !text.is_null()) {
        const Json& name = Member(text, "id");
        const size_t index = name == "B" ? 1 : 0;
        if ((name != "A" && name != "B") || index >= groups_.size()) {
          return InvalidArgError(kWhere, ".", key, ": a text that is not ",
                                 groups_.size() == 2 ? "A or B" : "A");
        }
        ++num_texts[index];
        NEREID_ASSIGN_OR_RETURN(const int32_t type_id, TypeId(text, kWhere));
        result.push_back(groups_[index]);
        SetType(result.back(), type_id);
        continue;
      }
      NEREID_ASSIGN_OR_RETURN(Group tokens, SpecialToken(spec, Member(element, "SpecialToken")));
      num_added_ += tokens.items.size();
      if (with_special_tokens_) result.push_back(std::move(tokens));
    }
    for (size_t i = 0; i < groups_.size(); ++i) {
      if (num_texts[i] == 1) continue;
      return UnsupportedError(kWhere, ".", key, ": expected ",
                              groups_.size() == 2 ? "each text" : "the text", " once, got ",
                              i == 0 ? "A " : "B ", num_texts[i], " times");
    }
    groups_ = std::move(result);
    return {};
  }

  static Result<Group> SpecialToken(const Json& spec, const Json& element) {
    constexpr std::string_view kWhere = "post_processor TemplateProcessing";
    NEREID_ASSIGN_OR_RETURN(const std::string name, StringField(element, "id", kWhere));
    NEREID_ASSIGN_OR_RETURN(const int32_t type_id, TypeId(element, kWhere));
    const Json& token = Member(Member(spec, "special_tokens"), name.c_str());
    NEREID_ASSIGN_OR_RETURN(const Json* ids, ArrayField(token, "ids", kWhere));
    Group group = {-1, {}};
    for (const Json& id : *ids) {
      NEREID_ASSIGN_OR_RETURN(const int32_t checked, CheckedId(id, kWhere));
      group.items.push_back({-1, -1, true, checked, type_id, type_id});
    }
    return group;
  }

  // Bert: CLS A SEP B SEP. Roberta: CLS A SEP SEP B SEP, with type id 0 for all tokens.
  Status ApplyClsSep(const Json& spec, const std::string& type) {
    const std::string where = "post_processor " + type;
    int32_t ids[2];
    for (int i = 0; i < 2; ++i) {
      const char* const key = i == 0 ? "cls" : "sep";
      NEREID_ASSIGN_OR_RETURN(const Json* pair, ArrayField(spec, key, where));
      if (pair->size() != 2) return WrongField(where, key, "[token, id]", *pair);
      NEREID_ASSIGN_OR_RETURN(ids[i], CheckedId((*pair)[1], where));
    }
    const bool is_roberta = type == "RobertaProcessing";
    num_added_ += !is_pair_ ? 2 : is_roberta ? 4 : 3;
    if (!with_special_tokens_) return {};
    for (size_t i = 0; i < groups_.size(); ++i) {
      Group& group = groups_[i];
      for (TemplateItem& item : group.items) {
        item.is_special = false;
        if (is_roberta) item.overflow_type_id = 0;
      }
      const int32_t type_id = i > 0 && !is_roberta ? 1 : 0;
      const auto token = [&](int32_t id) {
        return TemplateItem{-1, group.text, true, id, type_id, type_id};
      };
      group.items.push_back(token(ids[1]));
      if (i == 0) group.items.insert(group.items.begin(), token(ids[0]));
      if (i > 0 && is_roberta) group.items.insert(group.items.begin(), token(ids[1]));
    }
    return {};
  }

  static Result<int32_t> CheckedId(const Json& id, std::string_view where) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= kMaxTokenId) {
      return InvalidArgError(where, ": expected an id below ", kMaxTokenId, ", got ", ShowJson(id));
    }
    return id.get<int32_t>();
  }

  static Result<int32_t> TypeId(const Json& element, std::string_view where) {
    if (Member(element, "type_id").is_null()) return 0;
    NEREID_ASSIGN_OR_RETURN(const uint64_t type_id, CountField(element, "type_id", where));
    if (type_id > INT32_MAX) {
      return InvalidArgError(where, ".type_id: expected at most ", INT32_MAX, ", got ", type_id);
    }
    return static_cast<int32_t>(type_id);
  }

  const bool is_pair_, with_special_tokens_;
  std::vector<Group> groups_;
  EncodingTemplate template_;
  size_t num_added_ = 0;
};

std::vector<TemplateItem>::iterator FindText(std::vector<TemplateItem>& items, int8_t text) {
  const auto is_it = [&](const TemplateItem& item) { return item.text == text; };
  return std::find_if(items.begin(), items.end(), is_it);
}

}  // namespace

PostProcessor::PostProcessor() {
  for (const bool is_pair : {false, true}) {
    for (const bool with_special_tokens : {false, true}) {
      templates_[is_pair][with_special_tokens] =
          TemplateBuilder(is_pair, with_special_tokens).Finish();
    }
  }
}

Result<PostProcessor> PostProcessor::Make(const Json& spec) {
  PostProcessor result;
  for (const bool is_pair : {false, true}) {
    for (const bool with_special_tokens : {false, true}) {
      TemplateBuilder builder(is_pair, with_special_tokens);
      const Status status = builder.Apply(spec);
      if (!status.ok() && !is_pair) return status;
      if (!status.ok()) result.pair_status_ = status;
      result.num_added_[is_pair] = builder.num_added();
      result.templates_[is_pair][with_special_tokens] = builder.Finish();
    }
  }
  result.UpdateAffixes();
  return result;
}

void PostProcessor::AddSpecialToken(int32_t id, bool before_text) {
  const std::vector<int32_t>& present = before_text ? prefix_ids_ : suffix_ids_;
  if (std::find(present.begin(), present.end(), id) != present.end()) return;
  const auto token = [&](int32_t type_id) {
    return TemplateItem{-1, -1, true, id, type_id, type_id};
  };
  for (const bool is_pair : {false, true}) {
    std::vector<TemplateItem>& items = templates_[is_pair][true].items;
    if (before_text && is_pair) {  // before the special tokens that precede the second text
      auto position = FindText(items, 1);
      for (size_t i = prefix_ids_.size();
           i > 0 && position != items.begin() && (position - 1)->id == prefix_ids_[i - 1]; --i) {
        --position;
      }
      items.insert(position, token(1));
    } else if (is_pair) {  // after the special tokens that follow the first text
      auto position = FindText(items, 0) + 1;
      for (const int32_t suffix_id : suffix_ids_) {
        if (position == items.end() || position->text >= 0 || position->id != suffix_id) break;
        ++position;
      }
      items.insert(position, token(0));
    }
    items.insert(before_text ? items.begin() : items.end(), token(is_pair && !before_text ? 1 : 0));
    num_added_[is_pair] += is_pair ? 2 : 1;
  }
  UpdateAffixes();
}

void PostProcessor::RemoveSpecialToken(int32_t id, bool before_text) {
  const std::vector<int32_t>& present = before_text ? prefix_ids_ : suffix_ids_;
  if (std::find(present.begin(), present.end(), id) == present.end()) return;
  for (const bool is_pair : {false, true}) {
    std::vector<TemplateItem>& items = templates_[is_pair][true].items;
    size_t texts_before = 0;
    const auto is_it = [&](const TemplateItem& item) {
      texts_before += item.text >= 0;
      const bool is_on_side = before_text ? texts_before < (is_pair ? 2 : 1) : texts_before > 0;
      return item.text < 0 && item.id == id && is_on_side;
    };
    num_added_[is_pair] -= std::min(num_added_[is_pair], std::erase_if(items, is_it));
  }
  UpdateAffixes();
}

void PostProcessor::UseSingleTypeId() {
  for (EncodingTemplate& encoding_template : templates_[true]) {
    for (TemplateItem& item : encoding_template.items) item.type_id = item.overflow_type_id = 0;
  }
}

Result<const EncodingTemplate*> PostProcessor::GetTemplate(bool is_pair,
                                                           bool with_special_tokens) const {
  if (is_pair) NEREID_RETURN_IF_ERROR(pair_status_);
  return &templates_[is_pair][with_special_tokens];
}

bool PostProcessor::trims_offsets() const {
  return !templates_[false][true].trims[0].empty();
}

void PostProcessor::UpdateAffixes() {
  prefix_ids_.clear();
  suffix_ids_.clear();
  bool is_behind = false;
  for (const TemplateItem& item : templates_[false][true].items) {
    is_behind |= item.text >= 0;
    if (item.text < 0) (is_behind ? suffix_ids_ : prefix_ids_).push_back(item.id);
  }
}

}  // namespace nereid::tokenizer
