// See tokenizer_document.h. The JSON events are handled without recursion, and nesting and sizes
// are limited, so that memory stays proportional to the size of an untrusted file.
#include "backends/tokenizer/lib/load/tokenizer_document.h"

#include <algorithm>
#include <cstdlib>

#include "backends/tokenizer/lib/parse/json_fields.h"
#include "backends/tokenizer/lib/vocabulary/token_table.h"

namespace nereid::tokenizer {
namespace {

constexpr size_t kMaxDepth = 64;

// Parses a number as the reference's JSON parser does, which can differ slightly from the nearest
// double. The difference decides between nearly equal scores.
double ReferenceFloat(std::string_view text) {
  const bool negative = text.substr(0, 1) == "-";
  uint64_t digits = 0;
  int64_t exponent = 0;
  bool in_fraction = false, is_full = false;
  size_t at = negative ? 1 : 0;
  for (; at < text.size() && (text[at] | 0x20) != 'e'; ++at) {
    if (text[at] == '.') {
      in_fraction = true;
      continue;
    }
    const auto digit = static_cast<uint64_t>(text[at] - '0');
    is_full = is_full || digits > (UINT64_MAX - digit) / 10;
    if (!is_full) digits = digits * 10 + digit;
    exponent += is_full ? !in_fraction : -static_cast<int>(in_fraction);
  }
  if (at < text.size()) {
    const int64_t written = std::strtoll(text.data() + at + 1, nullptr, 10);
    exponent += std::clamp<int64_t>(written, -100'000, 100'000);
  }
  auto value = static_cast<double>(digits);
  for (; exponent < -308 && value != 0; exponent += 308) value /= 1e308;
  static const std::vector<double> powers = [] {
    std::vector<double> list;
    for (int n = 0; n <= 308; ++n) list.push_back(std::strtod(StrCat("1e", n).c_str(), nullptr));
    return list;
  }();
  const double power = powers[std::min<size_t>(std::abs(exponent), 308)];
  value = exponent < 0 ? value / power : value * power;
  return negative ? -value : value;
}

class DocumentHandler : public nlohmann::json_sax<Json> {
 public:
  explicit DocumentHandler(size_t file_bytes) {
    document_.arena.reserve(file_bytes / 2);
    document_.rest = std::make_unique<Json>();
  }

