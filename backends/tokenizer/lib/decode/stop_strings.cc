// See stop_strings.h. The Aho-Corasick automaton takes one transition per byte, whatever the number
// of stop strings.
#include "backends/tokenizer/lib/decode/stop_strings.h"

namespace nereid::tokenizer {

StopStringMatcher::StopStringMatcher(const std::vector<std::string>& stops, bool keep_stop)
    : keep_stop_(keep_stop) {
  Nodes nodes(1);
  for (size_t i = 0; i < stops.size(); ++i) Add(stops[i], i, nodes);
  LinkSuffixes(nodes);
  nodes_ = std::make_shared<const Nodes>(std::move(nodes));
}

int32_t StopStringMatcher::Child(const Nodes& nodes, int32_t node, char byte) {
  for (const auto& [label, child] : nodes[node].children) {
    if (label == byte) return child;
  }
  return -1;
}

int32_t StopStringMatcher::Next(const Nodes& nodes, int32_t node, char byte) {
  for (;; node = nodes[node].fallback) {
    const int32_t child = Child(nodes, node, byte);
    if (child >= 0) return child;
    if (node == 0) return 0;
  }
}

void StopStringMatcher::Add(std::string_view stop, size_t index, Nodes& nodes) {
  if (stop.empty()) return;
  int32_t node = 0;
  for (const char byte : stop) {
    int32_t child = Child(nodes, node, byte);
    if (child < 0) {
      child = static_cast<int32_t>(nodes.size());
      nodes.emplace_back().depth = nodes[node].depth + 1;
      nodes[node].children.emplace_back(byte, child);
    }
    node = child;
  }
  if (nodes[node].stop >= 0) return;  // of equal strings the first counts
  nodes[node].stop = static_cast<int32_t>(index);
  nodes[node].stop_size = static_cast<uint32_t>(stop.size());
}

// Breadth first: the links of shorter suffixes exist before they are followed.
void StopStringMatcher::LinkSuffixes(Nodes& nodes) {
  std::vector<int32_t> order = {0};
  for (size_t i = 0; i < order.size(); ++i) {
    const int32_t node = order[i];
    for (const auto& [byte, child] : nodes[node].children) {
      order.push_back(child);
      const int32_t fallback = node == 0 ? 0 : Next(nodes, nodes[node].fallback, byte);
      nodes[child].fallback = fallback;
      if (nodes[child].stop < 0) {
        nodes[child].stop = nodes[fallback].stop;
        nodes[child].stop_size = nodes[fallback].stop_size;
      }
    }
  }
}

bool StopStringMatcher::Push(std::string_view text, std::string& out) {
  for (size_t at = 0; at < text.size() && !stopped(); ++at) {
    node_ = Next(*nodes_, node_, text[at]);
    const Node& node = (*nodes_)[node_];
    if (node.stop < 0) continue;
    match_ = static_cast<size_t>(node.stop);
    pending_.append(text, 0, at + 1);
    if (!keep_stop_) pending_.resize(pending_.size() - node.stop_size);
    out.append(pending_);
    pending_.clear();
    return true;
  }
  if (stopped()) return true;
  pending_.append(text);
  const size_t final_bytes = pending_.size() - (*nodes_)[node_].depth;
  out.append(pending_, 0, final_bytes);
  pending_.erase(0, final_bytes);
  return false;
}

void StopStringMatcher::Finish(std::string& out) {
  out.append(pending_);
  pending_.clear();
}

void StopStringMatcher::Reset() {
  node_ = 0;
  pending_.clear();
  match_.reset();
}

}  // namespace nereid::tokenizer
