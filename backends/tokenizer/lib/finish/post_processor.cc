// See post_processor.h. The reference passes a list of encodings from step to step and joins them
// at the end. Here the list holds places instead of tokens: it depends on the steps alone.
#include "backends/tokenizer/lib/finish/post_processor.h"

#include <algorithm>

#include "backends/tokenizer/lib/reading/json_fields.h"
#include "backends/tokenizer/lib/vocabulary/token_table.h"

namespace nereid::tokenizer {
namespace {

// One encoding of the reference.
struct Group {
  int8_t text;  // that it holds; -1: none
  std::vector<PostItem> items;
};

// The encodings of one text or two, on their way through the steps.
class Draft {
 public:
  Draft(bool is_pair, bool with_special_tokens)
      : is_pair_(is_pair), with_special_tokens_(with_special_tokens) {
    for (int8_t text = 0; text <= (is_pair ? 1 : 0); ++text) {
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
    if (type == "TemplateProcessing") return Fill(spec);
    if (type == "RobertaProcessing") {
      NEREID_RETURN_IF_ERROR(Trim(spec, type));
      for (Group& group : groups_) SetType(group, 0);
    }
    if (type == "RobertaProcessing" || type == "BertProcessing") return Wrap(spec, type);
    return UnsupportedError("post_processor '", type, "' is not supported");
  }

  PostLayout Finish() {
    for (const Group& group : groups_) {
      layout_.items.insert(layout_.items.end(), group.items.begin(), group.items.end());
    }
    return std::move(layout_);
  }
  // Special tokens that the steps speak of.
  size_t num_added() const { return num_added_; }

 private:
  Status Trim(const Json& spec, const std::string& type) {
    const std::string where = "post_processor " + type;
    NEREID_ASSIGN_OR_RETURN(const bool trims, BoolField(spec, "trim_offsets", true, where));
    NEREID_ASSIGN_OR_RETURN(const bool prefix, BoolField(spec, "add_prefix_space", true, where));
    if (!trims) return {};
    for (const Group& group : groups_) {
      if (group.text < 0) continue;
      const auto is_text = [](const PostItem& item) { return item.text >= 0; };
      const auto at = std::find_if(group.items.begin(), group.items.end(), is_text);
      layout_.trims[group.text].push_back({prefix, static_cast<size_t>(at - group.items.begin())});
    }
    return {};
  }

  // As the reference has it: what overflows keeps its types.
  static void SetType(Group& group, int32_t type_id) {
    for (PostItem& item : group.items) item.type_id = type_id;
  }

  Status Fill(const Json& spec) {
    constexpr std::string_view kWhere = "post_processor TemplateProcessing";
    if (groups_.size() > 2) {
      return UnsupportedError(kWhere, " behind another template is not supported");
    }
    const char* const key = groups_.size() == 2 ? "pair" : "single";
    NEREID_ASSIGN_OR_RETURN(const Json* pieces, ArrayField(spec, key, kWhere));
    std::vector<Group> made;
    int num_texts[2] = {};
    for (const Json& piece : *pieces) {
      if (const Json& text = Member(piece, "Sequence"); !text.is_null()) {
        const Json& name = Member(text, "id");
        const size_t index = name == "B" ? 1 : 0;
        if ((name != "A" && name != "B") || index >= groups_.size()) {
          return InvalidArgError(kWhere, ".", key, ": a text that is not ",
                                 groups_.size() == 2 ? "A or B" : "A");
        }
        ++num_texts[index];
        NEREID_ASSIGN_OR_RETURN(const int32_t type_id, TypeId(text, kWhere));
        made.push_back(groups_[index]);
        SetType(made.back(), type_id);
        continue;
      }
      NEREID_ASSIGN_OR_RETURN(Group tokens, SpecialToken(spec, Member(piece, "SpecialToken")));
      num_added_ += tokens.items.size();
      if (with_special_tokens_) made.push_back(std::move(tokens));
    }
    for (size_t i = 0; i < groups_.size(); ++i) {
      if (num_texts[i] == 1) continue;
      return UnsupportedError(kWhere, ".", key, ": expected ",
                              groups_.size() == 2 ? "each text" : "the text", " once, got ",
                              i == 0 ? "A " : "B ", num_texts[i], " times");
    }
    groups_ = std::move(made);
    return {};
  }

  static Result<Group> SpecialToken(const Json& spec, const Json& piece) {
    constexpr std::string_view kWhere = "post_processor TemplateProcessing";
    NEREID_ASSIGN_OR_RETURN(const std::string name, StringField(piece, "id", kWhere));
    NEREID_ASSIGN_OR_RETURN(const int32_t type_id, TypeId(piece, kWhere));
    const Json& token = Member(Member(spec, "special_tokens"), name.c_str());
    NEREID_ASSIGN_OR_RETURN(const Json* ids, ArrayField(token, "ids", kWhere));
    Group group = {-1, {}};
    for (const Json& id : *ids) {
      NEREID_ASSIGN_OR_RETURN(const int32_t checked, CheckedId(id, kWhere));
      group.items.push_back({-1, -1, true, checked, type_id, type_id});
    }
    return group;
  }

  // Bert: CLS A SEP B SEP; Roberta: CLS A SEP SEP B SEP, all of one type.
  Status Wrap(const Json& spec, const std::string& type) {
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
      for (PostItem& item : group.items) {
        item.is_special = false;
        if (is_roberta) item.overflow_type_id = 0;
      }
      const int32_t type_id = i > 0 && !is_roberta ? 1 : 0;
      const auto token = [&](int32_t id) {
        return PostItem{-1, group.text, true, id, type_id, type_id};
      };
      group.items.push_back(token(ids[1]));
      if (i == 0) group.items.insert(group.items.begin(), token(ids[0]));
      if (i > 0 && is_roberta) group.items.insert(group.items.begin(), token(ids[1]));
    }
    return {};
  }

