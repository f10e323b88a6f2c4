// A named value that travels with a request, a response, a load call or a metric label:
// TRITONSERVER_Parameter. [any thread]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "host/core/handle/handle_cast.h"
#include "triton/core/tritonserver.h"

namespace nereid {

class Parameter {
 public:
  // Bytes are borrowed: the caller keeps them alive as long as the parameter.
  struct Bytes {
    const void* base;
    uint64_t size;
  };
  // In the order of TRITONSERVER_ParameterType.
  using Value = std::variant<std::string, int64_t, bool, double, Bytes>;

  Parameter(std::string_view name, Value value) : name_(name), value_(std::move(value)) {}

  const std::string& name() const { return name_; }
  const Value& value() const { return value_; }
  TRITONSERVER_ParameterType type() const {
    return static_cast<TRITONSERVER_ParameterType>(value_.index());
  }
  // What the C API hands out: a char*, int64_t*, bool*, double* or the bytes themselves; lives as
  // long as this object.
  const void* pointer() const;

 private:
  std::string name_;
  Value value_;
};

}  // namespace nereid

NEREID_HANDLE(TRITONSERVER_Parameter, nereid::Parameter);
