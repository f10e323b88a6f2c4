// In builds without ZeroMQ or msgpack.
#include "backends/llm_core/kv_events/kv_event_publisher.h"

namespace nereid::llm {

Result<std::unique_ptr<KvEventSink>> MakeKvEventPublisher(const KvEventOptions& options) {
  return UnsupportedError("parameter 'kv_events_endpoint' is '", options.endpoint,
                          "': this program was built without libzmq3-dev and libmsgpack-cxx-dev");
}

}  // namespace nereid::llm
