// Copies of KV blocks of a model on several GPUs: each GPU keeps its part of every block, in the
// same place. A block is there if all parts are. No CUDA here. [engine thread]
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "backends/llm_core/engine/block_storage.h"

namespace nereid::gpu {

class ShardedBlockStorage : public llm::BlockStorage {
 public:
  // `ranks`, at least one, are borrowed. They have the same number of places in host memory.
  explicit ShardedBlockStorage(std::vector<llm::BlockStorage*> ranks);

  int32_t num_host_places() const override { return ranks_[0]->num_host_places(); }
  // The fewest of all; 0 if a GPU has no file.
  int32_t num_file_places() const override;
  // What every GPU has, and whose parents every GPU has.
  std::vector<StoredBlock> TakeStored() override;
  uint64_t first_serial() const override;
  bool FileAccepts() const override;
  void Store(int32_t from, int32_t to, const llm::BlockContent& content) override;
  void Fetch(uint64_t ticket, std::vector<Transfer> transfers) override;
  // A fetch has ended when it has on all GPUs; it took as long as the longest of them. A place
  // whose part is lost on one GPU is lost.
  std::vector<Fetched> Collect(bool waits) override;
  void Finish() override;

 private:
  struct Open {
    size_t num_left = 0;  // GPUs on which it has not ended
    Fetched fetched;
  };
  // Takes what has ended on a GPU.
  void Take(size_t rank, bool waits, std::vector<Fetched>& ended);

  const std::vector<llm::BlockStorage*> ranks_;
  std::map<uint64_t, Open> open_;  // by ticket
  std::vector<size_t> num_taken_;  // by rank: fetches that have ended
  size_t num_begun_ = 0, num_ended_ = 0;
};

}  // namespace nereid::gpu
