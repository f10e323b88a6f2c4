#include "host/core/config/key_index.h"

#include <cctype>
#include <map>

#include "nereid/status.h"

namespace nereid::core::config {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

constexpr int kMaxDepth = 32;  // larger than the depth of the schema

bool IsNameChar(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}

// Scans the structure of the text by recursive descent: fields, values, nested messages and lists.
class Scanner {
 public:
  Scanner(std::string_view text, KeyIndex* index) : text_(text), index_(index) {}

  void Fields(const Descriptor* type, const std::string& parent, int depth) {
    std::map<std::string, int> counts;
    while (depth < kMaxDepth) {
      SkipSpace();
      if (AtEnd() || Peek() == '}' || Peek() == '>') return;
      if (!IsNameChar(Peek())) {
        Advance();
        continue;
      }
      Field(type, parent, &counts, depth);
    }
    offset_ = text_.size();
  }

 private:
  void Field(const Descriptor* type, const std::string& parent, std::map<std::string, int>* counts,
             int depth) {
    const int line = line_, column = column_;
    const std::string name = Name();
    const FieldDescriptor* field = type == nullptr ? nullptr : type->FindFieldByName(name);
    const bool repeated = field != nullptr && field->is_repeated();
    const Descriptor* nested = field == nullptr ? nullptr : field->message_type();
    const std::string path = parent.empty() ? name : StrCat(parent, ".", name);
    int& count = (*counts)[name];
    SkipSpace();
    if (!AtEnd() && Peek() == ':') Advance();
    SkipSpace();
    const bool list = !AtEnd() && Peek() == '[';
    if (list && (nested == nullptr || !repeated)) {  // a list of scalars is one field
      Record(path, line, column);
      List(nested, path, nullptr, depth);
    } else if (list) {
      List(nested, path, &count, depth);
    } else {
      const std::string own =
          repeated && nested != nullptr ? StrCat(path, "[", count++, "]") : path;
      Record(own, line, column);
      Value(nested, own, depth);
    }
  }

  // `count`: the next index of a repeated message field; null for scalars.
  void List(const Descriptor* nested, const std::string& path, int* count, int depth) {
    Advance();
    while (true) {
      SkipSpace();
      if (AtEnd()) return;
      if (Peek() == ']') return Advance();
      if (Peek() == ',') {
        Advance();
        continue;
      }
      std::string own = path;
      if (count != nullptr) {
        own = StrCat(path, "[", (*count)++, "]");
        Record(own, line_, column_);
      }
      Value(nested, own, depth);
    }
  }

  void Value(const Descriptor* nested, const std::string& path, int depth) {
    SkipSpace();
    if (AtEnd()) return;
    const char c = Peek();
    if (c == '{' || c == '<') {
      Advance();
      Fields(nested, path, depth + 1);
      if (!AtEnd()) Advance();
    } else if (c == '"' || c == '\'') {
      String();
    } else if (c == '$') {
      TakePlaceholder(path);
    } else {
      Advance();
      while (!AtEnd() && (IsNameChar(Peek()) || Peek() == '.' || Peek() == '+' || Peek() == '-')) {
        Advance();
      }
    }
  }

  void TakePlaceholder(const std::string& path) {
    const KeyPosition position{path, line_, column_};
    std::string name;
    while (!AtEnd() && (IsNameChar(Peek()) || Peek() == '$' || Peek() == '{' || Peek() == '}')) {
      const char c = Peek();
      name += c;
      Advance();
      if (c == '}') break;
    }
    index_->placeholders.push_back({std::move(name), position});
  }

  void String() {
    const char quote = Peek();
    Advance();
    while (!AtEnd() && Peek() != quote && Peek() != '\n') {
      if (Peek() == '\\') Advance();
      if (!AtEnd()) Advance();
    }
    if (!AtEnd()) Advance();
  }

  std::string Name() {
    std::string name;
    while (!AtEnd() && IsNameChar(Peek())) {
      name += Peek();
      Advance();
    }
    return name;
  }

  void SkipSpace() {
    while (!AtEnd()) {
      if (Peek() == '#') {
        while (!AtEnd() && Peek() != '\n') Advance();
      } else if (std::isspace(static_cast<unsigned char>(Peek()))) {
        Advance();
      } else {
        return;
      }
    }
  }

  void Record(const std::string& path, int line, int column) {
    index_->keys.push_back({path, line, column});
  }

  bool AtEnd() const { return offset_ >= text_.size(); }
  char Peek() const { return text_[offset_]; }
  void Advance() {
    if (text_[offset_++] == '\n') {
      ++line_;
      column_ = 1;
    } else {
      ++column_;
    }
  }

  const std::string_view text_;
  KeyIndex* const index_;
  size_t offset_ = 0;
  int line_ = 1;
  int column_ = 1;
};

}  // namespace

const KeyPosition* KeyIndex::Before(int line, int column, std::string_view name) const {
  const KeyPosition* last = nullptr;
  const auto is_named = [name](std::string_view path) {
    return name.empty() || path.substr(path.rfind('.') + 1) == name;
  };
  for (const KeyPosition& key : keys) {
    if (key.line > line || (key.line == line && key.column > column)) break;
    if (is_named(key.path)) last = &key;
  }
  return last;
}

const KeyPosition* KeyIndex::Nearest(std::string_view path) const {
  while (!path.empty()) {
    for (const KeyPosition& key : keys) {
      if (key.path == path) return &key;
    }
    const size_t cut = path.find_last_of(".[");
    if (cut == std::string_view::npos) return nullptr;
    path = path.substr(0, cut);
  }
  return nullptr;
}

KeyIndex IndexKeys(std::string_view text, const Descriptor& type) {
  KeyIndex index;
  Scanner(text, &index).Fields(&type, "", 0);
  return index;
}

}  // namespace nereid::core::config
