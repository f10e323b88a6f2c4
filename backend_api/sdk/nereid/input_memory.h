// Memory that a model offers for the inputs of a request (offered_input.h), with one owner. [one
// thread at a time]
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <memory>

#include "nereid/error.h"
#include "nereid/ext/offered_input.h"
#include "nereid/infer_request.h"
#include "triton/core/tritonserver.h"

namespace nereid {
inline namespace sdk {

class InputMemory {
 public:
  // Null where there is nothing: no such model, a host of others. [any thread]
  static std::unique_ptr<InputMemory> Of(TRITONSERVER_Server* server, const char* model_name,
                                         int64_t model_version, uint64_t size_bytes) {
    const Functions& functions = Functions::Get();
    if (functions.offer == nullptr) return nullptr;
    std::unique_ptr<InputMemory> made(new InputMemory);
    const Status offered = ToStatus(functions.offer(server, model_name, model_version, size_bytes,
                                                    &made->memory_, &made->base_));
    if (!offered.ok() || made->memory_ == nullptr) return nullptr;
    return made;
  }
  ~InputMemory() {
    if (memory_ != nullptr) (void)ToStatus(Functions::Get().end(memory_));
  }
  InputMemory(const InputMemory&) = delete;
  InputMemory& operator=(const InputMemory&) = delete;

  char* base() const { return static_cast<char*>(base_); }
  bool IsFor(const InferRequest& request) const {
    bool is_for = false;
    return ToStatus(Functions::Get().is_for(memory_, request.get(), &is_for)).ok() && is_for;
  }

 private:
  struct Functions {
    decltype(&NEREID_ServerOfferInput) offer;
    decltype(&NEREID_InputMemoryIsFor) is_for;
    decltype(&NEREID_InputMemoryDelete) end;

    template <typename Function>
    static Function Find(const char* name) {
      return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
    }
    static const Functions& Get() {
      static const Functions functions{
          Find<decltype(&NEREID_ServerOfferInput)>("NEREID_ServerOfferInput"),
          Find<decltype(&NEREID_InputMemoryIsFor)>("NEREID_InputMemoryIsFor"),
          Find<decltype(&NEREID_InputMemoryDelete)>("NEREID_InputMemoryDelete")};
      return functions;
    }
  };

  InputMemory() = default;

  NEREID_InputMemory* memory_ = nullptr;
  void* base_ = nullptr;
};

}  // namespace sdk
}  // namespace nereid
