/// \file
/// The interface to memory outside the KV cache that keeps copies of KV blocks: host memory, and a
/// file that survives a restart. The engine decides which blocks are kept and where; whoever owns
/// the KV cache copies the bytes. [engine thread]
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace nereid::llm {

/// What a KV block holds, as the prefix cache identifies it. `serial` names the content: no other
/// content has it, in this process or in an earlier one with the same file.
struct BlockContent {
  uint64_t serial = 0;
  uint64_t parent = 0;  ///< serial of the content before it in its prompt; 0: it is the first
  uint64_t salt = 0;
  std::vector<int32_t> token_ids;  ///< [block_size]
};

/// Copies between places. Places 0 to num_blocks - 1 are the blocks of the KV cache. Those of host
/// memory follow, then those of the file.
class BlockStorage {
 public:
  struct StoredBlock {
    int32_t place = 0;
    BlockContent content;
  };
  struct Transfer {
    int32_t from = 0;     ///< a place outside the KV cache
    int32_t block = 0;    ///< of the KV cache
    uint64_t serial = 0;  ///< of the content
  };
  struct Fetched {
    uint64_t ticket = 0;
    /// Places whose content is lost: the file was damaged. Their blocks are undefined.
    std::vector<int32_t> lost;
    double seconds = 0.0;  ///< that it took, without steps before it
  };

  virtual ~BlockStorage() = default;

  /// Constant for the lifetime of the storage.
  virtual int32_t num_host_places() const = 0;
  virtual int32_t num_file_places() const = 0;
  /// What the file had when it was opened: each content after its parent. Called once.
  virtual std::vector<StoredBlock> TakeStored() { return {}; }
  /// The least serial that no content of the file has had.
  virtual uint64_t first_serial() const { return 1; }

  /// Whether the file takes a block now. False: it is busy writing others, or has failed.
  virtual bool FileAccepts() const { return false; }
  /// Copies `from`, a block of the KV cache or a place in host memory, to `to`, outside the KV
  /// cache. Reads what the steps submitted so far leave in the block. Steps submitted later, and
  /// later copies, run after it. Returns at once, unless too many copies are queued.
  virtual void Store(int32_t from, int32_t to, const BlockContent& content) = 0;
  /// Begins to copy into blocks of the KV cache, after the steps and the Stores so far. No step
  /// uses the blocks, and no Store the places, before Collect has returned the ticket.
  virtual void Fetch(uint64_t ticket, std::vector<Transfer> transfers) = 0;
  /// The fetches that have ended since the last call. `waits`: waits for one, if any is open. Only
  /// allowed if no step is in flight.
  virtual std::vector<Fetched> Collect(bool waits) = 0;
  /// Waits until every Store is done.
  virtual void Finish() = 0;
};

}  // namespace nereid::llm
