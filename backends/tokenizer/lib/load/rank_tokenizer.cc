// See rank_tokenizer.h.
#include "backends/tokenizer/lib/load/rank_tokenizer.h"

#include <nlohmann/json.hpp>

#include "backends/tokenizer/lib/model/bpe_model.h"
#include "backends/tokenizer/lib/text/byte_encoding.h"
#include "backends/tokenizer/lib/text/utf8.h"

namespace nereid::tokenizer {
namespace {

std::string_view BytesOf(const RankTokenizerSpec& ranks, const RankTokenizerSpec::Token& token) {
  return std::string_view(ranks.arena).substr(token.offset, token.size);
}

Status CheckRanks(const RankTokenizerSpec& ranks, const TokenTable& by_bytes) {
  if (ranks.tokens.empty()) return InvalidArgError("a vocabulary without tokens");
  if (by_bytes.num_entries() != ranks.tokens.size()) {
    return InvalidArgError("expected ", ranks.tokens.size(), " different tokens, got ",
                           by_bytes.num_entries());
  }
  std::vector<bool> seen(kMaxTokenId);
  for (const auto& token : ranks.tokens) {
    if (seen[token.rank]) {
      return InvalidArgError("rank ", token.rank, ": expected one token, got two");
    }
    seen[token.rank] = true;
  }
  for (int byte = 0; byte < 256; ++byte) {
    const char single = static_cast<char>(byte);
    if (!by_bytes.Find({&single, 1})) return InvalidArgError("no token is the byte ", byte);
  }
  return {};
}

// Every division of a token into two tokens is a merge rule. `by_bytes` maps bytes to ranks.
std::vector<MergeRule> MakeRules(const RankTokenizerSpec& ranks, const TokenTable& by_bytes) {
  std::vector<MergeRule> rules;
  const auto id = [&](int32_t rank) { return static_cast<int32_t>(ranks.first_id) + rank; };
  for (const auto& token : ranks.tokens) {
    const std::string_view bytes = BytesOf(ranks, token);
    for (size_t cut = 1; cut < bytes.size(); ++cut) {
      const auto left = by_bytes.Find(bytes.substr(0, cut));
      if (!left) continue;
      const auto right = by_bytes.Find(bytes.substr(cut));
      if (!right) continue;
      rules.push_back({id(*left), id(*right), id(static_cast<int32_t>(token.rank)), token.rank});
    }
  }
  return rules;
}

}  // namespace

ComponentsResult MakeRankTokenizer(const RankTokenizerSpec& ranks, const SideFileOptions& side) {
  TokenTable by_bytes;
  by_bytes.Reserve(ranks.tokens.size(), ranks.arena.size());
  auto components = std::make_unique<TokenizerComponents>();
  components->vocabulary.Reserve(ranks.tokens.size(), ranks.arena.size() * 2);
  for (const auto& token : ranks.tokens) {
    if (token.rank >= kMaxTokenId - ranks.first_id) {
      return InvalidArgError("rank ", token.rank, " is not below ", kMaxTokenId - ranks.first_id);
    }
    if (token.size == 0) return InvalidArgError("rank ", token.rank, ": an empty token");
    by_bytes.Add(BytesOf(ranks, token), token.rank);
    components->vocabulary.Add(PrintableForm(BytesOf(ranks, token)), ranks.first_id + token.rank);
  }
  NEREID_RETURN_IF_ERROR(CheckRanks(ranks, by_bytes));
  NEREID_ASSIGN_OR_RETURN(auto pattern, MakeRegexPattern(ranks.pattern, RegexDialect::kRust));
  components->pre_tokenizer = PreTokenizer::FromMatches(std::move(pattern));
  if (ranks.nfc) {
    NEREID_ASSIGN_OR_RETURN(components->normalizer, Normalizer::Make({{"type", "NFC"}}));
  }
  BpeOptions options;
  options.byte_level = true;
  options.ignore_merges = true;
  components->model =
      std::make_unique<BpeModel>(components->vocabulary, MakeRules(ranks, by_bytes), options);
  std::vector<AddedToken> added = ranks.specials;
  OverlayAddedTokens(side.added, components->vocabulary, added);
  NEREID_ASSIGN_OR_RETURN(components->added,
                          AddedTokens::FromList(std::move(added), components->normalizer));
  for (size_t i = ranks.prefix_ids.size(); i-- > 0;) {
    components->post.AddSpecialToken(ranks.prefix_ids[i], /*before_text=*/true);
  }
  components->special_ids = ranks.special_ids;
  components->has_separate_added_ids = true;
  NEREID_RETURN_IF_ERROR(FinalizeComponents({{"type", "ByteLevel"}}, *components));
  return components;
}

}  // namespace nereid::tokenizer
