// Parameters at the C API: the ones a caller makes for a model load, and the view of one that a
// response carries. [any thread]
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "nereid/error.h"
#include "triton/core/tritonserver.h"

namespace nereid {
inline namespace sdk {  // the core has classes of the same names; both may meet in one program

// An owned parameter: `config` and `file:<version>/<name>` of a model load.
class Parameter {
 public:
  static Parameter String(const std::string& name, const std::string& value) {
    return Parameter(
        TRITONSERVER_ParameterNew(name.c_str(), TRITONSERVER_PARAMETER_STRING, value.c_str()));
  }
  static Parameter Int(const std::string& name, int64_t value) {
    return Parameter(TRITONSERVER_ParameterNew(name.c_str(), TRITONSERVER_PARAMETER_INT, &value));
  }
  static Parameter Bool(const std::string& name, bool value) {
    return Parameter(TRITONSERVER_ParameterNew(name.c_str(), TRITONSERVER_PARAMETER_BOOL, &value));
  }
  // The bytes are referenced, not copied: they outlive the object.
  static Parameter Bytes(const std::string& name, std::string_view bytes) {
    return Parameter(TRITONSERVER_ParameterBytesNew(name.c_str(), bytes.data(), bytes.size()));
  }

  const TRITONSERVER_Parameter* get() const { return parameter_.get(); }

 private:
  explicit Parameter(TRITONSERVER_Parameter* parameter) : parameter_(parameter) {}

  struct Deleter {
    void operator()(TRITONSERVER_Parameter* parameter) const {
      TRITONSERVER_ParameterDelete(parameter);
    }
  };
  std::unique_ptr<TRITONSERVER_Parameter, Deleter> parameter_;
};

// Borrowed: lives as long as the response it was read from. Ask only for the value of its `type`.
struct ParameterView {
  const char* name;
  TRITONSERVER_ParameterType type;
  const void* value;

  std::string_view AsString() const { return static_cast<const char*>(value); }
  int64_t AsInt() const { return *static_cast<const int64_t*>(value); }
  bool AsBool() const { return *static_cast<const bool*>(value); }
  double AsDouble() const { return *static_cast<const double*>(value); }
};

}  // namespace sdk
}  // namespace nereid
