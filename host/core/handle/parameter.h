// TRITONSERVER_Parameter: a named value of a request, a response, a load call or a metric label.
// [any thread]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "host/core/handle/handle_cast.h"
#include "triton/core/tritonserver.h"

namespace nereid::core {

class Parameter {
 public:
  // The bytes are borrowed: the caller keeps them valid as long as the parameter exists.
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
  // The value as the C API returns it: a char*, int64_t*, bool*, double* or the bytes themselves.
  // Valid as long as this object exists.
  const void* pointer() const {
    struct Pointer {
      const void* operator()(const std::string& value) const { return value.c_str(); }
      const void* operator()(const int64_t& value) const { return &value; }
      const void* operator()(const bool& value) const { return &value; }
      const void* operator()(const double& value) const { return &value; }
      const void* operator()(const Bytes& value) const { return value.base; }
    };
    return std::visit(Pointer{}, value_);
  }

 private:
  std::string name_;
  Value value_;
};

}  // namespace nereid::core

NEREID_HANDLE(TRITONSERVER_Parameter, nereid::core::Parameter);
