// The checks that a backend must pass to serve under any host of the C API, in order of execution.
// [one thread]
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tests/conformance/model_under_test.h"

namespace nereid::conformance {

struct Outcome {
  enum class Verdict { kPassed, kFailed, kSkipped };
  Verdict verdict = Verdict::kPassed;
  std::string detail;  // the reason, if it did not pass
};

struct Check {
  const char* name;
  const char* meaning;
  std::function<Outcome(ModelUnderTest&)> run;
};

// Checks that this backend fails on purpose, as its author declares.
struct Quirks {
  std::set<std::string> names;
};

const std::vector<Check>& Suite();

// Runs the suite. Prints one line for each check to stdout, then a line with the counts. Returns
// the number of failed checks that are not quirks.
int RunSuite(ModelUnderTest& model, const Quirks& quirks);

}  // namespace nereid::conformance
