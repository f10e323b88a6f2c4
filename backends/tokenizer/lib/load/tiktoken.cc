// Loads tiktoken's rank files: one line per token with its bytes in base64, a space and its rank.
#include <charconv>

#include "backends/tokenizer/lib/load/rank_tokenizer.h"
#include "backends/tokenizer/lib/text/byte_encoding.h"

namespace nereid::tokenizer {
namespace {

// Takes the next line; returns false at the end.
bool NextLine(std::string_view& rest, std::string_view& line) {
  if (rest.empty()) return false;
  const size_t end = std::min(rest.find('\n'), rest.size());
  line = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return true;
}

// Parses "base64 rank".
bool ReadLine(std::string_view line, RankTokenizerSpec& ranks) {
  const size_t space = line.find(' ');
  if (space == line.npos || space == 0) return false;
  RankTokenizerSpec::Token token;
  token.offset = static_cast<uint32_t>(ranks.arena.size());
  if (!AppendBase64(line.substr(0, space), ranks.arena)) return false;
  token.size = static_cast<uint32_t>(ranks.arena.size() - token.offset);
  const char* const end = line.data() + line.size();
  const auto [at, error] = std::from_chars(line.data() + space + 1, end, token.rank);
  if (error != std::errc() || at != end) return false;
  ranks.tokens.push_back(token);
  return true;
}

}  // namespace

bool LooksLikeTiktoken(std::string_view bytes) {
  RankTokenizerSpec ranks;
  std::string_view line;
  return NextLine(bytes, line) && line.size() < 4096 && ReadLine(line, ranks);
}

ComponentsResult LoadTiktoken(std::string_view bytes, const SideFileOptions& side) {
  if (bytes.size() >= UINT32_MAX) return InvalidArgError("larger than 4 GiB");
  RankTokenizerSpec ranks;
  std::string_view line;
  for (size_t number = 1; NextLine(bytes, line); ++number) {
    if (line.empty()) continue;
    if (!ReadLine(line, ranks)) {
      return InvalidArgError("line ", number, ": expected base64, a space and a rank, got '",
                             line.substr(0, 80), "'");
    }
  }
  NEREID_RETURN_IF_ERROR(DescribePublishedVocabulary(ranks));
  return MakeRankTokenizer(ranks, side);
}

}  // namespace nereid::tokenizer
