// Casts between the opaque handles of the C API and the C++ objects behind them: ToHandle and
// FromHandle. NEREID_HANDLE declares each pair once, next to the class, at global scope. A cast
// between types that are no pair does not compile. [any thread]
#pragma once

#include <cstdint>
#include <cstring>

namespace nereid::core {
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

// The number in an enumeration value that a third party passed. It may be none of the enumerators,
// and reading such a value as an enumerator would be undefined behaviour.
template <typename Enum>
uint32_t RawEnumValue(const Enum& value) {
  static_assert(sizeof(Enum) == sizeof(uint32_t));
  uint32_t raw = 0;
  std::memcpy(&raw, &value, sizeof(raw));
  return raw;
}
}  // namespace nereid::core

// Declares the pair of a C type and a C++ class. Several C types may refer to one class: a request
// is a TRITONSERVER_InferenceRequest to clients and a TRITONBACKEND_Request to backends. Use
// NEREID_HANDLE for the first C type and NEREID_HANDLE_ALIAS for the others. Cast an object to an
// alias with reinterpret_cast.
#define NEREID_HANDLE(CType, CppType)      \
  template <>                              \
  struct nereid::core::HandleOf<CppType> { \
    using Type = CType;                    \
  };                                       \
  NEREID_HANDLE_ALIAS(CType, CppType)
#define NEREID_HANDLE_ALIAS(CType, CppType) \
  template <>                               \
  struct nereid::core::ObjectOf<CType> {    \
    using Type = CppType;                   \
  }
