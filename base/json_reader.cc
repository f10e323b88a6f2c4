// See json_reader.h.
#include "base/json_reader.h"

#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

namespace nereid {
namespace {

constexpr size_t kMaxShownName = 60;
constexpr size_t kMaxShownBytes = 60;
constexpr size_t kMaxShownDepth = 8;

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

// Builds a tree from the events of nlohmann's parser. The library's own builder searches the
// members of an ordered object for each new one, so it needs quadratic time.
template <typename Json>
class JsonTreeBuilder {
 public:
  bool null() { return Put(nullptr) != nullptr; }
  bool boolean(bool value) { return Put(value) != nullptr; }
  bool number_integer(typename Json::number_integer_t value) { return Put(value) != nullptr; }
  bool number_unsigned(typename Json::number_unsigned_t value) { return Put(value) != nullptr; }
  bool number_float(typename Json::number_float_t value, const std::string&) {
    return Put(value) != nullptr;
  }
  bool string(std::string& value) { return Put(std::move(value)) != nullptr; }
  bool binary(typename Json::binary_t&) { return false; }  // JSON has none
  bool start_object(size_t) { return Open(Json::object()); }
  bool start_array(size_t) { return Open(Json::array()); }
  bool end_object() { return Close(); }
  bool end_array() { return Close(); }
  bool key(std::string& name) {
    key_ = std::move(name);
    return true;
  }
  template <typename Exception>
  bool parse_error(size_t byte, const std::string&, const Exception&) {
    error_byte_ = byte;
    return false;
  }

  Json& root() { return root_; }
  size_t error_byte() const { return error_byte_; }

 private:
  // An array or object that is not closed. It does not move while it is open, because only the
  // innermost one grows.
  struct Container {
    Json* json;
    std::unordered_map<std::string, size_t> members;  // name to index, of a large ordered object
  };

  template <typename Value>
  Json* Put(Value&& value) {
    if (open_.empty()) {
      root_ = std::forward<Value>(value);
      return &root_;
    }
    Container& container = open_.back();
    if (container.json->is_array()) {
      auto& elements = container.json->template get_ref<typename Json::array_t&>();
      return &elements.emplace_back(std::forward<Value>(value));
    }
    Json& member = Member(container);
    member = std::forward<Value>(value);
    return &member;
  }

  // The member `key_`, new or not: the last value of a repeated name counts.
  Json& Member(Container& container) {
    auto& object = container.json->template get_ref<typename Json::object_t&>();
    if constexpr (requires { object.emplace_back(key_, nullptr); }) {
      constexpr size_t kMaxSearched = 16;
      if (object.size() < kMaxSearched) return object[key_];
      if (container.members.empty()) {
        for (const auto& member : object) {
          container.members.emplace(member.first, container.members.size());
        }
      }
      const auto [it, is_new] = container.members.try_emplace(key_, object.size());
      if (is_new) object.emplace_back(key_, nullptr);
      return (object.begin() + static_cast<ptrdiff_t>(it->second))->second;
    } else {
      return object[key_];
    }
  }

  bool Open(Json&& container) {
    open_.push_back({Put(std::move(container)), {}});
    return true;
  }
  bool Close() {
    open_.pop_back();
    return true;
  }

