// The bytes of a batch of events, in the form of vLLM's KV events: a list of the time, the events
// and the data-parallel rank, encoded by msgpack.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "backends/llm_core/engine/kv_events.h"

namespace nereid::llm {

enum class KvEventForm : uint8_t {
  kMaps,   // each event is a map whose key `type` names it
  kLists,  // each event is a list that begins with its name, as in releases of 2025
};

// `seconds` since 1970. [any thread]
std::string EncodeKvEvents(std::span<const KvEvent> events, double seconds, int32_t block_size,
                           KvEventForm form);

}  // namespace nereid::llm
