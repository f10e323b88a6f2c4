// See stop_strings.h. The automaton of Aho and Corasick: one step a byte, whatever the number of
// stop strings.
#include "stop_strings.h"

namespace nereid::tokenizer {

StopStringMatcher::StopStringMatcher(const std::vector<std::string>& stops, bool keep_stop)
    : keep_stop_(keep_stop) {
  for (size_t i = 0; i < stops.size(); ++i) Add(stops[i], i);
  LinkSuffixes();
}

int32_t StopStringMatcher::Child(int32_t node, char byte) const {
  for (const auto& [label, child] : nodes_[node].children) {
    if (label == byte) return child;
  }
  return -1;
}

int32_t StopStringMatcher::Next(int32_t node, char byte) const {
  for (;; node = nodes_[node].fallback) {
    const int32_t child = Child(node, byte);
    if (child >= 0) return child;
    if (node == 0) return 0;
  }
}

void StopStringMatcher::Add(std::string_view stop, size_t index) {
  if (stop.empty()) return;
  int32_t node = 0;
  for (const char byte : stop) {
    int32_t child = Child(node, byte);
    if (child < 0) {
      child = static_cast<int32_t>(nodes_.size());
      nodes_.emplace_back().depth = nodes_[node].depth + 1;
      nodes_[node].children.emplace_back(byte, child);
    }
    node = child;
  }
  if (nodes_[node].stop >= 0) return;  // the first of equal strings
  nodes_[node].stop = static_cast<int32_t>(index);
  nodes_[node].stop_size = static_cast<uint32_t>(stop.size());
}

// Breadth first, so that shorter suffixes are linked before they are followed.
void StopStringMatcher::LinkSuffixes() {
  std::vector<int32_t> order = {0};
  for (size_t i = 0; i < order.size(); ++i) {
    const int32_t node = order[i];
    for (const auto& [byte, child] : nodes_[node].children) {
      order.push_back(child);
      const int32_t fallback = node == 0 ? 0 : Next(nodes_[node].fallback, byte);
      nodes_[child].fallback = fallback;
      if (nodes_[child].stop < 0) {
        nodes_[child].stop = nodes_[fallback].stop;
        nodes_[child].stop_size = nodes_[fallback].stop_size;
      }
    }
  }
}

bool StopStringMatcher::Push(std::string_view text, std::string& out) {
  for (size_t at = 0; at < text.size() && !stopped(); ++at) {
    node_ = Next(node_, text[at]);
    const Node& node = nodes_[node_];
    if (node.stop < 0) continue;
    match_ = static_cast<size_t>(node.stop);
    held_.append(text, 0, at + 1);
    if (!keep_stop_) held_.resize(held_.size() - node.stop_size);
    out.append(held_);
    held_.clear();
    return true;
  }
  if (stopped()) return true;
  held_.append(text);
  const size_t settled = held_.size() - nodes_[node_].depth;
  out.append(held_, 0, settled);
  held_.erase(0, settled);
  return false;
}

void StopStringMatcher::Finish(std::string& out) {
  out.append(held_);
  held_.clear();
}

}  // namespace nereid::tokenizer
