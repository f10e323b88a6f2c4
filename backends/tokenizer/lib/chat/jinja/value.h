// Values of the template language, with Python's semantics as far as templates can observe them.
// Texts, lists and dictionaries are immutable and shared; only namespaces change. [one thread at a
// time]
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "backends/tokenizer/lib/text/marked_text.h"
#include "nereid/status.h"

namespace nereid::tokenizer::jinja {

class Dict;
class List;
class Object;

enum class Kind { kUndefined, kNone, kBool, kInt, kFloat, kText, kList, kDict, kObject };

class Value {
 public:
  // A value that does not exist. `message` says so when an operation needs it, such as "'x' is
  // undefined".
  static Value Undefined(std::string message);

  Value() : rep_(nullptr) {}  // None
  explicit Value(bool value) : rep_(value) {}
  explicit Value(int64_t value) : rep_(value) {}
  explicit Value(double value) : rep_(value) {}
  explicit Value(MarkedText text, bool is_markup = false);
  explicit Value(std::string text) : Value(MarkedText(std::move(text))) {}
  explicit Value(const char* text) : Value(std::string(text)) {}
  explicit Value(List list);
  explicit Value(Dict dict);
  explicit Value(std::shared_ptr<Object> object) : rep_(std::move(object)) {}

  Kind kind() const { return static_cast<Kind>(rep_.index()); }
  bool is_undefined() const { return kind() == Kind::kUndefined; }
  bool is_none() const { return kind() == Kind::kNone; }
  bool is_bool() const { return kind() == Kind::kBool; }
  bool is_text() const { return kind() == Kind::kText; }
  bool is_list() const { return kind() == Kind::kList; }
  bool is_dict() const { return kind() == Kind::kDict; }
  bool is_object() const { return kind() == Kind::kObject; }
  // As in Python, a bool counts as the integer 0 or 1.
  bool is_integer() const { return kind() == Kind::kInt || is_bool(); }
  bool is_number() const { return is_integer() || kind() == Kind::kFloat; }

  // Each requires the kind that its name says.
  const std::string& undefined_message() const { return std::get<0>(rep_)->message; }
  bool AsBool() const { return std::get<2>(rep_); }
  int64_t AsInteger() const { return is_bool() ? AsBool() : std::get<3>(rep_); }
  double AsDouble() const;
  const MarkedText& AsText() const { return std::get<5>(rep_)->text; }
  // Text that operators combine with other text only after escaping that for HTML.
  bool is_markup() const { return is_text() && std::get<5>(rep_)->is_markup; }
  const List& AsList() const { return *std::get<6>(rep_); }
  const Dict& AsDict() const { return *std::get<7>(rep_); }
  Object& AsObject() const { return *std::get<8>(rep_); }
  const std::shared_ptr<Object>& object() const { return std::get<8>(rep_); }

  // The largest number of nested lists and dictionaries, this one included; 0 for others.
  int depth() const;
  // Python's name of the type, such as "str".
  std::string TypeName() const;

 private:
  struct UndefinedRep {
    std::string message;
  };
  struct TextRep {
    MarkedText text;
    bool is_markup;
  };
  // In the order of Kind.
  std::variant<std::shared_ptr<const UndefinedRep>, std::nullptr_t, bool, int64_t, double,
               std::shared_ptr<const TextRep>, std::shared_ptr<const List>,
               std::shared_ptr<const Dict>, std::shared_ptr<Object>>
      rep_;
};

// What Python distinguishes among sequences: a tuple prints with parentheses; an iterator, which
// filters such as `map` return, has no length and no elements by index.
enum class ListForm { kList, kTuple, kIterator };

class List {
 public:
  List() = default;
  explicit List(std::vector<Value> items, ListForm form = ListForm::kList);

  const std::vector<Value>& items() const { return items_; }
  size_t size() const { return items_.size(); }
  ListForm form() const { return form_; }
  int depth() const { return depth_; }

 private:
  std::vector<Value> items_;
  ListForm form_ = ListForm::kList;
  int depth_ = 1;
};

// Keeps the order of insertion, as Python's dict does.
class Dict {
 public:
  // Null if there is no such key. `key` must be hashable (IsHashable).
  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;
  void Set(Value key, Value value);

  const std::vector<std::pair<Value, Value>>& items() const { return items_; }
  size_t size() const { return items_.size(); }
  int depth() const { return depth_; }

 private:
  std::optional<size_t> IndexOf(const Value& key) const;

  std::vector<std::pair<Value, Value>> items_;
  std::unordered_map<std::string, size_t> index_of_text_;
  std::vector<size_t> other_keys_;  // positions of keys that are not texts
  int depth_ = 1;
};

// Arguments of a call.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

class Interpreter;

// A value with behavior of its own: a function, a macro, a namespace, the variable `loop`.
class Object {
 public:
  virtual ~Object() = default;
  // Python's name of the type.
  virtual std::string TypeName() const = 0;
  // Nothing if there is no such attribute.
  virtual std::optional<Value> Attribute(std::string_view name) { return std::nullopt; }
  virtual bool is_callable() const { return false; }
  virtual Result<Value> Call(Interpreter& interpreter, Arguments arguments);
  // Its length and elements, where it has them.
  virtual std::optional<std::vector<Value>> Elements() { return std::nullopt; }
  virtual std::string Repr() const { return "<" + TypeName() + ">"; }
};

// Whether the value may be a key of a dictionary.
bool IsHashable(const Value& value);
// Python's ==.
bool IsEqual(const Value& a, const Value& b);
// Python's bool().
bool IsTrue(const Value& value);
// Python's <. INVALID_ARG if the types have no order.
Result<bool> IsLess(const Value& a, const Value& b);

// Python's str() and repr(). Undefined is empty.
MarkedText ToText(const Value& value);
void AppendRepr(const Value& value, MarkedText& out);
std::string FloatRepr(double value);

// The JSON text of Python's json.dumps with these settings. `indent` < 0: on one line. INVALID_ARG
// if the value contains something that JSON has no form for.
struct JsonStyle {
  int indent = -1;
  bool sort_keys = false;
  bool ensure_ascii = false;
  std::string item_separator = ", ", key_separator = ": ";
};
Result<MarkedText> ToJson(const Value& value, const JsonStyle& style);

// Converts JSON. Every text in it, keys too, is marked as a client's if `is_input`. INVALID_ARG if
// it is nested deeper than kMaxValueDepth or an integer exceeds 64 bits.
Result<Value> FromJson(const nlohmann::ordered_json& json, bool is_input);

// Lists and dictionaries may be nested at most this deep, because functions over them recurse.
inline constexpr int kMaxValueDepth = 128;

}  // namespace nereid::tokenizer::jinja
