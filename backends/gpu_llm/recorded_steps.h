// Which sizes of steps have been recorded, which are to be and which can not be: a size whose
// recording failed once is launched as it is ever after. No CUDA here. [engine thread]
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

namespace nereid::gpu {

template <typename Graph>
class RecordedSteps {
 public:
  // Null: there is none of this size.
  const Graph* Find(int32_t size) const {
    const auto found = graphs_.find(size);
    return found != graphs_.end() && found->second ? &*found->second : nullptr;
  }
  // Whether recording is worth a try: the size is neither recorded nor refused.
  bool IsNew(int32_t size) const { return !graphs_.contains(size); }
  // A step of a new size could be recorded: true from the `patience`-th one on.
  bool IsDue(int32_t size, int32_t patience) { return ++num_steps_[size] >= patience; }
  void Keep(int32_t size, Graph graph) { graphs_.insert_or_assign(size, std::move(graph)); }
  void Refuse(int32_t size) {
    graphs_.insert_or_assign(size, std::nullopt);
    ++num_refused_;
  }
  int64_t num_refused() const { return num_refused_; }

 private:
  std::map<int32_t, std::optional<Graph>> graphs_;  // nothing: refused
  std::map<int32_t, int32_t> num_steps_;            // that could have been recorded
  int64_t num_refused_ = 0;
};

}  // namespace nereid::gpu
