// Loads a tokenizer.json. Components that this library does not implement are refused by name.
#include <algorithm>

#include "backends/tokenizer/lib/load/side_files.h"
#include "backends/tokenizer/lib/load/tokenizer_components.h"
#include "backends/tokenizer/lib/load/tokenizer_document.h"
#include "backends/tokenizer/lib/model/bpe_model.h"
#include "backends/tokenizer/lib/model/unigram_model.h"
#include "backends/tokenizer/lib/model/word_models.h"
#include "backends/tokenizer/lib/parse/json_fields.h"

namespace nereid::tokenizer {
namespace {

Result<BpeOptions> ReadBpeOptions(const Json& model, const TokenTable& vocabulary) {
  BpeOptions options;
  for (const auto& [key, affix] :
       {std::pair{"continuing_subword_prefix", &options.continuing_prefix},
        std::pair{"end_of_word_suffix", &options.end_suffix}}) {
    if (Member(model, key).is_null()) continue;
    NEREID_ASSIGN_OR_RETURN(*affix, StringField(model, key, "model"));
  }
  const Json& dropout = Member(model, "dropout");
  if (!dropout.is_null() && dropout != 0.0) {
    return UnsupportedError("model.dropout = ", ShowJson(dropout),
                            " is not supported: ids would be random");
  }
  NEREID_ASSIGN_OR_RETURN(options.byte_fallback, BoolField(model, "byte_fallback", false, "model"));
  NEREID_ASSIGN_OR_RETURN(options.fuse_unk, BoolField(model, "fuse_unk", false, "model"));
  NEREID_ASSIGN_OR_RETURN(options.ignore_merges, BoolField(model, "ignore_merges", false, "model"));
  if (!Member(model, "unk_token").is_null()) {
    NEREID_ASSIGN_OR_RETURN(const std::string unk, StringField(model, "unk_token", "model"));
    options.unk_id = vocabulary.Find(unk);
    if (!options.unk_id) {
      return InvalidArgError("model.unk_token: '", unk, "' is not in model.vocab");
    }
  }
  return options;
}

// In a merge rule the right token begins with the continuing-subword prefix, which the merged token
// does not contain a second time.
Result<std::vector<MergeRule>> ResolveMerges(const TokenizerDocument& document,
                                             const TokenTable& vocabulary, size_t prefix_bytes) {
  std::vector<MergeRule> rules;
  if (document.merges.size() > MergeTable::kMaxRank) {
    return InvalidArgError("model.merges: expected at most ", MergeTable::kMaxRank, " rules, got ",
                           document.merges.size());
  }
  rules.reserve(document.merges.size());
  std::string merged;
  for (const TokenizerDocument::MergeEntry& entry : document.merges) {
    const std::string_view left = document.View(entry.left), right = document.View(entry.right);
    merged.assign(left).append(right.substr(std::min(prefix_bytes, right.size())));
    const auto left_id = vocabulary.Find(left), right_id = vocabulary.Find(right);
    const auto merged_id = vocabulary.Find(merged);
    if (!left_id || !right_id || !merged_id) {
      return InvalidArgError("model.merges[", rules.size(), "]: '",
                             !left_id    ? left
                             : !right_id ? right
                                         : merged,
                             "' is not in model.vocab");
    }
    rules.push_back({*left_id, *right_id, *merged_id, static_cast<uint32_t>(rules.size())});
  }
  return rules;
}

void FillVocabulary(const TokenizerDocument& document, TokenTable& vocabulary) {
  vocabulary.Reserve(document.vocab.size(), document.vocab.size() * 8);
  for (const auto& entry : document.vocab) vocabulary.Add(document.View(entry.token), entry.id);
}

Result<std::optional<int32_t>> UnkToken(const Json& model, const TokenTable& vocabulary) {
  if (Member(model, "unk_token").is_null()) return std::optional<int32_t>();
  NEREID_ASSIGN_OR_RETURN(const std::string unk, StringField(model, "unk_token", "model"));
  return vocabulary.Find(unk);
}

Status LoadBpe(const TokenizerDocument& document, const Json& model,
               TokenizerComponents& components) {
  if (!document.has_merges) return InvalidArgError("model.merges: expected an array");
  FillVocabulary(document, components.vocabulary);
  NEREID_ASSIGN_OR_RETURN(BpeOptions options, ReadBpeOptions(model, components.vocabulary));
  NEREID_ASSIGN_OR_RETURN(
      const std::vector<MergeRule> rules,
      ResolveMerges(document, components.vocabulary, options.continuing_prefix.size()));
  options.byte_level = components.pre_tokenizer.byte_level();
  components.model = std::make_unique<BpeModel>(components.vocabulary, rules, std::move(options));
  return {};
}

Status LoadWordLevel(const TokenizerDocument& document, const Json& model,
                     TokenizerComponents& components) {
  FillVocabulary(document, components.vocabulary);
  NEREID_ASSIGN_OR_RETURN(const std::optional<int32_t> unk_id,
                          UnkToken(model, components.vocabulary));
  components.model = std::make_unique<WordLevelModel>(components.vocabulary, unk_id);
  return {};
}

Status LoadWordPiece(const TokenizerDocument& document, const Json& model,
                     TokenizerComponents& components) {
  FillVocabulary(document, components.vocabulary);
  WordPieceModel::Options options;
  NEREID_ASSIGN_OR_RETURN(const std::optional<int32_t> unk_id,
                          UnkToken(model, components.vocabulary));
  if (!unk_id) {
    return InvalidArgError("model.unk_token: expected a token of model.vocab, got ",
                           ShowJson(Member(model, "unk_token")));
  }
  options.unk_id = *unk_id;
  if (!Member(model, "continuing_subword_prefix").is_null()) {
    NEREID_ASSIGN_OR_RETURN(options.continuing_prefix,
                            StringField(model, "continuing_subword_prefix", "model"));
  }
  if (!Member(model, "max_input_chars_per_word").is_null()) {
    NEREID_ASSIGN_OR_RETURN(options.max_chars,
                            CountField(model, "max_input_chars_per_word", "model"));
  }
  components.model = std::make_unique<WordPieceModel>(components.vocabulary, std::move(options));
  return {};
}

Status LoadUnigram(const TokenizerDocument& document, const Json& model,
                   TokenizerComponents& components) {
  constexpr double kUnkPenalty = 10.0;
  if (document.scores.empty()) {
    return InvalidArgError("model.vocab: expected an array of [token, score]");
  }
  UnigramOptions options;
  NEREID_ASSIGN_OR_RETURN(options.byte_fallback, BoolField(model, "byte_fallback", false, "model"));
  if (!Member(model, "unk_id").is_null()) {
    NEREID_ASSIGN_OR_RETURN(const uint64_t id, CountField(model, "unk_id", "model"));
    if (id >= document.scores.size()) {
      return InvalidArgError("model.unk_id: expected an id below ", document.scores.size(),
                             ", got ", id);
    }
    options.unk_id = static_cast<int32_t>(id);
  }
  std::vector<UnigramModel::Token> tokens;
  tokens.reserve(document.scores.size());
  components.vocabulary.Reserve(document.scores.size(), document.scores.size() * 8);
  double min_score = 0.0;
  for (const auto& entry : document.scores) {
    const auto id = static_cast<int32_t>(tokens.size());
    tokens.push_back({document.View(entry.token), id, entry.score});
    components.vocabulary.Add(tokens.back().text, static_cast<uint32_t>(id));
    min_score = tokens.size() == 1 ? entry.score : std::min(min_score, entry.score);
  }
  components.model = std::make_unique<UnigramModel>(components.vocabulary, tokens,
                                                    min_score - kUnkPenalty, options);
  return {};
}

// Old files have no model type; it follows from the model's members.
std::string TypeOfModel(const TokenizerDocument& document, const Json& model) {
  const std::string type = TypeOf(model);
  if (!type.empty()) return type;
  if (document.has_scores) return "Unigram";
  if (!document.merges.empty()) return "BPE";
  if (model.is_object() && model.contains("max_input_chars_per_word")) return "WordPiece";
  return "";
}

Status LoadModel(const TokenizerDocument& document, const Json& model,
                 TokenizerComponents& components) {
  const std::string type = TypeOfModel(document, model);
  if (type.empty())
    return InvalidArgError("model: expected an object with a type, got ", model.type_name());
  if (type != "BPE") components.pre_tokenizer.MakeBytesPrintable();
  if (type == "Unigram") return LoadUnigram(document, model, components);
  if (type != "BPE" && type != "WordPiece" && type != "WordLevel") {
    return UnsupportedError("model '", type, "' is not supported");
  }
  if (document.vocab.empty()) {
    return InvalidArgError("model.vocab: expected an object of tokens and their ids");
  }
  if (type == "WordPiece") return LoadWordPiece(document, model, components);
  if (type == "WordLevel") return LoadWordLevel(document, model, components);
  return LoadBpe(document, model, components);
}

}  // namespace

ComponentsResult LoadTokenizerJson(std::string_view json, const SideFileOptions& side) {
  NEREID_ASSIGN_OR_RETURN(const TokenizerDocument document, ParseTokenizerDocument(json));
  const Json& root = *document.rest;
  if (!root.is_object()) return InvalidArgError("expected a JSON object, got ", root.type_name());
  const Json& version = Member(root, "version");
  if (!version.is_null() && version != "1.0") {
    return UnsupportedError("version ", ShowJson(version), " is not supported, only \"1.0\" is");
  }
  auto components = std::make_unique<TokenizerComponents>();
  NEREID_ASSIGN_OR_RETURN(components->normalizer, Normalizer::Make(Member(root, "normalizer")));
  NEREID_ASSIGN_OR_RETURN(components->pre_tokenizer,
                          PreTokenizer::Make(Member(root, "pre_tokenizer"), side.add_prefix_space));
  NEREID_RETURN_IF_ERROR(LoadModel(document, Member(root, "model"), *components));
  NEREID_ASSIGN_OR_RETURN(components->added,
                          AddedTokens::Make(Member(root, "added_tokens"), side.added,
                                            components->vocabulary, components->normalizer));
  NEREID_ASSIGN_OR_RETURN(components->post, PostProcessor::Make(Member(root, "post_processor")));
  NEREID_ASSIGN_OR_RETURN(components->truncation, Truncation::Read(Member(root, "truncation")));
  NEREID_ASSIGN_OR_RETURN(components->padding, Padding::Read(Member(root, "padding")));
  if (components->truncation) {
    NEREID_RETURN_IF_ERROR(
        components->truncation->Check(components->post.NumAdded(/*is_pair=*/false)));
  }
  NEREID_RETURN_IF_ERROR(FinalizeComponents(Member(root, "decoder"), *components));
  return components;
}

}  // namespace nereid::tokenizer
