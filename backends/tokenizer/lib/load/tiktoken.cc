// tiktoken's rank files: a line for each token, its bytes in base64, a space, its rank.
#include <charconv>

#include "backends/tokenizer/lib/load/rank_tokenizer.h"
#include "backends/tokenizer/lib/reading/base64.h"

namespace nereid::tokenizer {
namespace {

// Takes the next line; false at the end.
bool NextLine(std::string_view& rest, std::string_view& line) {
  if (rest.empty()) return false;
  const size_t end = std::min(rest.find('\n'), rest.size());
  line = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return true;
}

// "base64 rank"
bool ReadLine(std::string_view line, RankTokenizer& ranks) {
  const size_t space = line.find(' ');
  if (space == line.npos || space == 0) return false;
  RankTokenizer::Token token;
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
  RankTokenizer ranks;
  std::string_view line;
  return NextLine(bytes, line) && line.size() < 4096 && ReadLine(line, ranks);
}

PartsResult LoadTiktoken(std::string_view bytes, const SideOptions& side) {
  if (bytes.size() >= UINT32_MAX) return InvalidArgError("larger than 4 GiB");
  RankTokenizer ranks;
  std::string_view line;
  for (size_t number = 1; NextLine(bytes, line); ++number) {
    if (line.empty()) continue;
    if (!ReadLine(line, ranks)) {
      return InvalidArgError("line ", number, ": expected base64, a space and a rank, got '",
                             line.substr(0, 80), "'");
    }
  }
  NEREID_RETURN_IF_ERROR(DescribePublished(ranks));
  return MakeRankTokenizer(ranks, side);
}

}  // namespace nereid::tokenizer
