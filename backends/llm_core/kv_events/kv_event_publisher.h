// Publishes the events of the prefix cache over ZeroMQ, as vLLM does: messages of three frames
// (topic, sequence number of 8 bytes with the greatest first, batch), and a second socket at which
// readers ask for the batches that they have missed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backends/llm_core/engine/kv_events.h"
#include "nereid/status.h"

namespace nereid::llm {

struct KvEventOptions {
  // kv_events_endpoint: "tcp://*:5557" and the like are bound, addresses of others are connected
  // to. Empty: no events.
  std::string endpoint;
  std::string replay_endpoint;  // kv_events_replay_endpoint; empty: no replay
  std::string topic;            // kv_events_topic
  bool has_lists = false;       // kv_events_form "lists"
  int32_t block_size = 0;
  std::function<void(const std::string&)> log;
};

// UNSUPPORTED where the program was built without ZeroMQ; UNAVAILABLE names the endpoint that can
// not be bound. Publish is called on one thread and never waits: a thread of the publisher owns the
// sockets. Batches are dropped when too many wait for it, or for a reader that is too slow.
Result<std::unique_ptr<KvEventSink>> MakeKvEventPublisher(const KvEventOptions& options);

}  // namespace nereid::llm
