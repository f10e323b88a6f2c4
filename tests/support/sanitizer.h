// Whether the build has a sanitizer. The sanitizer's allocator reserves terabytes of address space,
// so tests that limit the address space are skipped. Its checks make the code many times slower, so
// long simulations run fewer cases.
#pragma once

namespace nereid {

#if defined(NEREID_SANITIZE_ADDRESS) || defined(NEREID_SANITIZE_THREAD)
constexpr bool kHasSanitizer = true;
#else
constexpr bool kHasSanitizer = false;
#endif

}  // namespace nereid