  bool null() override { return Scalar(nullptr); }
  bool boolean(bool value) override { return Scalar(value); }
  bool number_integer(number_integer_t value) override {
    return section_ == Section::kScorePair ? Score(static_cast<double>(value)) : Scalar(value);
  }
  bool number_float(number_float_t value, const string_t& digits) override {
    return section_ == Section::kScorePair ? Score(ReferenceFloat(digits)) : Scalar(value);
  }
  bool binary(binary_t&) override { return Fail("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (section_ == Section::kScorePair) return Score(static_cast<double>(value));
    if (section_ != Section::kVocab) return Scalar(value);
    if (value >= kMaxTokenId) {
      return Fail(
          StrCat("model.vocab['", ShowText(key_), "']: id ", value, " is not below ", kMaxTokenId));
    }
    document_.vocab.push_back({Store(key_), static_cast<uint32_t>(value)});
    return true;
  }

  bool string(string_t& value) override {
    if (section_ == Section::kMerges) return LegacyMerge(value);
    if (section_ == Section::kScorePair && pair_size_ == 0) {
      pair_[pair_size_++] = Store(value);
      return true;
    }
    if (section_ != Section::kMergePair) return Scalar(std::move(value));
    if (pair_size_ == 2)
      return Fail(StrCat("model.merges[", document_.merges.size(), "]: more than two tokens"));
    pair_[pair_size_++] = Store(value);
    return true;
  }

  bool start_object(size_t) override {
    if (section_ == Section::kMerges || section_ == Section::kMergePair)
      return Fail("model.merges: an object inside");
    if (section_ != Section::kTree) return Fail("model.vocab: an object inside");
    if (AtModelMember("vocab")) {
      section_ = Section::kVocab;
      document_.has_vocab = true;
      return true;
    }
    return Open(Json::object());
  }

  bool start_array(size_t) override {
    if (section_ == Section::kMerges) {
      section_ = Section::kMergePair;
      pair_size_ = 0;
      return true;
    }
    if (section_ == Section::kScores) {
      section_ = Section::kScorePair;
      pair_size_ = 0;
      return true;
    }
    if (section_ != Section::kTree) return Fail("model.vocab or model.merges: an array inside");
    if (AtModelMember("vocab")) {
      section_ = Section::kScores;
      document_.has_scores = true;
      return true;
    }
    if (AtModelMember("merges")) {
      section_ = Section::kMerges;
      document_.has_merges = true;
      return true;
    }
    return Open(Json::array());
  }

  bool key(string_t& name) override {
    key_ = std::move(name);
    return true;
  }

  bool end_object() override {
    if (section_ == Section::kVocab) {
      section_ = Section::kTree;
    } else {
      stack_.pop_back();
    }
    return true;
  }

  bool end_array() override {
    if (section_ == Section::kMergePair) {
      if (pair_size_ != 2)
        return Fail(StrCat("model.merges[", document_.merges.size(), "]: fewer than two tokens"));
      document_.merges.push_back({pair_[0], pair_[1]});
      section_ = Section::kMerges;
    } else if (section_ == Section::kScorePair) {
      if (pair_size_ != 2) return FailPair("[token, score]");
      section_ = Section::kScores;
    } else if (section_ == Section::kMerges || section_ == Section::kScores) {
      section_ = Section::kTree;
    } else {
      stack_.pop_back();
    }
    return true;
  }

  bool parse_error(size_t position, const std::string&, const Json::exception&) override {
    return Fail(StrCat("not valid JSON at byte ", position));
  }

  Result<TokenizerDocument> Take(bool parsed) {
    if (!parsed) return InvalidArgError(error_.empty() ? "not valid JSON" : error_);
    return std::move(document_);
  }

 private:
  enum class Section { kTree, kVocab, kMerges, kMergePair, kScores, kScorePair };

  bool Fail(std::string what) {
    if (error_.empty()) error_ = std::move(what);
    return false;
  }

  bool FailPair(const char* expected) {
    return Fail(StrCat("model.vocab[", document_.scores.size(), "]: expected ", expected));
  }

  bool Score(double score) {
    if (pair_size_ != 1) return FailPair("[token, score]");
    if (document_.scores.size() == kMaxTokenId) {
      return Fail(StrCat("model.vocab: more than ", kMaxTokenId, " tokens"));
    }
    document_.scores.push_back({pair_[0], score});
    ++pair_size_;
    return true;
  }

  TokenizerDocument::Text Store(std::string_view text) {
    const auto offset = static_cast<uint32_t>(document_.arena.size());
    document_.arena.append(text);
    return {offset, static_cast<uint32_t>(text.size())};
  }

  // The format of older files: both tokens in one string, separated by one space. A line that
  // begins with "#version" is not a rule.
  bool LegacyMerge(const std::string& line) {
    if (line.rfind("#version", 0) == 0) return true;
    const size_t space = line.find(' ');
    if (space == line.npos || line.find(' ', space + 1) != line.npos) {
      return Fail(StrCat("model.merges[", document_.merges.size(),
                         "]: expected two tokens and one space, got '", line, "'"));
    }
    const TokenizerDocument::Text text = Store(line);
    const auto left = static_cast<uint32_t>(space);
    document_.merges.push_back(
        {{text.offset, left}, {text.offset + left + 1, text.size - left - 1}});
    return true;
  }

  // Whether the next value is the member `name` of the root's member "model".
  bool AtModelMember(const char* name) const {
    return stack_.size() == 2 && stack_[1] == model_ && key_ == name;
  }

  // Inserts `value` into the tree and returns its address.
  Json* Put(Json value) {
    ++num_values_;
    if (stack_.empty()) {
      *document_.rest = std::move(value);
      return document_.rest.get();
    }
    Json& parent = *stack_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    Json& member = parent[key_];
    member = std::move(value);
    return &member;
  }

  bool Scalar(Json value) {
    if (section_ == Section::kScores || section_ == Section::kScorePair)
      return FailPair("[token, score]");
    if (section_ != Section::kTree) {
      return Fail(StrCat("model.", section_ == Section::kVocab ? "vocab" : "merges",
                         ": unexpected ", value.type_name(),
                         section_ == Section::kVocab ? StrCat(" for '", ShowText(key_), "'") : ""));
    }
    Put(std::move(value));
    return CheckCount();
  }

  // The tree takes much more memory than its text.
  bool CheckCount() {
    constexpr size_t kMaxValues = JsonLimits().max_values;
    if (num_values_ <= kMaxValues) return true;
    return Fail(StrCat("more than ", kMaxValues, " values beside model.vocab and model.merges"));
  }

  bool Open(Json container) {
    if (stack_.size() == kMaxDepth) return Fail(StrCat("nested deeper than ", kMaxDepth));
    const bool is_model = stack_.size() == 1 && stack_[0]->is_object() && key_ == "model";
    stack_.push_back(Put(std::move(container)));
    if (is_model) model_ = stack_.back();
    return CheckCount();
  }

  TokenizerDocument document_;
  std::vector<Json*>
      stack_;  // open containers; a parent's address is stable while its children are open
  const Json* model_ = nullptr;
  size_t num_values_ = 0;  // of the tree
  std::string key_;
  Section section_ = Section::kTree;
  TokenizerDocument::Text pair_[2];
  int pair_size_ = 0;
  std::string error_;
};

}  // namespace

Result<TokenizerDocument> ParseTokenizerDocument(std::string_view json) {
  if (json.size() >= UINT32_MAX) return InvalidArgError("larger than 4 GiB");
  DocumentHandler handler(json.size());
  const bool parsed = Json::sax_parse(json.begin(), json.end(), &handler);
  return handler.Take(parsed);
}

}  // namespace nereid::tokenizer
