// Whether the build has a sanitizer. Its allocator reserves terabytes of address space, so a test
// that limits the address space is skipped, and its code is slow, so long simulations are shorter.
#pragma once

namespace nereid {

#if defined(NEREID_SANITIZE_ADDRESS) || defined(NEREID_SANITIZE_THREAD)
constexpr bool kHasSanitizer = true;
#else
constexpr bool kHasSanitizer = false;
#endif

}  // namespace nereid
