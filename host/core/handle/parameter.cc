#include "host/core/handle/parameter.h"

namespace nereid {

const void* Parameter::pointer() const {
  struct Pointer {
    const void* operator()(const std::string& value) const { return value.c_str(); }
    const void* operator()(const int64_t& value) const { return &value; }
    const void* operator()(const bool& value) const { return &value; }
    const void* operator()(const double& value) const { return &value; }
    const void* operator()(const Bytes& value) const { return value.base; }
  };
  return std::visit(Pointer{}, value_);
}

}  // namespace nereid
