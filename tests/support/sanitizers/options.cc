// How ThreadSanitizer shall judge, in every test program of that preset: no end of the process when
// a test asks for more memory than there is.

extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options();

const char* __tsan_default_options() {
  return "allocator_may_return_null=1";
}
