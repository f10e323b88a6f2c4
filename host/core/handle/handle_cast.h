// C handles are our C++ objects under another name: ToHandle and FromHandle cast one way and the
// other. Each pair is declared once by NEREID_HANDLE, next to the class, at global scope; an
// unpaired cast does not compile. [any thread]
#pragma once

namespace nereid {
template <typename CppType>
struct HandleOf;
template <typename CType>
struct ObjectOf;

template <typename CppType>
auto* ToHandle(CppType* object) {
  return reinterpret_cast<typename HandleOf<CppType>::Type*>(object);
}
template <typename CType>
auto* FromHandle(CType* handle) {
  return reinterpret_cast<typename ObjectOf<CType>::Type*>(handle);
}
template <typename CType>
const auto* FromHandle(const CType* handle) {
  return reinterpret_cast<const typename ObjectOf<CType>::Type*>(handle);
}
}  // namespace nereid

// C type -> C++ class, where several C types name one class (a request is
// TRITONSERVER_InferenceRequest to clients and TRITONBACKEND_Request to backends): use
// NEREID_HANDLE for the first, NEREID_HANDLE_ALIAS for the others and name the C type by
// reinterpret_cast where an object leaves under an alias.
#define NEREID_HANDLE(CType, CppType) \
  template <>                         \
  struct nereid::HandleOf<CppType> {  \
    using Type = CType;               \
  };                                  \
  NEREID_HANDLE_ALIAS(CType, CppType)
#define NEREID_HANDLE_ALIAS(CType, CppType) \
  template <>                               \
  struct nereid::ObjectOf<CType> {          \
    using Type = CppType;                   \
  }
