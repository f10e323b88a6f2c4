// What the models of the recorded repository do with one request; tests/golden/repo/<model> holds
// the Python that each of these stands for. [instance thread]
#pragma once

#include <cstdint>
#include <map>

#include "nereid/backend.h"

namespace nereid::golden {

// Running sums by correlation id, of one instance.
using Sums = std::map<uint64_t, int32_t>;

Status CopyInput(Request& request, const char* input, const char* output);
// OUT = IN * factor + offset.
Status Linear(Request& request, float factor, float offset);
// O_<type> = I_<type> for each input given.
Status CopyEachType(Request& request);
// The value of INPUT0 chooses the error; 1 stands for an exception.
Status FailAsTold(Request& request);
// What the request says about itself, as JSON text.
Status DescribeRequest(Request& request);
// Numbers 0 to IN-1, one response each.
Status StreamNumbers(Request& request);
// text_input, max_tokens times.
Status StreamText(Request& request);
Status AddToSum(Request& request, Sums& sums);
// INPUT0 tells for how many seconds.
Status SleepThenCopy(Request& request);

}  // namespace nereid::golden
