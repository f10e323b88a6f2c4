// Lists of numbers on the command line.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

namespace nereid::bench {

// The numbers of a list such as "1,8,16"; none of an empty text. `separators`: any one of these
// characters stands between two numbers.
template <typename Number = int>
std::vector<Number> NumbersOf(const std::string& list, const char* separators = ",") {
  std::vector<Number> numbers;
  for (size_t at = 0; at < list.size();
       at = std::min(list.size(), list.find_first_of(separators, at)) + 1) {
    numbers.push_back(static_cast<Number>(std::atoll(list.c_str() + at)));
  }
  return numbers;
}

}  // namespace nereid::bench