  Json root_;
  std::vector<Container> open_;
  std::string key_;
  size_t error_byte_ = 0;
};

Status WithName(Status status, std::string_view name) {
  return name.empty() ? std::move(status) : std::move(status).WithContext(name);
}

Status JsonSyntaxError(std::string_view text, size_t byte, std::string_view name) {
  // A number that no double can hold has no position.
  if (byte == 0) return WithName(InvalidArgError("not valid JSON: a number is too large"), name);
  return WithName(
      InvalidArgError("line ", LineOfByte(text, byte - 1), ": not valid JSON at byte ", byte),
      name);
}

std::string CutOff(std::string_view text, size_t max_bytes) {
  constexpr std::string_view kDots = "...";
  if (text.size() <= max_bytes) return std::string(text);
  size_t end = max_bytes - kDots.size();
  // Not inside a character of several bytes.
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return std::string(text.substr(0, end)).append(kDots);
}

template <typename Json>
std::string ShowString(const std::string& value) {
  // More than what is shown, but not all of a string of megabytes.
  const Json beginning = value.substr(0, 2 * kMaxShownBytes);
  return beginning.dump(-1, ' ', false, Json::error_handler_t::replace);
}

template <typename Json>
void AppendShown(const Json& json, size_t depth, std::string* text) {
  if (text->size() > kMaxShownBytes) return;
  if (json.is_structured() && depth == kMaxShownDepth) {
    text->append("...");
  } else if (json.is_array()) {
    for (size_t i = 0; i < json.size() && text->size() <= kMaxShownBytes; ++i) {
      text->push_back(i == 0 ? '[' : ',');
      AppendShown(json[i], depth + 1, text);
    }
    text->append(json.empty() ? "[]" : "]");
  } else if (json.is_object()) {
    char separator = '{';
    for (auto it = json.begin(); it != json.end() && text->size() <= kMaxShownBytes; ++it) {
      text->push_back(std::exchange(separator, ','));
      text->append(ShowString<Json>(it.key())).push_back(':');
      AppendShown(it.value(), depth + 1, text);
    }
    text->append(json.empty() ? "{}" : "}");
  } else if (json.is_string()) {
    text->append(ShowString<Json>(json.template get_ref<const std::string&>()));
  } else {
    text->append(json.dump());
  }
}

}  // namespace

Status CheckJsonLimits(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return InvalidArgError("expected at most ", limits.max_bytes, " bytes, got ", text.size());
  }
  return Scanner(text, limits).Check();
}

Status CheckJson(std::string_view text, std::string_view name, const JsonLimits& limits) {
  NEREID_RETURN_IF_ERROR(WithName(CheckJsonLimits(text, limits), name));
  if (nlohmann::json::accept(text)) return Status::Ok();
  return WithName(InvalidArgError(text.size(), " bytes are not valid JSON"), name);
}

size_t LineOfByte(std::string_view text, size_t byte) {
  const std::string_view before = text.substr(0, std::min(byte, text.size()));
  return 1 + static_cast<size_t>(std::count(before.begin(), before.end(), '\n'));
}

std::string ShowText(std::string_view text) {
  constexpr size_t kMaxBytes = 200;
  return CutOff(text, kMaxBytes);
}

template <typename Json>
Result<Json> ReadJson(std::string_view text, std::string_view name, const JsonLimits& limits) {
  NEREID_RETURN_IF_ERROR(WithName(CheckJsonLimits(text, limits), name));
  JsonTreeBuilder<Json> builder;
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) {
    return JsonSyntaxError(text, builder.error_byte(), name);
  }
  return std::move(builder.root());
}

template <typename Json>
Result<Json> ReadJsonObject(std::string_view text, std::string_view name,
                            const JsonLimits& limits) {
  NEREID_ASSIGN_OR_RETURN(Json json, ReadJson<Json>(text, name, limits));
  if (json.is_object()) return json;
  return WithName(InvalidArgError("not a JSON object, but of type ", json.type_name()), name);
}

template <typename Json>
Result<Json> ReadJsonObject(std::string_view text, std::string_view name, const JsonLimits& limits,
                            const typename Json::parser_callback_t& callback) {
  NEREID_RETURN_IF_ERROR(WithName(CheckJsonLimits(text, limits), name));
  Json json;
  try {
    json = Json::parse(text.begin(), text.end(), callback);
  } catch (const typename Json::parse_error& error) {
    return JsonSyntaxError(text, error.byte, name);
  } catch (const typename Json::exception&) {  // a number that is too large
    return JsonSyntaxError(text, 0, name);
  }
  if (json.is_object()) return json;
  return WithName(InvalidArgError("not a JSON object, but of type ", json.type_name()), name);
}

template <typename Json>
std::string ShowJson(const Json& json) {
  std::string text;
  AppendShown(json, 0, &text);
  return CutOff(text, kMaxShownBytes);
}

#define NEREID_JSON_TYPE(Json)                                                                   \
  template Result<Json> ReadJson<Json>(std::string_view, std::string_view, const JsonLimits&);   \
  template Result<Json> ReadJsonObject<Json>(std::string_view, std::string_view,                 \
                                             const JsonLimits&);                                 \
  template Result<Json> ReadJsonObject<Json>(std::string_view, std::string_view,                 \
                                             const JsonLimits&, const Json::parser_callback_t&); \
  template std::string ShowJson<Json>(const Json&)
NEREID_JSON_TYPE(nlohmann::json);
NEREID_JSON_TYPE(nlohmann::ordered_json);
#undef NEREID_JSON_TYPE

}  // namespace nereid

template class nlohmann::basic_json<>;
template class nlohmann::basic_json<nlohmann::ordered_map>;
