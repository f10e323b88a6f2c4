// Which instances of a model take no work any more. [under the scheduler's mutex]
#pragma once

#include <cstddef>
#include <vector>

namespace nereid {

class RetiredInstances {
 public:
  void Add(size_t instance) {
    if (retired_.size() <= instance) retired_.resize(instance + 1);
    retired_[instance] = true;
  }
  bool Contains(size_t instance) const { return instance < retired_.size() && retired_[instance]; }

 private:
  std::vector<bool> retired_;  // almost always empty
};

}  // namespace nereid
