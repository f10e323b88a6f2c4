// Loads Mistral's tekken.json: byte strings with ranks. Special tokens take the first ids.
#include <iterator>

#include "backends/tokenizer/lib/load/rank_tokenizer.h"
#include "backends/tokenizer/lib/parse/json_fields.h"
#include "backends/tokenizer/lib/text/byte_encoding.h"

namespace nereid::tokenizer {
namespace {

// The special tokens of files that do not list them; the remaining ones are <SPECIAL_n>.
constexpr const char* kFirstSpecials[] = {"<unk>",
                                          "<s>",
                                          "</s>",
                                          "[INST]",
                                          "[/INST]",
                                          "[AVAILABLE_TOOLS]",
                                          "[/AVAILABLE_TOOLS]",
                                          "[TOOL_RESULTS]",
                                          "[/TOOL_RESULTS]",
                                          "[TOOL_CALLS]",
                                          "[IMG]",
                                          "<pad>",
                                          "[IMG_BREAK]",
                                          "[IMG_END]",
                                          "[PREFIX]",
                                          "[MIDDLE]",
                                          "[SUFFIX]",
                                          "[SYSTEM_PROMPT]",
                                          "[/SYSTEM_PROMPT]",
                                          "[TOOL_CONTENT]"};

// Parses the document without its vocabulary, whose tokens go to `ranks` during the parse.
class TekkenReader {
 public:
  Result<Json> Read(std::string_view json, RankTokenizerSpec& ranks) {
    const auto keep = [&](int depth, Json::parse_event_t event, Json& value) {
      if (event == Json::parse_event_t::key && depth == 1) in_vocab_ = value == "vocab";
      if (!in_vocab_ || depth != 2 || event != Json::parse_event_t::object_end) return true;
      if (status_.ok()) status_ = AddToken(value, ranks);
      return false;
    };
    // Three values for each token, of which none stays in the tree.
    const JsonLimits limits{.max_bytes = kMaxTokenizerBytes, .max_values = size_t{4} * kMaxTokenId};
    Result<Json> document = ReadJsonObject<Json>(json, "", limits, keep);
    NEREID_RETURN_IF_ERROR(status_);
    return document;
  }

 private:
  static Status AddToken(const Json& entry, RankTokenizerSpec& ranks) {
    const std::string where = StrCat("vocab[", ranks.tokens.size(), "]");
    NEREID_ASSIGN_OR_RETURN(const uint64_t rank, CountField(entry, "rank", where));
    NEREID_ASSIGN_OR_RETURN(const std::string bytes, StringField(entry, "token_bytes", where));
    if (rank >= kMaxTokenId) {
      return InvalidArgError(where, ".rank: ", rank, " is not below ", kMaxTokenId);
    }
    RankTokenizerSpec::Token token;
    token.offset = static_cast<uint32_t>(ranks.arena.size());
    if (!AppendBase64(bytes, ranks.arena)) {
      return InvalidArgError(where, ".token_bytes: not base64: '", bytes, "'");
    }
    token.size = static_cast<uint32_t>(ranks.arena.size() - token.offset);
    token.rank = static_cast<uint32_t>(rank);
    ranks.tokens.push_back(token);
    return {};
  }

  bool in_vocab_ = false;
  Status status_;
};

Status AddSpecials(const Json& document, uint64_t count, RankTokenizerSpec& ranks) {
  std::vector<std::string> names(count);
  for (size_t i = 0; i < count; ++i) {
    names[i] = i < std::size(kFirstSpecials) ? kFirstSpecials[i] : StrCat("<SPECIAL_", i, ">");
  }
  if (const Json& list = Member(document, "special_tokens"); list.is_array()) {
    for (const Json& entry : list) {
      NEREID_ASSIGN_OR_RETURN(const uint64_t rank, CountField(entry, "rank", "special_tokens"));
      if (rank >= count) {
        return InvalidArgError("special_tokens.rank: ", rank, " is not below ", count);
      }
      NEREID_ASSIGN_OR_RETURN(names[rank], StringField(entry, "token_str", "special_tokens"));
    }
  }
  for (size_t i = 0; i < count; ++i) {
    AddedToken token;
    token.content = names[i];
    token.id = static_cast<int32_t>(i);
    token.normalized = false;
    token.special = true;
    if (token.content == "<s>") ranks.special_ids.bos = token.id;
    if (token.content == "</s>") ranks.special_ids.eos = token.id;
    if (token.content == "<pad>") ranks.special_ids.pad = token.id;
    if (token.content == "<unk>") ranks.special_ids.unk = token.id;
    ranks.specials.push_back(std::move(token));
  }
  if (ranks.special_ids.bos) ranks.prefix_ids = {*ranks.special_ids.bos};
  return {};
}

}  // namespace

ComponentsResult LoadTekken(std::string_view json, const SideFileOptions& side) {
  if (json.size() >= UINT32_MAX) return InvalidArgError("larger than 4 GiB");
  RankTokenizerSpec ranks;
  NEREID_ASSIGN_OR_RETURN(const Json document, TekkenReader().Read(json, ranks));
  const Json& config = Member(document, "config");
  NEREID_ASSIGN_OR_RETURN(ranks.pattern, StringField(config, "pattern", "config"));
  NEREID_ASSIGN_OR_RETURN(const uint64_t size, CountField(config, "default_vocab_size", "config"));
  NEREID_ASSIGN_OR_RETURN(const uint64_t specials,
                          CountField(config, "default_num_special_tokens", "config"));
  if (specials >= size || size > kMaxTokenId) {
    return InvalidArgError("config: expected fewer special tokens than default_vocab_size ", size,
                           ", at most ", kMaxTokenId, ", got ", specials);
  }
  // The file may contain more tokens than the model has ids.
  std::erase_if(ranks.tokens, [&](const auto& token) { return token.rank >= size - specials; });
  ranks.first_id = static_cast<uint32_t>(specials);
  NEREID_RETURN_IF_ERROR(AddSpecials(document, specials, ranks));
  return MakeRankTokenizer(ranks, side);
}

}  // namespace nereid::tokenizer
