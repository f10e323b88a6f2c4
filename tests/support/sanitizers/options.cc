// ThreadSanitizer options of every test program with that preset: an allocation beyond the
// available memory returns null instead of ending the process.

extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options();

const char* __tsan_default_options() {
  return "allocator_may_return_null=1";
}
