// Loads a tokenizer.json: components, added tokens; the model by model_json.cc. What this library
// does not implement is refused here by name.
#include <algorithm>

#include "json_fields.h"
#include "side_files.h"
#include "tokenizer_document.h"
#include "tokenizer_parts.h"

namespace nereid::tokenizer {
namespace {

class PostProcessorReader {
 public:
  explicit PostProcessorReader(TokenizerParts& parts) : parts_(parts) {}

  Status Read(const Json& spec) {
    if (spec.is_null()) return {};
    const std::string type = TypeOf(spec);
    if (type == "ByteLevel") return ReadTrim(spec, type);
    if (type == "Sequence") {
      NEREID_ASSIGN_OR_RETURN(const Json* list,
                              ArrayField(spec, "processors", "post_processor Sequence"));
      for (const Json& step : *list) NEREID_RETURN_IF_ERROR(Read(step));
      return {};
    }
    if (type == "TemplateProcessing") return ReadTemplate(spec);
    if (type == "RobertaProcessing") NEREID_RETURN_IF_ERROR(ReadTrim(spec, type));
    if (type == "RobertaProcessing" || type == "BertProcessing") return ReadPair(spec, type);
    return UnsupportedError("post_processor '", type, "' is not supported");
  }

 private:
  Status ReadTrim(const Json& spec, const std::string& type) {
    const std::string where = "post_processor " + type;
    NEREID_ASSIGN_OR_RETURN(const bool trims, BoolField(spec, "trim_offsets", true, where));
    NEREID_ASSIGN_OR_RETURN(const bool prefix, BoolField(spec, "add_prefix_space", true, where));
    if (trims) parts_.offset_trims.push_back({prefix, parts_.prefix_ids.size()});
    return {};
  }

  // The tokens of a later processor stand outside those of an earlier one.
  void Wrap(std::vector<int32_t> prefix, const std::vector<int32_t>& suffix) {
    prefix.insert(prefix.end(), parts_.prefix_ids.begin(), parts_.prefix_ids.end());
    parts_.prefix_ids = std::move(prefix);
    parts_.suffix_ids.insert(parts_.suffix_ids.end(), suffix.begin(), suffix.end());
  }

  Status ReadTemplate(const Json& spec) {
    constexpr std::string_view kWhere = "post_processor TemplateProcessing";
    NEREID_ASSIGN_OR_RETURN(const Json* pieces, ArrayField(spec, "single", kWhere));
    std::vector<int32_t> before, after;
    int num_texts = 0;
    for (const Json& piece : *pieces) {
      if (const Json& text = Member(piece, "Sequence"); !text.is_null()) {
        if (Member(text, "id") != "A")
          return InvalidArgError(kWhere, ".single: a text that is not A");
        ++num_texts;
        continue;
      }
      NEREID_ASSIGN_OR_RETURN(const std::string name,
                              StringField(Member(piece, "SpecialToken"), "id", kWhere));
      const Json& token = Member(Member(spec, "special_tokens"), name.c_str());
      NEREID_ASSIGN_OR_RETURN(const Json* ids, ArrayField(token, "ids", kWhere));
      for (const Json& id : *ids) {
        NEREID_ASSIGN_OR_RETURN(const int32_t checked, CheckedId(id, kWhere));
        (num_texts == 0 ? before : after).push_back(checked);
      }
    }
    if (num_texts != 1) {
      return UnsupportedError(kWhere, ".single: expected the text once, got it ", num_texts,
                              " times");
    }
    Wrap(std::move(before), after);
    return {};
  }

  Status ReadPair(const Json& spec, const std::string& type) {
    const std::string where = "post_processor " + type;
    std::vector<int32_t> around[2];
    int index = 0;
    for (const char* key : {"cls", "sep"}) {
      NEREID_ASSIGN_OR_RETURN(const Json* pair, ArrayField(spec, key, where));
      if (pair->size() != 2) return WrongField(where, key, "[token, id]", *pair);
      NEREID_ASSIGN_OR_RETURN(const int32_t id, CheckedId((*pair)[1], where));
      around[index++].push_back(id);
    }
    Wrap(std::move(around[0]), around[1]);
    return {};
  }

  static Result<int32_t> CheckedId(const Json& id, std::string_view where) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= kMaxTokenId) {
      return InvalidArgError(where, ": expected an id below ", kMaxTokenId, ", got ", id.dump());
    }
    return id.get<int32_t>();
  }

  TokenizerParts& parts_;
};

}  // namespace

PartsResult LoadTokenizerJson(std::string_view json, const SideOptions& side) {
  NEREID_ASSIGN_OR_RETURN(const TokenizerDocument document, ParseTokenizerDocument(json));
  const Json& root = *document.rest;
  if (!root.is_object()) return InvalidArgError("expected a JSON object, got ", root.type_name());
  const Json& version = Member(root, "version");
  if (!version.is_null() && version != "1.0") {
    return UnsupportedError("version ", version.dump(), " is not supported, only \"1.0\" is");
  }
  auto parts = std::make_unique<TokenizerParts>();
  NEREID_ASSIGN_OR_RETURN(parts->normalizer, Normalizer::Make(Member(root, "normalizer")));
  NEREID_ASSIGN_OR_RETURN(parts->pre_tokenizer,
                          PreTokenizer::Make(Member(root, "pre_tokenizer"), side.add_prefix_space));
  NEREID_RETURN_IF_ERROR(LoadModel(document, Member(root, "model"), *parts));
  NEREID_ASSIGN_OR_RETURN(parts->added, AddedTokens::Make(Member(root, "added_tokens"), side.added,
                                                          parts->vocabulary, parts->normalizer));
  NEREID_RETURN_IF_ERROR(PostProcessorReader(*parts).Read(Member(root, "post_processor")));
  NEREID_ASSIGN_OR_RETURN(parts->truncation, Truncation::Read(Member(root, "truncation")));
  NEREID_ASSIGN_OR_RETURN(parts->padding, Padding::Read(Member(root, "padding")));
  if (parts->truncation) {
    NEREID_RETURN_IF_ERROR(
        parts->truncation->Check(parts->prefix_ids.size() + parts->suffix_ids.size()));
  }
  NEREID_RETURN_IF_ERROR(FinishParts(Member(root, "decoder"), *parts));
  return parts;
}

}  // namespace nereid::tokenizer
