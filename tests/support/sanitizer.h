// Whether a sanitizer replaces the allocator. Such an allocator reserves terabytes of address
// space, so a test that limits the address space is skipped.
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define NEREID_TEST_HAS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define NEREID_TEST_HAS_SANITIZER 1
#endif
#endif

namespace nereid {

#ifdef NEREID_TEST_HAS_SANITIZER
constexpr bool kHasSanitizer = true;
#else
constexpr bool kHasSanitizer = false;
#endif

}  // namespace nereid
