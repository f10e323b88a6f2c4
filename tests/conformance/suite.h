// The checks that a backend must pass to serve under any host of the C API, in the order in which
// they run. [one thread]
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tests/conformance/subject.h"

namespace nereid::conformance {

struct Outcome {
  enum class Verdict { kPassed, kFailed, kSkipped };
  Verdict verdict = Verdict::kPassed;
  std::string detail;  // why, where it did not pass
};

struct Check {
  const char* name;
  const char* meaning;
  std::function<Outcome(Subject&)> run;
};

// Named checks of which the author says that this backend fails them on purpose.
struct Quirks {
  std::set<std::string> names;
};

const std::vector<Check>& Suite();

// Runs the suite, one line a check on stdout, and a last line with the counts. The number of checks
// that failed and are no quirk.
int RunSuite(Subject& subject, const Quirks& quirks);

}  // namespace nereid::conformance
