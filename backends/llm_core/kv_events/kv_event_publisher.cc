// The publisher's thread: it takes batches from a bounded queue, numbers and sends them, keeps the
// newest ones, and answers requests for them.
#include "backends/llm_core/kv_events/kv_event_publisher.h"

#include <dlfcn.h>
#include <zmq.h>

#include <array>
#include <chrono>
#include <deque>
#include <mutex>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>

#include "backends/llm_core/kv_events/kv_event_batch.h"
#include "base/thread.h"

namespace nereid::llm {
namespace {

constexpr size_t kMaxQueued = 4096;          // batches that wait for the thread
constexpr size_t kMaxKept = 10000;           // batches for replay
constexpr size_t kMaxKeptBytes = 64u << 20;  // of them
constexpr int kHighWaterMark = 100000;       // messages that wait for one reader
constexpr int kReplayTimeoutMs = 1000;       // for a reader that does not take its batches
constexpr const char* kWakeEndpoint = "inproc://wake";
constexpr uint64_t kEndOfReplay = ~uint64_t{0};

// ZeroMQ's functions. The library is opened when a model first needs it, so that the backends load
// without it.
struct ZmqFunctions {
  decltype(&::zmq_bind) bind = nullptr;
  decltype(&::zmq_close) close = nullptr;
  decltype(&::zmq_connect) connect = nullptr;
  decltype(&::zmq_ctx_new) ctx_new = nullptr;
  decltype(&::zmq_ctx_term) ctx_term = nullptr;
  decltype(&::zmq_errno) last_error = nullptr;
  decltype(&::zmq_msg_close) msg_close = nullptr;
  decltype(&::zmq_msg_data) msg_data = nullptr;
  decltype(&::zmq_msg_init) msg_init = nullptr;
  decltype(&::zmq_msg_more) msg_more = nullptr;
  decltype(&::zmq_msg_recv) msg_recv = nullptr;
  decltype(&::zmq_msg_size) msg_size = nullptr;
  decltype(&::zmq_poll) poll = nullptr;
  decltype(&::zmq_recv) recv = nullptr;
  decltype(&::zmq_send) send = nullptr;
  decltype(&::zmq_setsockopt) setsockopt = nullptr;
  decltype(&::zmq_socket) socket = nullptr;
  decltype(&::zmq_strerror) strerror = nullptr;
};

Result<ZmqFunctions> OpenZmq() {
  constexpr const char* kLibrary = "libzmq.so.5";
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);  // stays open
  if (library == nullptr) return UnavailableError("kv_events_endpoint: ", dlerror());
  ZmqFunctions functions;
  const char* missing = nullptr;
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr) missing = name;
  };
  find("zmq_bind", functions.bind);
  find("zmq_close", functions.close);
  find("zmq_connect", functions.connect);
  find("zmq_ctx_new", functions.ctx_new);
  find("zmq_ctx_term", functions.ctx_term);
  find("zmq_errno", functions.last_error);
  find("zmq_msg_close", functions.msg_close);
  find("zmq_msg_data", functions.msg_data);
  find("zmq_msg_init", functions.msg_init);
  find("zmq_msg_more", functions.msg_more);
  find("zmq_msg_recv", functions.msg_recv);
  find("zmq_msg_size", functions.msg_size);
  find("zmq_poll", functions.poll);
  find("zmq_recv", functions.recv);
  find("zmq_send", functions.send);
  find("zmq_setsockopt", functions.setsockopt);
  find("zmq_socket", functions.socket);
  find("zmq_strerror", functions.strerror);
  if (missing == nullptr) return functions;
  return UnavailableError("kv_events_endpoint: ", kLibrary, " has no function '", missing, "'");
}

const Result<ZmqFunctions>& OpenedZmq() {
  static const Result<ZmqFunctions> opened = OpenZmq();
  return opened;
}

// After OpenedZmq().ok().
const ZmqFunctions& Zmq() {
  return *OpenedZmq();
}

using Number = std::array<unsigned char, 8>;

Number Encode(uint64_t number) {
  Number bytes;
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<unsigned char>(number >> (56 - 8 * i));
  return bytes;
}

uint64_t Decode(std::string_view bytes) {
  uint64_t number = 0;
  for (const char byte : bytes) number = number << 8 | static_cast<unsigned char>(byte);
  return number;
}

