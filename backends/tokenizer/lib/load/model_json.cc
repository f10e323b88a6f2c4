// The models of tokenizer.json: reads their members and makes them.
#include <algorithm>

#include "backends/tokenizer/lib/load/tokenizer_document.h"
#include "backends/tokenizer/lib/load/tokenizer_parts.h"
#include "backends/tokenizer/lib/model/bpe_model.h"
#include "backends/tokenizer/lib/model/unigram_model.h"
#include "backends/tokenizer/lib/model/word_models.h"
#include "backends/tokenizer/lib/reading/json_fields.h"

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
    return UnsupportedError("model.dropout = ", dropout.dump(),
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

// A right part is spelt with the prefix of characters behind the first, the whole has it once.
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

Status LoadBpe(const TokenizerDocument& document, const Json& model, TokenizerParts& parts) {
  if (!document.has_merges) return InvalidArgError("model.merges: expected an array");
  FillVocabulary(document, parts.vocabulary);
  NEREID_ASSIGN_OR_RETURN(BpeOptions options, ReadBpeOptions(model, parts.vocabulary));
  NEREID_ASSIGN_OR_RETURN(
      const std::vector<MergeRule> rules,
      ResolveMerges(document, parts.vocabulary, options.continuing_prefix.size()));
  options.byte_level = parts.pre_tokenizer.byte_level();
  parts.model = std::make_unique<BpeModel>(parts.vocabulary, rules, std::move(options));
  return {};
}

Status LoadWordLevel(const TokenizerDocument& document, const Json& model, TokenizerParts& parts) {
  FillVocabulary(document, parts.vocabulary);
  NEREID_ASSIGN_OR_RETURN(const std::optional<int32_t> unk_id, UnkToken(model, parts.vocabulary));
  parts.model = std::make_unique<WordLevelModel>(parts.vocabulary, unk_id);
  return {};
}

Status LoadWordPiece(const TokenizerDocument& document, const Json& model, TokenizerParts& parts) {
  FillVocabulary(document, parts.vocabulary);
  WordPieceModel::Options options;
  NEREID_ASSIGN_OR_RETURN(const std::optional<int32_t> unk_id, UnkToken(model, parts.vocabulary));
  if (!unk_id) {
    return InvalidArgError("model.unk_token: expected a token of model.vocab, got ",
                           Member(model, "unk_token").dump());
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
  parts.model = std::make_unique<WordPieceModel>(parts.vocabulary, std::move(options));
  return {};
}

Status LoadUnigram(const TokenizerDocument& document, const Json& model, TokenizerParts& parts) {
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
  parts.vocabulary.Reserve(document.scores.size(), document.scores.size() * 8);
  double min_score = 0.0;
  for (const auto& entry : document.scores) {
    const auto id = static_cast<int32_t>(tokens.size());
    tokens.push_back({document.View(entry.token), id, entry.score});
    parts.vocabulary.Add(tokens.back().text, static_cast<uint32_t>(id));
    min_score = tokens.size() == 1 ? entry.score : std::min(min_score, entry.score);
  }
  parts.model =
      std::make_unique<UnigramModel>(parts.vocabulary, tokens, min_score - kUnkPenalty, options);
  return {};
}

// The type of a file of before types were written follows from its members.
std::string TypeOfModel(const TokenizerDocument& document, const Json& model) {
  const std::string type = TypeOf(model);
  if (!type.empty()) return type;
  if (document.has_scores) return "Unigram";
  if (!document.merges.empty()) return "BPE";
  if (model.is_object() && model.contains("max_input_chars_per_word")) return "WordPiece";
  return "";
}

}  // namespace

Status LoadModel(const TokenizerDocument& document, const Json& model, TokenizerParts& parts) {
  const std::string type = TypeOfModel(document, model);
  if (type.empty())
    return InvalidArgError("model: expected an object with a type, got ", model.type_name());
  if (type != "BPE") parts.pre_tokenizer.SpellBytes();
  if (type == "Unigram") return LoadUnigram(document, model, parts);
  if (type != "BPE" && type != "WordPiece" && type != "WordLevel") {
    return UnsupportedError("model '", type, "' is not supported");
  }
  if (document.vocab.empty()) {
    return InvalidArgError("model.vocab: expected an object of tokens and their ids");
  }
  if (type == "WordPiece") return LoadWordPiece(document, model, parts);
  if (type == "WordLevel") return LoadWordLevel(document, model, parts);
  return LoadBpe(document, model, parts);
}

}  // namespace nereid::tokenizer