  static Result<int32_t> CheckedId(const Json& id, std::string_view where) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= kMaxTokenId) {
      return InvalidArgError(where, ": expected an id below ", kMaxTokenId, ", got ", id.dump());
    }
    return id.get<int32_t>();
  }

  static Result<int32_t> TypeId(const Json& piece, std::string_view where) {
    if (Member(piece, "type_id").is_null()) return 0;
    NEREID_ASSIGN_OR_RETURN(const uint64_t type_id, CountField(piece, "type_id", where));
    if (type_id > INT32_MAX) {
      return InvalidArgError(where, ".type_id: expected at most ", INT32_MAX, ", got ", type_id);
    }
    return static_cast<int32_t>(type_id);
  }

  const bool is_pair_, with_special_tokens_;
  std::vector<Group> groups_;
  PostLayout layout_;
  size_t num_added_ = 0;
};

std::vector<PostItem>::iterator PlaceOf(std::vector<PostItem>& items, int8_t text) {
  const auto is_it = [&](const PostItem& item) { return item.text == text; };
  return std::find_if(items.begin(), items.end(), is_it);
}

}  // namespace

PostProcessor::PostProcessor() {
  for (const bool is_pair : {false, true}) {
    for (const bool with_special_tokens : {false, true}) {
      layouts_[is_pair][with_special_tokens] = Draft(is_pair, with_special_tokens).Finish();
    }
  }
}

Result<PostProcessor> PostProcessor::Make(const Json& spec) {
  PostProcessor made;
  for (const bool is_pair : {false, true}) {
    for (const bool with_special_tokens : {false, true}) {
      Draft draft(is_pair, with_special_tokens);
      const Status status = draft.Apply(spec);
      if (!status.ok() && !is_pair) return status;
      if (!status.ok()) made.pair_fault_ = status;
      made.num_added_[is_pair] = draft.num_added();
      made.layouts_[is_pair][with_special_tokens] = draft.Finish();
    }
  }
  made.FindAround();
  return made;
}

void PostProcessor::Surround(int32_t id, bool in_front) {
  const std::vector<int32_t>& present = in_front ? prefix_ids_ : suffix_ids_;
  if (std::find(present.begin(), present.end(), id) != present.end()) return;
  const auto token = [&](int32_t type_id) { return PostItem{-1, -1, true, id, type_id, type_id}; };
  for (const bool is_pair : {false, true}) {
    std::vector<PostItem>& items = layouts_[is_pair][true].items;
    if (in_front && is_pair) {  // before what stands before both texts already
      auto place = PlaceOf(items, 1);
      for (size_t i = prefix_ids_.size();
           i > 0 && place != items.begin() && (place - 1)->id == prefix_ids_[i - 1]; --i) {
        --place;
      }
      items.insert(place, token(1));
    } else if (is_pair) {  // behind what stands behind the first text already
      auto place = PlaceOf(items, 0) + 1;
      for (const int32_t own : suffix_ids_) {
        if (place == items.end() || place->text >= 0 || place->id != own) break;
        ++place;
      }
      items.insert(place, token(0));
    }
    items.insert(in_front ? items.begin() : items.end(), token(is_pair && !in_front ? 1 : 0));
    num_added_[is_pair] += is_pair ? 2 : 1;
  }
  FindAround();
}

void PostProcessor::Remove(int32_t id, bool in_front) {
  const std::vector<int32_t>& present = in_front ? prefix_ids_ : suffix_ids_;
  if (std::find(present.begin(), present.end(), id) == present.end()) return;
  for (const bool is_pair : {false, true}) {
    std::vector<PostItem>& items = layouts_[is_pair][true].items;
    size_t texts_before = 0;
    const auto is_it = [&](const PostItem& item) {
      texts_before += item.text >= 0;
      const bool is_on_side = in_front ? texts_before < (is_pair ? 2 : 1) : texts_before > 0;
      return item.text < 0 && item.id == id && is_on_side;
    };
    num_added_[is_pair] -= std::min(num_added_[is_pair], std::erase_if(items, is_it));
  }
  FindAround();
}

void PostProcessor::GiveOneType() {
  for (PostLayout& layout : layouts_[true]) {
    for (PostItem& item : layout.items) item.type_id = item.overflow_type_id = 0;
  }
}

Result<const PostLayout*> PostProcessor::Layout(bool is_pair, bool with_special_tokens) const {
  if (is_pair) NEREID_RETURN_IF_ERROR(pair_fault_);
  return &layouts_[is_pair][with_special_tokens];
}

bool PostProcessor::trims_offsets() const {
  return !layouts_[false][true].trims[0].empty();
}

void PostProcessor::FindAround() {
  prefix_ids_.clear();
  suffix_ids_.clear();
  bool is_behind = false;
  for (const PostItem& item : layouts_[false][true].items) {
    is_behind |= item.text >= 0;
    if (item.text < 0) (is_behind ? suffix_ids_ : prefix_ids_).push_back(item.id);
  }
}

}  // namespace nereid::tokenizer
