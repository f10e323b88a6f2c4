// See json_reader.h.
#include "base/json_reader.h"

namespace nereid {
namespace {

constexpr size_t kMaxShownName = 60;

// Counts levels and values of a text.
class Scanner {
 public:
  Scanner(std::string_view text, const JsonLimits& limits) : text_(text), limits_(limits) {}

  Status Check() {
    for (size_t at = 0; at < text_.size(); ++at) {
      switch (text_[at]) {
        case '"':
          at = EndOfString(at);
          break;
        case '[':
        case '{':
          ++num_values_;
          if (++depth_ > limits_.max_depth && deepest_ <= limits_.max_depth) too_deep_at_ = at;
          deepest_ = std::max(deepest_, depth_);
          break;
        case ']':
        case '}':
          if (depth_ > 0) --depth_;
          break;
        case ',':
          ++num_values_;
          break;
        default:
          break;
      }
    }
    if (deepest_ > limits_.max_depth) {
      return InvalidArgError("line ", LineOfByte(text_, too_deep_at_), ": ", Field(), "nested ",
                             deepest_, " levels deep, limit ", limits_.max_depth);
    }
    if (num_values_ <= limits_.max_values) return Status::Ok();
    return InvalidArgError("about ", num_values_, " values, limit ", limits_.max_values);
  }

 private:
  // The index of the closing quote; `at` is that of the opening one.
  size_t EndOfString(size_t at) {
    const size_t begin = at + 1;
    while (true) {
      at = text_.find_first_of("\"\\", at + 1);
      if (at == std::string_view::npos) return text_.size();
      if (text_[at] == '"') break;
      ++at;  // an escaped character
      if (at >= text_.size()) return text_.size();
    }
    if (depth_ == 1 && deepest_ <= limits_.max_depth) name_ = text_.substr(begin, at - begin);
    return at;
  }

  // The outermost field that contains the value that is too deep.
  std::string Field() const {
    if (name_.empty()) return {};
    std::string shown(name_.substr(0, kMaxShownName));
    for (char& c : shown) {
      if (c < ' ' || c > '~') c = '?';
    }
    return StrCat("'", shown, "' is ");
  }

  const std::string_view text_;
  const JsonLimits& limits_;
  size_t depth_ = 0;
  size_t deepest_ = 0;
  size_t num_values_ = 0;
  size_t too_deep_at_ = 0;
  std::string_view name_;  // the last string of the outermost object before too_deep_at_
};

}  // namespace

Status CheckJsonLimits(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return InvalidArgError("expected at most ", limits.max_bytes, " bytes, got ", text.size());
  }
  return Scanner(text, limits).Check();
}

Status CheckJson(std::string_view text, std::string_view name, const JsonLimits& limits) {
  NEREID_RETURN_IF_ERROR(internal::WithName(CheckJsonLimits(text, limits), name));
  if (nlohmann::json::accept(text)) return Status::Ok();
  return internal::WithName(InvalidArgError(text.size(), " bytes are not valid JSON"), name);
}

size_t LineOfByte(std::string_view text, size_t byte) {
  const std::string_view before = text.substr(0, std::min(byte, text.size()));
  return 1 + static_cast<size_t>(std::count(before.begin(), before.end(), '\n'));
}

std::string ShowText(std::string_view text) {
  constexpr size_t kMaxBytes = 200;
  return internal::CutOff(text, kMaxBytes);
}

namespace internal {

std::string CutOff(std::string_view text, size_t max_bytes) {
  constexpr std::string_view kDots = "...";
  if (text.size() <= max_bytes) return std::string(text);
  size_t end = max_bytes - kDots.size();
  // Not inside a character of several bytes.
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return std::string(text.substr(0, end)).append(kDots);
}

Status JsonSyntaxError(std::string_view text, size_t byte, std::string_view name) {
  // A number that no double can hold has no position.
  if (byte == 0) return WithName(InvalidArgError("not valid JSON: a number is too large"), name);
  return WithName(
      InvalidArgError("line ", LineOfByte(text, byte - 1), ": not valid JSON at byte ", byte),
      name);
}

Status WithName(Status status, std::string_view name) {
  return name.empty() ? std::move(status) : std::move(status).WithContext(name);
}

}  // namespace internal
}  // namespace nereid
