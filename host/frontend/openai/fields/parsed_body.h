// The body of a request, checked by the table of fields. [one thread]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "host/frontend/http/json/json_reader.h"
#include "host/frontend/openai/fields/api_error.h"
#include "host/frontend/openai/fields/field_table.h"
#include "nereid/status.h"

namespace nereid::openai {

// The value of a field. Which members are set follows from the field's kind. The views are valid as
// long as the body and its text.
struct FieldValue {
  const Field* field = nullptr;
  std::string_view json;  // the value as the client wrote it
  bool boolean = false;
  int64_t integer = 0;
  double number = 0;
  std::string_view text;
  std::vector<std::string_view> texts;  // also of a single text where a list may be given
  std::vector<int64_t> integers;

  // True if the value is known to change nothing.
  bool IsNeutral() const;
};

class ParsedBody {
 public:
  // `json` outlives the object.
  ParsedBody(std::string_view json, size_t max_depth)
      : json_(json), max_depth_(max_depth), reader_(json, max_depth) {}

  // Reads the members of the object. INVALID_ARG for faulty JSON with its position, for a value of
  // a wrong kind or out of range, and for an unknown or a refused field. A null counts as absent.
  Status Read(RouteSet route);

  const FieldValue* Find(std::string_view name) const;
  const std::vector<FieldValue>& values() const { return values_; }
  size_t max_depth() const { return max_depth_; }

  // The value, or `fallback` if the field is absent.
  bool BoolOr(std::string_view name, bool fallback) const;
  int64_t IntegerOr(std::string_view name, int64_t fallback) const;

  // Creates an error and remembers which field is at fault.
  template <typename... Args>
  Status Refuse(std::string_view param, std::string_view code, const Args&... reason) {
    param_ = param;
    code_ = code;
    return InvalidArgError(reason...);
  }
  // The error of a function of this object or of one that called Refuse.
  ApiError ErrorOf(const Status& status) const;

  // Reads the JSON of one value (FieldValue::json) again.
  http::JsonReader ReaderOf(const FieldValue& value) const {
    return http::JsonReader(value.json, max_depth_);
  }

 private:
  Status ReadField(const Field& field);
  Status ReadValue(FieldValue& value);
  Status ReadTexts(FieldValue& value);
  Status ReadIntegers(FieldValue& value);
  Status CheckRange(const FieldValue& value, double number, std::string_view path);
  Status CheckKind(std::string_view path, http::JsonKind expected, std::string_view description);
  Status RefuseUnknown(RouteSet route, std::string_view name);

  const std::string_view json_;
  const size_t max_depth_;
  http::JsonReader reader_;
  std::vector<FieldValue> values_;
  std::string param_, code_;
};

}  // namespace nereid::openai
