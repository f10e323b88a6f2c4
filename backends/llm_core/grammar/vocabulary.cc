// See vocabulary.h.
#include "backends/llm_core/grammar/vocabulary.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "backends/tokenizer/lib/tokenizer.h"

namespace nereid::llm::grammar {
namespace {

constexpr size_t kMaxTokens = size_t{1} << 22;
constexpr size_t kMaxTokenBytes = 4096;
constexpr size_t kMaxBytes = size_t{256} << 20;

// The characters of a token that consists of plain ones, else 0.
int NumPlainChars(std::string_view token) {
  int state = 0, num_chars = 0;
  for (const char c : token) {
    state = NextPlainState(state, static_cast<uint8_t>(c));
    if (state < 0) return 0;
    num_chars += state == 0;
  }
  return state == 0 ? num_chars : 0;
}

Vocabulary::LongToken DescribeLong(int32_t id, std::string_view token) {
  const bool is_space = token.find_first_not_of(" \t\n\r") == std::string_view::npos;
  return {id, is_space ? static_cast<int>(token.size()) : 0, NumPlainChars(token)};
}

// What stands for a special token: 0xFF, which is no byte of UTF-8, and the id.
std::string BytesOfSpecial(int32_t id) {
  std::string bytes = "\xff";
  for (int shift = 14; shift >= 0; shift -= 7) {
    bytes += static_cast<char>(0x80 | (id >> shift & 0x7F));
  }
  return bytes;
}

// `ids` are sorted by the bytes of their tokens, which differ.
TokenTrie MakeTrie(const std::vector<std::string>& tokens, const std::vector<int32_t>& ids) {
  TokenTrie trie;
  std::vector<uint32_t> path;  // nodes from the first byte to the current one
  std::string_view previous;
  for (const int32_t id : ids) {
    const std::string_view token = tokens[id];
    size_t common = 0;
    while (common < previous.size() && common < token.size() && previous[common] == token[common]) {
      ++common;
    }
    for (size_t depth = common; depth < path.size(); ++depth) {
      trie.nodes[path[depth]].end = static_cast<uint32_t>(trie.nodes.size());
    }
    path.resize(common);
    for (size_t depth = common; depth < token.size(); ++depth) {
      path.push_back(static_cast<uint32_t>(trie.nodes.size()));
      trie.nodes.push_back(
          {0, -1, static_cast<uint16_t>(depth + 1), static_cast<uint8_t>(token[depth])});
    }
    trie.nodes[path.back()].token = id;
    trie.max_depth = std::max(trie.max_depth, token.size());
    previous = token;
  }
  for (const uint32_t node : path) trie.nodes[node].end = static_cast<uint32_t>(trie.nodes.size());
  return trie;
}

}  // namespace

int NextPlainState(int state, uint8_t byte) {
  // 1 to 3: so many continuation bytes follow. 4 to 7: after E0, ED, F0 and F4.
  const bool continues = byte >= 0x80 && byte <= 0xBF;
  switch (state) {
    case 0:
      if (byte >= 0x20 && byte < 0x7F) return byte == '"' || byte == '\\' ? -1 : 0;
      if (byte >= 0xC2 && byte <= 0xDF) return 1;
      if (byte == 0xE0) return 4;
      if (byte == 0xED) return 5;
      if (byte >= 0xE1 && byte <= 0xEF) return 2;
      if (byte == 0xF0) return 6;
      if (byte >= 0xF1 && byte <= 0xF3) return 3;
      return byte == 0xF4 ? 7 : -1;
    case 1:
    case 2:
    case 3:
      return continues ? state - 1 : -1;
    case 4:
      return byte >= 0xA0 && continues ? 1 : -1;
    case 5:
      return byte <= 0x9F && continues ? 1 : -1;
    case 6:
      return byte >= 0x90 && continues ? 2 : -1;
    default:
      return byte <= 0x8F && continues ? 2 : -1;
  }
}

Result<std::shared_ptr<const Vocabulary>> Vocabulary::Make(
    std::vector<std::string> tokens, std::vector<int32_t> end_ids,
    std::vector<SpecialToken> special_tokens) {
  if (tokens.size() > kMaxTokens) {
    return InvalidArgError("the vocabulary has ", tokens.size(), " tokens; at most ", kMaxTokens,
                           " are supported");
  }
  size_t num_bytes = 0;
  for (const std::string& token : tokens) num_bytes += token.size();
  if (num_bytes > kMaxBytes) {
    return InvalidArgError("the tokens have ", num_bytes, " bytes together; at most ", kMaxBytes,
                           " are supported");
  }
  std::shared_ptr<Vocabulary> vocabulary(new Vocabulary);
  vocabulary->tokens_ = std::move(tokens);
  std::erase_if(end_ids, [&](int32_t id) {
    return id < 0 || static_cast<size_t>(id) >= vocabulary->tokens_.size();
  });
  vocabulary->end_ids_ = std::move(end_ids);
  std::erase_if(special_tokens, [&](const SpecialToken& each) {
    const std::vector<int32_t>& ends = vocabulary->end_ids_;
    return each.text.empty() || each.id < 0 ||
           static_cast<size_t>(each.id) >= vocabulary->tokens_.size() ||
           std::find(ends.begin(), ends.end(), each.id) != ends.end();
  });
  // No text is UTF-8 with this byte, so that nothing else than a special token has it.
  for (std::string& token : vocabulary->tokens_) {
    if (token.find('\xff') != std::string::npos) token.clear();
  }
  for (const SpecialToken& each : special_tokens) {
    vocabulary->tokens_[each.id] = BytesOfSpecial(each.id);
  }
  vocabulary->special_tokens_ = std::move(special_tokens);
  vocabulary->Index();
  return std::shared_ptr<const Vocabulary>(std::move(vocabulary));
}

void Vocabulary::Index() {
  std::vector<int32_t> ids;
  for (size_t id = 0; id < tokens_.size(); ++id) {
    std::string& token = tokens_[id];
    if (token.size() > kMaxTokenBytes) token.clear();
    if (!token.empty()) ids.push_back(static_cast<int32_t>(id));
  }
  const std::vector<std::string>& all = tokens_;
  std::sort(ids.begin(), ids.end(),
            [&](int32_t x, int32_t y) { return std::tie(all[x], x) < std::tie(all[y], y); });
  twins_.assign(all.size(), -1);
  plain_mask_.resize(num_mask_words());
  std::vector<int32_t> different, others;
  for (const int32_t id : ids) {
    const int num_plain = NumPlainChars(all[id]);
    const bool is_plain = num_plain > 0 && num_plain <= kMaxPlainChars;
    if (is_plain) plain_mask_[id / 32] |= 1u << (id % 32);
    if (!different.empty() && all[different.back()] == all[id]) {
      int32_t last = different.back();
      while (twins_[last] >= 0) last = twins_[last];
      twins_[last] = id;
      continue;
    }
    different.push_back(id);
    if (all[id].size() > kMaxShortBytes) long_tokens_.push_back(DescribeLong(id, all[id]));
    if (!is_plain) others.push_back(id);
  }
  all_ = MakeTrie(all, different);
  other_ = MakeTrie(all, others);
}

Result<std::shared_ptr<const Vocabulary>> Vocabulary::Make(const tokenizer::Tokenizer& tokenizer,
                                                           std::vector<int32_t> end_ids,
                                                           int32_t num_tokens) {
  if (num_tokens == 0) num_tokens = tokenizer.vocab_size();
  std::vector<std::string> tokens(static_cast<size_t>(num_tokens));
  std::vector<SpecialToken> special_tokens;
  const auto& roles = tokenizer.special_ids();
  for (int32_t id = 0; id < std::min(num_tokens, tokenizer.vocab_size()); ++id) {
    if (!tokenizer.IsSpecial(id)) {
      tokens[id] = tokenizer.TokenBytes(id);
    } else if (id != roles.bos && id != roles.eos && id != roles.pad && id != roles.unk) {
      special_tokens.push_back({id, std::string(tokenizer.IdToToken(id).value_or(""))});
    }
  }
  for (const int32_t id : end_ids) {
    if (id >= 0 && static_cast<size_t>(id) < tokens.size()) tokens[id].clear();
  }
  return Make(std::move(tokens), std::move(end_ids), std::move(special_tokens));
}

std::string Vocabulary::Marker(std::string_view text) const {
  std::string bytes;
  while (!text.empty()) {
    const SpecialToken* longest = nullptr;
    for (const SpecialToken& each : special_tokens_) {
      if (text.starts_with(each.text) &&
          (longest == nullptr || each.text.size() > longest->text.size())) {
        longest = &each;
      }
    }
    bytes += longest != nullptr ? BytesOfSpecial(longest->id) : std::string(text.substr(0, 1));
    text.remove_prefix(longest != nullptr ? longest->text.size() : 1);
  }
  return bytes;
}

std::pair<int32_t, size_t> Vocabulary::LongestToken(std::string_view text) const {
  std::pair<int32_t, size_t> longest{-1, 0};
  const std::vector<TokenTrie::Node>& nodes = all_.nodes;
  uint32_t node = 0;
  auto end = static_cast<uint32_t>(nodes.size());
  for (size_t size = 1; size <= text.size(); ++size) {
    while (node < end && nodes[node].byte != static_cast<uint8_t>(text[size - 1])) {
      node = nodes[node].end;
    }
    if (node >= end) break;
    if (nodes[node].token >= 0) longest = {nodes[node].token, size};
    end = nodes[node].end;
    ++node;
  }
  return longest;
}

}  // namespace nereid::llm::grammar
