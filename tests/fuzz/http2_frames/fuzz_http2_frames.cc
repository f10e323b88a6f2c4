// Fuzzes the sequences of HTTP/2 frames that a client may send. The input is a list of
// instructions, each of which becomes one frame, so that most frames are well-formed and reach the
// streams behind the HTTP/2 library. Whatever is sent, the server closes the connection after the
// client's end, ends every call exactly once, and returns every byte to the budget.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "host/frontend/grpc/transport/http2_server.h"
#include "tests/host/frontend/grpc/raw_client.h"

namespace nereid::grpc {
namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

// Reads the instructions. After the end of the input every value is 0.
class Input {
 public:
  explicit Input(std::string_view bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  uint8_t Byte() {
    if (bytes_.empty()) return 0;
    const auto byte = static_cast<uint8_t>(bytes_.front());
    bytes_.remove_prefix(1);
    return byte;
  }
  std::string_view Text() {
    const std::string_view text = bytes_.substr(0, Byte());
    bytes_.remove_prefix(text.size());
    return text;
  }

 private:
  std::string_view bytes_;
};

constexpr const char* kPaths[] = {"/test/Unary", "/test/Stream", "/test/Never", "/test/Unknown"};

std::string HeadersOf(Input& input) {
  std::string headers = CallHeaders(kPaths[input.Byte() % 4]);
  const uint8_t options = input.Byte();
  if (options & 1) headers += Header("grpc-encoding", "gzip");
  if (options & 2) headers += Header("grpc-timeout", input.Text().substr(0, 20));
  if (options & 4) headers += Header("name-bin", input.Text());
  if (options & 8) headers = std::string(input.Text());
  return headers;
}

std::string NextFrame(Input& input) {
  const uint8_t instruction = input.Byte();
  const uint8_t flags = input.Byte() & 5;
  const uint32_t stream = input.Byte();
  switch (instruction % 8) {
    case 0:
    case 1:
      return Frame(kHeaders, flags | kEndHeaders, stream, HeadersOf(input));
    case 2:
      return Frame(kData, flags & kEndStream, stream, Framed(input.Text()));
    case 3:
      return Frame(kData, flags & kEndStream, stream, input.Text());
    case 4:
      return Frame(kReset, kNoFlag, stream, Number(input.Byte(), 4));
    case 5:
      return Frame(kWindowUpdate, kNoFlag, stream, Number(input.Byte(), 4));
    case 6:
      return Frame(kSettings, kNoFlag, 0, Number(input.Byte() % 8, 2) + Number(input.Byte(), 4));
    default:
      return Frame(input.Byte(), input.Byte(), stream, input.Text());
  }
}

// Answers each message of a stream with itself, or a unary call with nothing.
class Handler final : public CallHandler {
 public:
  Handler(Call& call, bool answers) : call_(call), answers_(answers) {}
  void Start() {
    if (answers_) call_.Read();
  }

 private:
  void OnReadDone(const Slice* message) override {
    if (message == nullptr) return End();
    is_writing_ = true;
    call_.Write(WireMessage(*message));
  }
  void OnWriteDone() override {
    is_writing_ = false;
    if (is_end_requested_) return End();
    call_.Read();
  }
  void OnCancel() override { End(); }
  void OnDone() override { delete this; }
  void End() {
    is_end_requested_ = true;
    if (!is_writing_ && !std::exchange(is_finished_, true)) call_.Finish({});
  }

  Call& call_;
  const bool answers_;
  bool is_writing_ = false;
  bool is_end_requested_ = false;
  bool is_finished_ = false;
};

struct Endpoint {
  ByteBudget budget{1 << 20};
  GrpcOptions options;
  MethodTable methods;
  std::unique_ptr<Http2Server> server;

  Endpoint() {
    options.address = "127.0.0.1";
    options.port = 0;
    options.max_message_bytes = 1 << 16;
    options.max_streams_per_connection = 32;
    options.budget = &budget;
    methods.Add(kPaths[0], {.unary = [](Call& call, const Slice& message) -> CallHandler* {
                              call.FinishWith(WireMessage(message));
                              return nullptr;
                            },
                            .stream = nullptr});
    methods.Add(kPaths[1], {.unary = nullptr, .stream = [](Call& call) -> CallHandler* {
                              auto* const handler = new Handler(call, true);
                              handler->Start();
                              return handler;
                            }});
    methods.Add(kPaths[2], {.unary = [](Call& call, const Slice&) -> CallHandler* {
                              return new Handler(call, false);
                            },
                            .stream = nullptr});
    auto started = Http2Server::Start(options, methods);
    Require(started.ok());
    server = std::move(started).value();
  }
};

// Returns one of 65,534 addresses in 127.0.0.0/8, another one at each call.
uint32_t NextSource() {
  static uint32_t number = 0;
  return (127u << 24 | 1u << 16) + 1 + number++ % 65'534;
}

void Run(std::string_view bytes) {
  static Endpoint endpoint;
  {
    RawClient client(endpoint.server->port(), NextSource());
    Require(client.is_open());
    Input input(bytes);
    std::string frames;
    while (!input.empty()) frames += NextFrame(input);
    client.Send(frames);
    client.EndSending();
    RawClient::ReadFrame frame;
    while (client.Read(frame)) {
    }
  }
  for (int i = 0; endpoint.budget.used_bytes() != 0; ++i) {
    Require(i < 10'000);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace
}  // namespace nereid::grpc

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  nereid::grpc::Run({reinterpret_cast<const char*>(data), size});
  return 0;
}
