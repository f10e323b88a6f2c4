// See tokenizer_document.h. Events of the JSON parser are handled without recursion; nesting and
// sizes are bounded, so that a hostile file costs no more than its bytes.
#include "backends/tokenizer/lib/load/tokenizer_document.h"

#include <algorithm>
#include <cstdlib>

#include "backends/tokenizer/lib/reading/json_fields.h"
#include "backends/tokenizer/lib/vocabulary/token_table.h"

namespace nereid::tokenizer {
namespace {

constexpr size_t kMaxDepth = 64;

// A number as the reference's JSON parser reads it, which may be a bit off the nearest double:
// scores that nearly tie are told apart by it.
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
    return place_ == Place::kScorePair ? Score(static_cast<double>(value)) : Scalar(value);
  }
  bool number_float(number_float_t value, const string_t& digits) override {
    return place_ == Place::kScorePair ? Score(ReferenceFloat(digits)) : Scalar(value);
  }
  bool binary(binary_t&) override { return Fail("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::kScorePair) return Score(static_cast<double>(value));
    if (place_ != Place::kVocab) return Scalar(value);
    if (value >= kMaxTokenId) {
      return Fail(StrCat("model.vocab['", key_, "']: id ", value, " is not below ", kMaxTokenId));
    }
    document_.vocab.push_back({Store(key_), static_cast<uint32_t>(value)});
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::kMerges) return LegacyMerge(value);
    if (place_ == Place::kScorePair && pair_size_ == 0) {
      pair_[pair_size_++] = Store(value);
      return true;
    }
    if (place_ != Place::kMergePair) return Scalar(std::move(value));
    if (pair_size_ == 2)
      return Fail(StrCat("model.merges[", document_.merges.size(), "]: more than two tokens"));
    pair_[pair_size_++] = Store(value);
    return true;
  }

  bool start_object(size_t) override {
    if (place_ == Place::kMerges || place_ == Place::kMergePair)
      return Fail("model.merges: an object inside");
    if (place_ != Place::kTree) return Fail("model.vocab: an object inside");
    if (AtModelMember("vocab")) {
      place_ = Place::kVocab;
      document_.has_vocab = true;
      return true;
    }
    return Open(Json::object());
  }

  bool start_array(size_t) override {
    if (place_ == Place::kMerges) {
      place_ = Place::kMergePair;
      pair_size_ = 0;
      return true;
    }
    if (place_ == Place::kScores) {
      place_ = Place::kScorePair;
      pair_size_ = 0;
      return true;
    }
    if (place_ != Place::kTree) return Fail("model.vocab or model.merges: an array inside");
    if (AtModelMember("vocab")) {
      place_ = Place::kScores;
      document_.has_scores = true;
      return true;
    }
    if (AtModelMember("merges")) {
      place_ = Place::kMerges;
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
    if (place_ == Place::kVocab) {
      place_ = Place::kTree;
    } else {
      stack_.pop_back();
    }
    return true;
  }

  bool end_array() override {
    if (place_ == Place::kMergePair) {
      if (pair_size_ != 2)
        return Fail(StrCat("model.merges[", document_.merges.size(), "]: fewer than two tokens"));
      document_.merges.push_back({pair_[0], pair_[1]});
      place_ = Place::kMerges;
    } else if (place_ == Place::kScorePair) {
      if (pair_size_ != 2) return FailPair("[token, score]");
      place_ = Place::kScores;
    } else if (place_ == Place::kMerges || place_ == Place::kScores) {
      place_ = Place::kTree;
    } else {
      stack_.pop_back();
    }
    return true;
  }

  bool parse_error(size_t position, const std::string&, const Json::exception& error) override {
    return Fail(StrCat("not valid JSON at byte ", position, ": ", error.what()));
  }

  Result<TokenizerDocument> Take(bool parsed) {
    if (!parsed) return InvalidArgError(fault_.empty() ? "not valid JSON" : fault_);
    return std::move(document_);
  }

 private:
  enum class Place { kTree, kVocab, kMerges, kMergePair, kScores, kScorePair };

  bool Fail(std::string what) {
    if (fault_.empty()) fault_ = std::move(what);
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

  // The form of older files: both tokens in one string, one space between. A line that begins with
  // "#version" is no rule.
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

  // Whether the coming value is the member `name` of the root's member "model".
  bool AtModelMember(const char* name) const {
    return stack_.size() == 2 && stack_[1] == model_ && key_ == name;
  }

  // Places `value` into the tree.
  Json* Put(Json value) {
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
    if (place_ == Place::kScores || place_ == Place::kScorePair) return FailPair("[token, score]");
    if (place_ != Place::kTree) {
      return Fail(StrCat("model.", place_ == Place::kVocab ? "vocab" : "merges", ": unexpected ",
                         value.type_name(),
                         place_ == Place::kVocab ? StrCat(" for '", key_, "'") : ""));
    }
    Put(std::move(value));
    return true;
  }

  bool Open(Json container) {
    if (stack_.size() == kMaxDepth) return Fail(StrCat("nested deeper than ", kMaxDepth));
    const bool is_model = stack_.size() == 1 && stack_[0]->is_object() && key_ == "model";
    stack_.push_back(Put(std::move(container)));
    if (is_model) model_ = stack_.back();
    return true;
  }

  TokenizerDocument document_;
  std::vector<Json*>
      stack_;  // open containers of the tree; parents stay put while children are open
  const Json* model_ = nullptr;
  std::string key_;
  Place place_ = Place::kTree;
  TokenizerDocument::Text pair_[2];
  int pair_size_ = 0;
  std::string fault_;
};

}  // namespace

Result<TokenizerDocument> ParseTokenizerDocument(std::string_view json) {
  if (json.size() >= UINT32_MAX) return InvalidArgError("larger than 4 GiB");
  DocumentHandler handler(json.size());
  const bool parsed = Json::sax_parse(json.begin(), json.end(), &handler);
  return handler.Take(parsed);
}

}  // namespace nereid::tokenizer
