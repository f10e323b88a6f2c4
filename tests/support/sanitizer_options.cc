// What ThreadSanitizer shall not report: races inside system libraries that were built without it,
// whose locks it does not see. Part of every test program of that preset.

extern "C" __attribute__((visibility("default"))) const char* __tsan_default_suppressions();

const char* __tsan_default_suppressions() {
  return "race:libgrpc.so\n"
         "race:libgrpc++.so\n"
         "race:libgpr.so\n"
         "race:libupb.so\n"
         "race:libabsl_\n"
         "called_from_lib:libgrpc.so\n"
         "called_from_lib:libgpr.so\n";
}
