#include "backends/gpu_llm/adapter_slots.h"

#include <algorithm>

namespace nereid::gpu {

AdapterSlots::AdapterSlots(int64_t capacity_bytes, int32_t num_slots)
    : capacity_bytes_(capacity_bytes) {
  for (int32_t slot = num_slots - 1; slot >= 0; --slot) free_slots_.push_back(slot);
}

bool AdapterSlots::Find(std::span<const Need> needs, int64_t step, std::vector<Place>& places) {
  int64_t total = 0;
  for (const Need& need : needs) total += need.bytes;
  if (total > capacity_bytes_ || needs.size() > free_slots_.size() + adapters_.size()) return false;
  std::vector<bool> is_new(needs.size());
  for (size_t i = 0; i < needs.size(); ++i) {
    const auto found = adapters_.find(needs[i].serial);
    is_new[i] = found == adapters_.end();
    if (!is_new[i]) found->second.last_step = step;
  }
  for (size_t i = 0; i < needs.size(); ++i) {
    if (!is_new[i]) continue;
    int64_t offset = FindFree(needs[i].bytes);
    while ((free_slots_.empty() || offset < 0) && RemoveLeastRecent(step))
      offset = FindFree(needs[i].bytes);
    if (offset < 0) {  // the free memory is scattered: place all of them anew
      while (!adapters_.empty()) Remove(adapters_.begin());
      last_replaced_step_ = step - 1;
      is_new.assign(needs.size(), true);
      offset = 0;
      for (const Need& need : needs) {
        Insert(need, offset, step);
        offset += need.bytes;
      }
      break;
    }
    Insert(needs[i], offset, step);
  }
  places.clear();
  for (size_t i = 0; i < needs.size(); ++i) {
    const Adapter& adapter = adapters_.at(needs[i].serial);
    places.push_back({adapter.slot, adapter.offset, is_new[i]});
  }
  return true;
}

// A prepared adapter counts as used in the step before, so that the step itself may replace it.
bool AdapterSlots::Prepare(const Need& need, int64_t step, int64_t first_running, Place& place) {
  if (const auto found = adapters_.find(need.serial); found != adapters_.end()) {
    Adapter& adapter = found->second;
    adapter.last_step = std::max(adapter.last_step, step - 1);
    place = {adapter.slot, adapter.offset, false};
    return true;
  }
  int64_t offset = FindFree(need.bytes);
  while ((free_slots_.empty() || offset < 0) &&
         RemoveLeastRecent(std::min(first_running, step - 1)))
    offset = FindFree(need.bytes);
  if (free_slots_.empty() || offset < 0) return false;
  place = {free_slots_.back(), offset, true};
  Insert(need, offset, step - 1);
  return true;
}

void AdapterSlots::Forget(uint64_t serial) {
  if (const auto found = adapters_.find(serial); found != adapters_.end()) Remove(found);
}

int64_t AdapterSlots::FindFree(int64_t bytes) const {
  int64_t offset = 0;
  for (const auto& [first, count] : ranges_) {
    if (first - offset >= bytes) return offset;
    offset = first + count;
  }
  return capacity_bytes_ - offset >= bytes ? offset : -1;
}

void AdapterSlots::Insert(const Need& need, int64_t offset, int64_t step) {
  adapters_[need.serial] = {free_slots_.back(), offset, need.bytes, step};
  free_slots_.pop_back();
  if (need.bytes > 0) ranges_[offset] = need.bytes;
}

bool AdapterSlots::RemoveLeastRecent(int64_t step) {
  const auto oldest = std::min_element(
      adapters_.begin(), adapters_.end(),
      [](const auto& a, const auto& b) { return a.second.last_step < b.second.last_step; });
  if (oldest == adapters_.end() || oldest->second.last_step >= step) return false;
  last_replaced_step_ = std::max(last_replaced_step_, oldest->second.last_step);
  Remove(oldest);
  return true;
}

void AdapterSlots::Remove(std::map<uint64_t, Adapter>::iterator adapter) {
  free_slots_.push_back(adapter->second.slot);
  if (adapter->second.bytes > 0) ranges_.erase(adapter->second.offset);
  adapters_.erase(adapter);
}

}  // namespace nereid::gpu
