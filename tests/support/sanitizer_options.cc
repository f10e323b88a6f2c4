// How ThreadSanitizer shall judge, in every test program of that preset: no races inside system
// libraries that were built without it, whose locks it does not see; no end of the process when a
// test asks for more memory than there is.

extern "C" __attribute__((visibility("default"))) const char* __tsan_default_suppressions();
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options();

const char* __tsan_default_options() { return "allocator_may_return_null=1"; }

const char* __tsan_default_suppressions() {
  return "race:libgrpc.so\n"
         "race:libgrpc++.so\n"
         "race:libgpr.so\n"
         "race:libupb.so\n"
         "race:libabsl_\n"
         "called_from_lib:libgrpc.so\n"
         "called_from_lib:libgpr.so\n";
}
