// Consecutive events that differ only in their blocks become one.
#include "backends/llm_core/kv_events/kv_event_batch.h"

#define MSGPACK_NO_BOOST
#include <msgpack.hpp>
#include <string_view>
#include <vector>

namespace nereid::llm {
namespace {

using Packer = msgpack::packer<msgpack::sbuffer>;

// A run of events that one encoded event tells.
struct Run {
  std::span<const KvEvent> events;
};

std::vector<Run> RunsOf(std::span<const KvEvent> events) {
  std::vector<Run> runs;
  for (size_t begin = 0; begin < events.size();) {
    size_t end = begin + 1;
    const KvEvent& first = events[begin];
    const auto continues = [&](const KvEvent& next, const KvEvent& before) {
      if (next.kind != first.kind || next.medium != first.medium) return false;
      if (first.kind == KvEvent::Kind::kRemoved) return true;
      return first.kind == KvEvent::Kind::kStored && next.parent == before.hash;
    };
    while (end < events.size() && continues(events[end], events[end - 1])) ++end;
    runs.push_back({events.subspan(begin, end - begin)});
    begin = end;
  }
  return runs;
}

// The names are vLLM's. The KV cache is a GPU's for readers, also where the engine has none: they
// rank the servers by it.
const char* NameOf(KvMedium medium) {
  if (medium == KvMedium::kCache) return "GPU";
  return medium == KvMedium::kHostMemory ? "CPU" : "STORAGE";
}

// Packs the members of an event, with their names or without.
class EventPacker {
 public:
  EventPacker(Packer& packer, KvEventForm form) : packer_(packer), form_(form) {}

  void Begin(const char* type, uint32_t num_members) {
    if (form_ == KvEventForm::kMaps) {
      packer_.pack_map(num_members + 1);
    } else {
      packer_.pack_array(num_members + 1);
    }
    Name("type");
    packer_.pack(type);
  }
  Packer& Name(const char* name) {
    if (form_ == KvEventForm::kMaps) packer_.pack(name);
    return packer_;
  }

 private:
  Packer& packer_;
  const KvEventForm form_;
};

void PackHashes(const Run& run, Packer& packer) {
  packer.pack_array(static_cast<uint32_t>(run.events.size()));
  for (const KvEvent& event : run.events) packer.pack(event.hash);
}

void PackStored(const Run& run, int32_t block_size, EventPacker& event) {
  const KvEvent& first = run.events.front();
  event.Begin("BlockStored", 6);
  PackHashes(run, event.Name("block_hashes"));
  Packer& parent = event.Name("parent_block_hash");
  if (first.parent) {
    parent.pack(*first.parent);
  } else {
    parent.pack_nil();
  }
  Packer& tokens = event.Name("token_ids");
  size_t num_tokens = 0;
  for (const KvEvent& each : run.events) num_tokens += each.token_ids.size();
  tokens.pack_array(static_cast<uint32_t>(num_tokens));
  for (const KvEvent& each : run.events) {
    for (const int32_t id : each.token_ids) tokens.pack(id);
  }
  event.Name("block_size").pack(block_size);
  event.Name("lora_id").pack_nil();
  event.Name("medium").pack(NameOf(first.medium));
}

}  // namespace

std::string EncodeKvEvents(std::span<const KvEvent> events, double seconds, int32_t block_size,
                           KvEventForm form) {
  msgpack::sbuffer buffer;
  Packer packer(buffer);
  const std::vector<Run> runs = RunsOf(events);
  packer.pack_array(3);
  packer.pack(seconds);
  packer.pack_array(static_cast<uint32_t>(runs.size()));
  for (const Run& run : runs) {
    EventPacker event(packer, form);
    switch (run.events.front().kind) {
      case KvEvent::Kind::kStored:
        PackStored(run, block_size, event);
        break;
      case KvEvent::Kind::kRemoved:
        event.Begin("BlockRemoved", 2);
        PackHashes(run, event.Name("block_hashes"));
        event.Name("medium").pack(NameOf(run.events.front().medium));
        break;
      case KvEvent::Kind::kCleared:
        event.Begin("AllBlocksCleared", 0);
        break;
    }
  }
  packer.pack_nil();  // one engine: there is no rank
  return {buffer.data(), buffer.size()};
}

}  // namespace nereid::llm
