// A small JSON value: what a backend needs to read its model's configuration and to hand a changed
// one back, without a library that every author would have to share. Objects keep their order.
// [any thread; one object, one thread]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nereid/status.h"

namespace nereid {
inline namespace sdk {

class Json {
 public:
  enum class Kind : uint8_t { kNull, kBool, kNumber, kString, kArray, kObject };
  using Member = std::pair<std::string, Json>;

  Json() = default;
  Json(bool value) : kind_(Kind::kBool), text_(value ? "true" : "false") {}    // NOLINT
  Json(int64_t value) : kind_(Kind::kNumber), text_(std::to_string(value)) {}  // NOLINT
  Json(std::string value) : kind_(Kind::kString), text_(std::move(value)) {}   // NOLINT
  Json(const char* value) : Json(std::string(value)) {}                        // NOLINT
  static Json Array() { return Json(Kind::kArray); }
  static Json Object() { return Json(Kind::kObject); }

  // INVALID_ARG names the byte at which the text stops being JSON.
  static Result<Json> Parse(std::string_view text);
  std::string Dump() const {
    std::string text;
    DumpTo(text);
    return text;
  }

  Kind kind() const { return kind_; }
  bool is_null() const { return kind_ == Kind::kNull; }
  bool is_string() const { return kind_ == Kind::kString; }

  // Reading never fails: what is absent or of another kind gives null or the default, so that a
  // path is one expression: config["model_transaction_policy"]["decoupled"].AsBool().
  const Json& operator[](std::string_view key) const {
    for (const Member& member : members_) {
      if (member.first == key) return member.second;
    }
    static const Json kNothing;
    return kNothing;
  }
  bool AsBool(bool otherwise = false) const {
    return kind_ == Kind::kBool ? text_ == "true" : otherwise;
  }
  // Also from a string of digits, as protobuf writes 64-bit numbers.
  int64_t AsInt(int64_t otherwise = 0) const;
  double AsDouble(double otherwise = 0) const;
  const std::string& AsString() const {
    static const std::string kEmpty;
    return kind_ == Kind::kString ? text_ : kEmpty;
  }
  const std::vector<Json>& elements() const { return elements_; }
  const std::vector<Member>& members() const { return members_; }

  // The member `key`, made null when absent; this becomes an object if it is none.
  Json& Mutable(std::string_view key) {
    if (kind_ != Kind::kObject) *this = Object();
    for (Member& member : members_) {
      if (member.first == key) return member.second;
    }
    return members_.emplace_back(std::string(key), Json()).second;
  }
  void Set(std::string_view key, Json value) { Mutable(key) = std::move(value); }
  void Append(Json element) {
    if (kind_ != Kind::kArray) *this = Array();
    elements_.push_back(std::move(element));
  }
  std::vector<Json>& mutable_elements() { return elements_; }

 private:
  class Reader;
  explicit Json(Kind kind) : kind_(kind) {}
  void DumpTo(std::string& text) const;

  Kind kind_ = Kind::kNull;
  std::string text_;  // of a string its value; of a number or bool its spelling
  std::vector<Json> elements_;
  std::vector<Member> members_;
};

}  // namespace sdk
}  // namespace nereid

#include "nereid/json_impl.h"
