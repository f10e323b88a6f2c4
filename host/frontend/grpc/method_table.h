// The calls that the endpoint knows, by their path. Filled before the endpoint listens, then
// immutable. [any thread]
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "host/frontend/grpc/call.h"

namespace nereid {

struct Method {
  // [loop thread] Who serves a call; null where `unary` has finished it. One of the two is set:
  // a unary call starts with its only message, a stream when its headers are there.
  std::function<CallHandler*(Call& call, const Slice& message)> unary;
  std::function<CallHandler*(Call& call)> stream;
};

class MethodTable {
 public:
  // `path` is "/package.Service/Method".
  void Add(std::string path, Method method) {
    methods_.insert_or_assign(std::move(path), std::move(method));
  }
  // Null where there is none.
  const Method* Find(std::string_view path) const {
    const auto found = methods_.find(path);
    return found == methods_.end() ? nullptr : &found->second;
  }

 private:
  std::map<std::string, Method, std::less<>> methods_;
};

}  // namespace nereid
