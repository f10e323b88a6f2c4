// Decides which LoRA adapters lie where in the device memory that they share: an adapter that a
// step needs and that is not on the device takes a slot and consecutive bytes, those of the
// adapters that were used least recently if none are free. No CUDA here. [engine thread]
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace nereid::gpu {

class AdapterSlots {
 public:
  static constexpr int64_t kAlign = 256;  // bytes

  // `capacity_bytes` of memory for at most `num_slots` adapters.
  AdapterSlots(int64_t capacity_bytes, int32_t num_slots);

  struct Need {
    uint64_t serial;  // LoraAdapter::serial()
    int64_t bytes;    // a multiple of kAlign
  };
  struct Place {
    int32_t slot;
    int64_t offset;  // in bytes
    bool is_new;     // the adapter must be copied there
  };
  // Finds the places of all adapters of step `step`, parallel to `needs`; the serials differ and
  // the steps rise. None of them takes the place of another. If their bytes fit, but not around
  // what lies where, all are placed anew. False: they do not fit at all, and nothing has changed.
  bool Find(std::span<const Need> needs, int64_t step, std::vector<Place>& places);

  // Finds a place for an adapter that a step from `step` on will use. It takes the place of no
  // adapter that a step from `first_running` on uses or that was prepared for `step`. False: there
  // is none, and Find() will make room.
  bool Prepare(const Need& need, int64_t step, int64_t first_running, Place& place);

  // The adapter has no place any more: its copy failed. No step uses it.
  void Forget(uint64_t serial);

  // Bytes of an adapter that has a place; -1: it has none.
  int64_t BytesOf(uint64_t serial) const {
    const auto found = adapters_.find(serial);
    return found == adapters_.end() ? -1 : found->second.bytes;
  }

  // The last step that used an adapter whose memory may have been taken since; -1: there is none.
  // New adapters must not be copied before it has ended.
  int64_t last_replaced_step() const { return last_replaced_step_; }
  int32_t num_resident() const { return static_cast<int32_t>(adapters_.size()); }

 private:
  struct Adapter {
    int32_t slot;
    int64_t offset, bytes;
    int64_t last_step;
  };

  // The first free range of so many bytes; -1: none.
  int64_t FindFree(int64_t bytes) const;
  void Insert(const Need& need, int64_t offset, int64_t step);
  // False: all adapters belong to `step` or later ones.
  bool RemoveLeastRecent(int64_t step);
  void Remove(std::map<uint64_t, Adapter>::iterator adapter);

  const int64_t capacity_bytes_;
  std::vector<int32_t> free_slots_;
  std::map<uint64_t, Adapter> adapters_;  // by serial
  std::map<int64_t, int64_t> ranges_;     // offset and bytes of each of them
  int64_t last_replaced_step_ = -1;
};

}  // namespace nereid::gpu