// Whether the socket binds to the address instead of connecting to it. The rules are vLLM's.
bool IsBound(std::string_view endpoint) {
  return endpoint.find('*') != std::string_view::npos ||
         endpoint.find("::") != std::string_view::npos ||
         endpoint.find("0.0.0.0") != std::string_view::npos || endpoint.starts_with("ipc://") ||
         endpoint.starts_with("inproc://");
}

struct CloseSocket {
  void operator()(void* socket) const { Zmq().close(socket); }
};
struct EndContext {
  void operator()(void* context) const { Zmq().ctx_term(context); }
};
using Socket = std::unique_ptr<void, CloseSocket>;

class KvEventPublisher : public KvEventSink {
 public:
  explicit KvEventPublisher(const KvEventOptions& options)
      : options_(options), context_(Zmq().ctx_new()) {}
  ~KvEventPublisher() override {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      stops_ = true;
    }
    Wake();
    thread_.join();
  }

  Status Start() {
    NEREID_ASSIGN_OR_RETURN(publish_, Open(ZMQ_PUB, options_.endpoint, "kv_events_endpoint"));
    if (!options_.replay_endpoint.empty()) {
      NEREID_ASSIGN_OR_RETURN(
          replay_, Open(ZMQ_ROUTER, options_.replay_endpoint, "kv_events_replay_endpoint"));
    }
    wake_to_ = Socket(Zmq().socket(context_.get(), ZMQ_PAIR));
    wake_from_ = Socket(Zmq().socket(context_.get(), ZMQ_PAIR));
    if (Zmq().bind(wake_to_.get(), kWakeEndpoint) != 0 ||
        Zmq().connect(wake_from_.get(), kWakeEndpoint) != 0) {
      return UnavailableError("ZeroMQ: ", Zmq().strerror(Zmq().last_error()));
    }
    thread_ = StartThread([this] { Run(); });
    return {};
  }

  void Publish(std::vector<KvEvent> events) override {
    {
      const std::lock_guard lock(mutex_);
      if (queued_.size() >= kMaxQueued) {  // readers see the gap in the sequence numbers
        ++num_dropped_;
        return;
      }
      queued_.push_back(std::move(events));
    }
    Wake();
  }

 private:
  struct Batch {
    uint64_t number;
    std::string bytes;
  };

  Result<Socket> Open(int type, const std::string& endpoint, const char* parameter) {
    Socket socket(Zmq().socket(context_.get(), type));
    if (socket == nullptr) return UnavailableError("ZeroMQ: ", Zmq().strerror(Zmq().last_error()));
    const int no_wait = 0, mark = kHighWaterMark, timeout = kReplayTimeoutMs;
    Zmq().setsockopt(socket.get(), ZMQ_LINGER, &no_wait, sizeof(no_wait));
    Zmq().setsockopt(socket.get(), ZMQ_SNDHWM, &mark, sizeof(mark));
    if (type == ZMQ_ROUTER) {
      const int64_t most = 64;  // a request has 8 bytes
      Zmq().setsockopt(socket.get(), ZMQ_MAXMSGSIZE, &most, sizeof(most));
      Zmq().setsockopt(socket.get(), ZMQ_SNDTIMEO, &timeout, sizeof(timeout));
    }
    const bool binds = type == ZMQ_ROUTER || IsBound(endpoint);
    const int failed = binds ? Zmq().bind(socket.get(), endpoint.c_str())
                             : Zmq().connect(socket.get(), endpoint.c_str());
    if (failed == 0) return socket;
    return UnavailableError("parameter '", parameter, "' is '", endpoint,
                            "': ", Zmq().strerror(Zmq().last_error()));
  }

  // The engine's thread alone sends, and the thread that destroys the publisher after it.
  void Wake() { Zmq().send(wake_from_.get(), "", 0, ZMQ_DONTWAIT); }

  void Run() {
    while (true) {
      zmq_pollitem_t items[] = {{wake_to_.get(), 0, ZMQ_POLLIN, 0},
                                {replay_.get(), 0, ZMQ_POLLIN, 0}};
      if (Zmq().poll(items, replay_ == nullptr ? 1 : 2, -1) < 0 && Zmq().last_error() != EINTR)
        return;
      char ignored = 0;
      while (Zmq().recv(wake_to_.get(), &ignored, 1, ZMQ_DONTWAIT) >= 0) {
      }
      if (!SendQueued()) return;
      if (replay_ != nullptr && (items[1].revents & ZMQ_POLLIN) != 0) Replay();
    }
  }

  // Returns false once the publisher ends.
  bool SendQueued() {
    std::deque<std::vector<KvEvent>> batches;
    uint64_t num_dropped = 0;
    bool stops = false;
    {
      const std::lock_guard lock(mutex_);
      batches.swap(queued_);
      num_dropped = std::exchange(num_dropped_, 0);
      stops = stops_;
    }
    for (const std::vector<KvEvent>& events : batches) {
      const auto now = std::chrono::system_clock::now().time_since_epoch();
      Batch batch = {
          next_number_++,
          EncodeKvEvents(events, std::chrono::duration<double>(now).count(), options_.block_size,
                         options_.has_lists ? KvEventForm::kLists : KvEventForm::kMaps)};
      const Number number = Encode(batch.number);
      Zmq().send(publish_.get(), options_.topic.data(), options_.topic.size(), ZMQ_SNDMORE);
      Zmq().send(publish_.get(), number.data(), number.size(), ZMQ_SNDMORE);
      Zmq().send(publish_.get(), batch.bytes.data(), batch.bytes.size(), 0);
      Keep(std::move(batch));
    }
    if (num_dropped > 0) {
      next_number_ += num_dropped;
      options_.log(StrCat("KV events: ", num_dropped, " batches were not published"));
    }
    return !stops;
  }

  void Keep(Batch batch) {
    if (replay_ == nullptr) return;
    num_kept_bytes_ += batch.bytes.size();
    kept_.push_back(std::move(batch));
    while (kept_.size() > kMaxKept || num_kept_bytes_ > kMaxKeptBytes) {
      num_kept_bytes_ -= kept_.front().bytes.size();
      kept_.pop_front();
    }
  }

  // A request has the frames client, empty, first number. Each answer has client, empty, number,
  // batch; the last one has the number -1 and an empty batch.
  void Replay() {
    std::vector<std::string> frames;
    int has_more = 1;
    while (has_more != 0) {
      zmq_msg_t message;
      Zmq().msg_init(&message);
      if (Zmq().msg_recv(&message, replay_.get(), ZMQ_DONTWAIT) < 0) {
        Zmq().msg_close(&message);
        return;
      }
      if (frames.size() < 4) {
        frames.emplace_back(static_cast<const char*>(Zmq().msg_data(&message)),
                            Zmq().msg_size(&message));
      }
      has_more = Zmq().msg_more(&message);
      Zmq().msg_close(&message);
    }
    if (frames.size() != 3 || !frames[1].empty() || frames[2].size() != 8) return;
    const uint64_t first = Decode(frames[2]);
    for (const Batch& batch : kept_) {
      if (batch.number >= first && !Answer(frames[0], batch.number, batch.bytes)) return;
    }
    Answer(frames[0], kEndOfReplay, "");
  }

  bool Answer(std::string_view client, uint64_t number, std::string_view bytes) {
    const Number encoded = Encode(number);
    return Zmq().send(replay_.get(), client.data(), client.size(), ZMQ_SNDMORE) >= 0 &&
           Zmq().send(replay_.get(), "", 0, ZMQ_SNDMORE) >= 0 &&
           Zmq().send(replay_.get(), encoded.data(), encoded.size(), ZMQ_SNDMORE) >= 0 &&
           Zmq().send(replay_.get(), bytes.data(), bytes.size(), 0) >= 0;
  }

  const KvEventOptions options_;
  const std::unique_ptr<void, EndContext> context_;
  Socket publish_;
  Socket replay_;             // null: no replay
  Socket wake_to_;            // the thread's end
  Socket wake_from_;          // the engine's end
  uint64_t next_number_ = 0;  // [publisher's thread], with the two below
  std::deque<Batch> kept_;
  size_t num_kept_bytes_ = 0;
  std::mutex mutex_;  // guards the members below
  std::deque<std::vector<KvEvent>> queued_;
  uint64_t num_dropped_ = 0;
  bool stops_ = false;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<KvEventSink>> MakeKvEventPublisher(const KvEventOptions& options) {
  if (!OpenedZmq().ok()) return OpenedZmq().status();
  auto publisher = std::make_unique<KvEventPublisher>(options);
  NEREID_RETURN_IF_ERROR(publisher->Start());
  return std::unique_ptr<KvEventSink>(std::move(publisher));
}

}  // namespace nereid::llm
