// Calls over real sockets, answered from other threads: every call ends exactly once, whatever its
// client does.
#include "host/frontend/grpc/transport/http2_server.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "host/frontend/http/bodies/compression.h"
#include "tests/host/frontend/grpc/raw_client.h"

namespace nereid::grpc {
namespace {

constexpr char kEcho[] = "/test/Echo";
constexpr char kEchoStream[] = "/test/EchoStream";
constexpr char kNever[] = "/test/Never";
constexpr char kFullStream[] = "/test/FullStream";
constexpr char kSize[] = "/test/Size";
constexpr char kMetadata[] = "/test/Metadata";

// Two threads on which services answer.
class Workers {
 public:
  Workers() {
    for (std::thread& thread : threads_) thread = std::thread([this] { Run(); });
  }
  ~Workers() {
    {
      const std::lock_guard lock(mutex_);
      is_stopping_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  void Post(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_one();
  }

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return is_stopping_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool is_stopping_ = false;
  std::thread threads_[2];
};

// State shared by all calls of a test.
struct TestContext {
  std::atomic<int> num_started{0};
  std::atomic<int> num_done{0};
  Workers workers;
};

// Answers from a worker thread, or never if started without a message; then it waits for
// cancellation.
class Echo final : public CallHandler, public std::enable_shared_from_this<Echo> {
 public:
  Echo(TestContext& context, Call& call) : context_(context), call_(call) {
    ++context_.num_started;
  }
  CallHandler* Start(const Slice* message) {
    self_ = shared_from_this();
    if (message != nullptr) {
      context_.workers.Post([self = self_, bytes = *message] {
        if (!self->is_finished_.exchange(true)) self->call_.FinishWith(WireMessage(bytes));
      });
    }
    return this;
  }

 private:
  void OnCancel() override {
    if (!is_finished_.exchange(true)) call_.Finish({GrpcCode::kCancelled, "cancelled"});
  }
  void OnDone() override {
    ++context_.num_done;
    self_.reset();
  }

  TestContext& context_;
  Call& call_;
  std::atomic<bool> is_finished_{false};
  std::shared_ptr<Echo> self_;
};

// Echoes each message from a worker thread.
class EchoStream final : public CallHandler, public std::enable_shared_from_this<EchoStream> {
 public:
  EchoStream(TestContext& context, Call& call) : context_(context), call_(call) {
    ++context_.num_started;
  }
  CallHandler* Start() {
    self_ = shared_from_this();
    call_.Read();
    return this;
  }

 private:
  void OnReadDone(const Slice* message) override {
    if (message == nullptr) return End();
    is_writing_ = true;
    context_.workers.Post(
        [self = self_, bytes = *message] { self->call_.Write(WireMessage(bytes)); });
  }
  void OnWriteDone() override {
    is_writing_ = false;
    if (is_end_requested_) return End();
    call_.Read();
  }
  void OnCancel() override { End(); }
  void OnDone() override {
    ++context_.num_done;
    self_.reset();
  }
  void End() {
    is_end_requested_ = true;
    if (is_writing_ || std::exchange(is_finished_, true)) return;
    call_.Finish({});
  }

  TestContext& context_;
  Call& call_;
  bool is_writing_ = false;
  bool is_end_requested_ = false;
  bool is_finished_ = false;
  std::shared_ptr<EchoStream> self_;
};

// Sends one message and holds back others until the client has read it, which it never has.
class FullStream final : public CallHandler, public std::enable_shared_from_this<FullStream> {
 public:
  FullStream(TestContext& context, Call& call) : context_(context), call_(call) {
    ++context_.num_started;
  }
  CallHandler* Start() {
    self_ = shared_from_this();
    call_.Write(WireMessage(Slice::Of(std::string(100'000, 'x'))));
    call_.SetFull(true);
    return this;
  }

 private:
  void OnWriteDone() override {
    is_written_ = true;
    if (is_cancelled_) call_.Finish({});
  }
  void OnCancel() override {
    is_cancelled_ = true;
    if (is_written_) call_.Finish({});
  }
  void OnDone() override {
    ++context_.num_done;
    self_.reset();
  }

  TestContext& context_;
  Call& call_;
  bool is_written_ = false;
  bool is_cancelled_ = false;
  std::shared_ptr<FullStream> self_;
};

class GrpcTransportTest : public testing::Test {
 protected:
  GrpcTransportTest() { options_.address = "127.0.0.1"; }
  void SetUp() override {
    options_.port = 0;
    methods_.Add(kEcho, {.unary =
                             [this](Call& call, const Slice& message) {
                               return std::make_shared<Echo>(context_, call)->Start(&message);
                             },
                         .stream = nullptr});
    methods_.Add(kNever, {.unary =
                              [this](Call& call, const Slice&) {
                                return std::make_shared<Echo>(context_, call)->Start(nullptr);
                              },
                          .stream = nullptr});
    methods_.Add(kSize,
                 {.unary = [this](Call& call, const Slice& message) -> CallHandler* {
                    ++context_.num_started;
                    call.FinishWith(WireMessage(Slice::Of(StrCat(message.bytes.size(), " bytes"))));
                    return nullptr;
                  },
                  .stream = nullptr});
    methods_.Add(kMetadata, {.unary = [](Call& call, const Slice&) -> CallHandler* {
                               std::string text;
                               for (const auto& [name, value] : call.metadata()) {
                                 text.append(name).append("=").append(value).append(";");
                               }
                               call.FinishWith(WireMessage(Slice::Of(std::move(text))));
                               return nullptr;
                             },
                             .stream = nullptr});
    methods_.Add(kEchoStream, {.unary = nullptr, .stream = [this](Call& call) {
                                 return std::make_shared<EchoStream>(context_, call)->Start();
                               }});
    methods_.Add(kFullStream, {.unary = nullptr, .stream = [this](Call& call) {
                                 return std::make_shared<FullStream>(context_, call)->Start();
                               }});
    auto server = Http2Server::Start(options_, methods_);
    ASSERT_TRUE(server.ok()) << server.status().message();
    server_ = std::move(server).value();
  }

  // Waits for the end of a stream: returns 0 for trailers, else the HTTP/2 error code of the reset.
  static uint32_t EndOf(RawClient& client, uint32_t stream) {
    RawClient::ReadFrame frame;
    while (client.Read(frame)) {
      if (frame.stream != stream) continue;
      if (frame.type == kReset) return static_cast<uint8_t>(frame.payload.back());
      if (frame.type == kHeaders && (frame.flags & kEndStream) != 0) return 0;
    }
    ADD_FAILURE() << "stream " << stream << ": the connection ended first";
    return UINT32_MAX;
  }

  TestContext context_;
  GrpcOptions options_;
  MethodTable methods_;
  std::unique_ptr<Http2Server> server_;
};

std::string WholeCall(uint32_t stream, std::string_view path, std::string_view message) {
  return Frame(kHeaders, kEndHeaders, stream, CallHeaders(path)) +
         Frame(kData, kEndStream, stream, Framed(message));
}

TEST_F(GrpcTransportTest, AnswersManyCallsOfOneConnection) {
  constexpr uint32_t kNumCalls = 200;
  RawClient client(server_->port());
  ASSERT_TRUE(client.is_open());
  std::string frames;
  for (uint32_t i = 0; i < kNumCalls; ++i) {
    frames += WholeCall(2 * i + 1, kEcho, "call " + std::to_string(i));
  }
  client.Send(frames);
  std::set<uint32_t> ended;
  RawClient::ReadFrame frame;
  while (ended.size() < kNumCalls && client.Read(frame)) {
    if (frame.type == kData) {
      EXPECT_EQ(frame.payload, Framed("call " + std::to_string(frame.stream / 2)));
    }
    if (frame.type == kHeaders && (frame.flags & kEndStream) != 0) ended.insert(frame.stream);
  }
  EXPECT_EQ(ended.size(), kNumCalls);
}

TEST_F(GrpcTransportTest, EchoesEachMessageOfAStream) {
  RawClient client(server_->port());
  std::string frames = Frame(kHeaders, kEndHeaders, 1, CallHeaders(kEchoStream));
  std::string expected;
  for (int i = 0; i < 50; ++i) {
    const std::string message = Framed(std::string(i * 10, 'x'));
    frames += Frame(kData, kNoFlag, 1, message.substr(0, 7)) +
              Frame(kData, i == 49 ? kEndStream : kNoFlag, 1,
                    message.substr(std::min<size_t>(7, message.size())));
    expected += message;
  }
  client.Send(frames);
  std::string received;
  RawClient::ReadFrame frame;
  while (client.Read(frame)) {
    if (frame.type == kData) received += frame.payload;
    if (frame.type == kHeaders && (frame.flags & kEndStream) != 0) break;
  }
  EXPECT_EQ(received, expected);
}

TEST_F(GrpcTransportTest, CancelsCallsOfClientsThatDisconnect) {
  {
    RawClient client(server_->port());
    client.Send(WholeCall(1, kNever, "") + WholeCall(3, kEcho, "x"));
    RawClient::ReadFrame frame;
    while (client.Read(frame) && !(frame.type == kHeaders && (frame.flags & kEndStream) != 0)) {
    }
  }
  server_->Stop(std::chrono::seconds(60));
  EXPECT_EQ(context_.num_started, 2);
  EXPECT_EQ(context_.num_done, 2);
}

TEST_F(GrpcTransportTest, StopsImmediatelyWithCallsInFlight) {
  RawClient client(server_->port());
  client.Send(WholeCall(1, kNever, "") + Frame(kHeaders, kEndHeaders, 3, CallHeaders(kEchoStream)) +
              WholeCall(5, kEcho, "x"));
  RawClient::ReadFrame frame;
  while (client.Read(frame) && !(frame.type == kHeaders && (frame.flags & kEndStream) != 0)) {
  }
  server_->Stop(std::chrono::milliseconds(0));
  EXPECT_EQ(context_.num_done, 3);
}

TEST_F(GrpcTransportTest, EndsAUnaryCallAtItsSecondMessage) {
  RawClient client(server_->port());
  client.Send(Frame(kHeaders, kEndHeaders, 1, CallHeaders(kEcho)) +
              Frame(kData, kNoFlag, 1, Framed("first")) +
              Frame(kData, kNoFlag, 1, Framed("second").substr(0, 1)) + WholeCall(3, kEcho, "x"));
  EXPECT_EQ(EndOf(client, 1), 0u);
  EXPECT_EQ(EndOf(client, 3), 0u) << "the connection stays open";
  EXPECT_EQ(context_.num_started, 1);
}

TEST_F(GrpcTransportTest, RejectsAnInvalidTimeout) {
  RawClient client(server_->port());
  client.Send(Frame(kHeaders, kEndHeaders, 1, CallHeaders(kEcho) + Header("grpc-timeout", "soon")) +
              Frame(kData, kEndStream, 1, Framed("x")) + WholeCall(3, kEcho, "x"));
  EXPECT_EQ(EndOf(client, 1), 0u);
  EXPECT_EQ(EndOf(client, 3), 0u);
  EXPECT_EQ(context_.num_started, 1);
}

TEST_F(GrpcTransportTest, DecodesEachValueOfABinaryHeader) {
  RawClient client(server_->port());
  client.Send(Frame(kHeaders, kEndHeaders, 1,
                    CallHeaders(kMetadata) + Header("a-bin", "AGI=, Yw,,") + Header("b", "AGI=")) +
              Frame(kData, kEndStream, 1, Framed("")));
  RawClient::ReadFrame frame;
  while (client.Read(frame) && frame.type != kData) {
  }
  const std::string expected("a-bin=\0b;a-bin=c;a-bin=;a-bin=;b=AGI=;", 38);
  EXPECT_EQ(frame.payload, Framed(expected));
}

TEST_F(GrpcTransportTest, RejectsABinaryHeaderThatIsNotBase64) {
  RawClient client(server_->port());
  client.Send(Frame(kHeaders, kEndHeaders, 1, CallHeaders(kEcho) + Header("a-bin", "AAEC,!!!!")) +
              Frame(kData, kEndStream, 1, Framed("x")) + WholeCall(3, kEcho, "x"));
  EXPECT_EQ(EndOf(client, 1), 0u);
  EXPECT_EQ(EndOf(client, 3), 0u);
  EXPECT_EQ(context_.num_started, 1);
}

TEST_F(GrpcTransportTest, EndsTheConnectionAtADecreasingStreamId) {
  constexpr uint8_t kGoaway = 7;
  RawClient client(server_->port());
  client.Send(WholeCall(5, kEcho, "x") + WholeCall(3, kEcho, "y"));
  RawClient::ReadFrame frame;
  while (client.Read(frame) && frame.type != kGoaway) {
  }
  ASSERT_EQ(frame.type, kGoaway);
  EXPECT_EQ(frame.payload.substr(4, 4), Number(1, 4));  // PROTOCOL_ERROR
  while (client.Read(frame)) EXPECT_NE(frame.stream, 3u);
}

std::string CompressedCall(uint32_t stream, size_t num_zeros) {
  const std::string zeros(num_zeros, '\0');
  const std::string_view piece = zeros;
  const std::string packed = http::Compress(http::Encoding::kGzip, {&piece, 1});
  std::string frames =
      Frame(kHeaders, kEndHeaders, stream, CallHeaders(kSize) + Header("grpc-encoding", "gzip"));
  const std::string message = '\1' + Number(packed.size(), 4) + packed;
  for (size_t at = 0; at < message.size(); at += 16'000) {
    const bool is_last = at + 16'000 >= message.size();
    frames += Frame(kData, is_last ? kEndStream : kNoFlag, stream, message.substr(at, 16'000));
  }
  return frames;
}

// Reads until all of these streams have ended, in whatever order. Returns the DATA of each.
std::map<uint32_t, std::string> DataOf(RawClient& client, std::set<uint32_t> streams) {
  std::map<uint32_t, std::string> data;
  RawClient::ReadFrame frame;
  while (!streams.empty() && client.Read(frame)) {
    if (streams.count(frame.stream) == 0) continue;
    if (frame.type == kData) data[frame.stream] += frame.payload;
    if (frame.type == kReset || (frame.flags & kEndStream) != 0) streams.erase(frame.stream);
  }
  EXPECT_TRUE(streams.empty()) << "stream " << *streams.begin() << ": the connection ended first";
  return data;
}

class GrpcLimitsTest : public GrpcTransportTest {
 protected:
  void SetUp() override {
    options_.max_message_bytes = 8 << 20;
    options_.max_streams_per_connection = 10;
    options_.budget = &budget_;
    GrpcTransportTest::SetUp();
  }
  void TearDown() override { server_.reset(); }  // the budget outlives its connections

  ByteBudget budget_{20 << 20};
};

TEST_F(GrpcLimitsTest, DecompressesLargeMessagesInSteps) {
  RawClient client(server_->port());
  client.Send(CompressedCall(1, 8 << 20) + WholeCall(3, kEcho, "x"));
  const std::map<uint32_t, std::string> data = DataOf(client, {1, 3});
  EXPECT_EQ(data.at(1).substr(5), "8388608 bytes");
  EXPECT_EQ(data.at(3).substr(5), "x") << "other calls are answered between the steps";
}

TEST_F(GrpcLimitsTest, RejectsMessagesThatExpandBeyondTheLimit) {
  RawClient client(server_->port());
  client.Send(CompressedCall(1, (8 << 20) + 1));
  EXPECT_EQ(EndOf(client, 1), 0u);
  EXPECT_EQ(context_.num_started, 0);
  client.Send(CompressedCall(3, 1 << 20).substr(0, 500));  // the client leaves
}

TEST_F(GrpcLimitsTest, RefusesOnlyTheCallThatExceedsTheBudget) {
  ByteReservation others(&budget_);
  ASSERT_TRUE(others.GrowTo(19 << 20));
  {
    RawClient client(server_->port());
    client.Send(CompressedCall(1, 4 << 20) + WholeCall(3, kEcho, "x"));
    EXPECT_EQ(DataOf(client, {1, 3}), (std::map<uint32_t, std::string>{{3, Framed("x")}}));
    others.Clear();
    client.Send(CompressedCall(5, 4 << 20));
    EXPECT_EQ(DataOf(client, {5}).at(5).substr(5), "4194304 bytes");
  }
  server_->Stop(std::chrono::seconds(60));
  EXPECT_EQ(budget_.used_bytes(), 0u);
}

TEST_F(GrpcLimitsTest, ClosesConnectionsWithTooManyCalls) {
  std::string frames;
  for (uint32_t stream = 1; stream < 40; stream += 2) {
    frames += Frame(kHeaders, kEndHeaders, stream, CallHeaders(kNever));
  }
  RawClient client(server_->port());
  RawClient::ReadFrame frame;
  while (client.Read(frame) && frame.type != kSettings) {
  }
  client.Send(Frame(kSettings, 1, 0, "") + frames);
  while (client.Read(frame)) {
  }
  RawClient other(server_->port());
  other.Send(WholeCall(1, kEcho, "x"));
  EXPECT_EQ(EndOf(other, 1), 0u);
}

class GrpcReadTimeoutTest : public GrpcTransportTest {
 protected:
  void SetUp() override {
    options_.read_timeout_ms = 50;
    GrpcTransportTest::SetUp();
  }
};

TEST_F(GrpcReadTimeoutTest, EndsCallsWhoseRequestStopsArriving) {
  RawClient client(server_->port());
  client.Send(Frame(kHeaders, kEndHeaders, 1, CallHeaders(kEchoStream)) +
              Frame(kHeaders, kEndHeaders, 3, CallHeaders(kEcho)) +
              Frame(kHeaders, kEndHeaders, 5, CallHeaders(kEcho)) +
              Frame(kData, kNoFlag, 5, Framed("no half-close")) +
              Frame(kHeaders, kEndHeaders, 7, CallHeaders(kEchoStream)) +
              Frame(kData, kNoFlag, 7, Framed("a part").substr(0, 6)));
  std::set<uint32_t> ended;
  RawClient::ReadFrame frame;
  while (ended.size() < 3 && client.Read(frame)) {
    if (frame.type == kHeaders && (frame.flags & kEndStream) != 0) ended.insert(frame.stream);
  }
  EXPECT_EQ(ended, (std::set<uint32_t>{3, 5, 7}));
  client.Send(Frame(kData, kEndStream, 1, Framed("late")));
  EXPECT_EQ(DataOf(client, {1})[1], Framed("late")) << "a stream may pause between messages";
}

TEST_F(GrpcReadTimeoutTest, ClosesConnectionsWhoseHeadersStopArriving) {
  RawClient client(server_->port());
  client.Send(Frame(kHeaders, kNoFlag, 1, CallHeaders(kEcho)));
  RawClient::ReadFrame frame;
  while (client.Read(frame)) {
  }
  EXPECT_EQ(context_.num_started, 0);
}

class GrpcIdleTimeoutTest : public GrpcTransportTest {
 protected:
  void SetUp() override {
    options_.stream_idle_timeout_ms = 50;
    GrpcTransportTest::SetUp();
  }
};

TEST_F(GrpcIdleTimeoutTest, EndsStreamsOnWhichNothingIsSent) {
  RawClient client(server_->port());
  const std::string headers = CallHeaders(kEchoStream);
  client.Send(Frame(kHeaders, kEndHeaders, 1, headers) + Frame(kHeaders, kEndHeaders, 3, headers) +
              Frame(kData, kNoFlag, 3, Framed("and then nothing")));
  EXPECT_EQ(EndOf(client, 1), 0u);
  EXPECT_EQ(EndOf(client, 3), 0u);
  client.Send(WholeCall(5, kEcho, "x"));
  EXPECT_EQ(EndOf(client, 5), 0u) << "the connection stays open";
}

TEST_F(GrpcIdleTimeoutTest, KeepsStreamsWhoseClientsHaveSentEverything) {
  RawClient client(server_->port());
  client.Send(Frame(kHeaders, kEndHeaders, 1, CallHeaders(kEchoStream)) + WholeCall(3, kNever, ""));
  EXPECT_EQ(EndOf(client, 1), 0u);
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  EXPECT_EQ(context_.num_done, 1) << "the other call may take as long as it likes";
}

TEST_F(GrpcTransportTest, StopsWithinABoundIfAServiceFinishesNoCall) {
  class Deaf final : public CallHandler {};
  Deaf deaf;
  Call* call = nullptr;
  MethodTable methods;
  methods.Add(kNever, {.unary = [&](Call& started, const Slice&) -> CallHandler* {
                         call = &started;
                         return &deaf;
                       },
                       .stream = nullptr});
  GrpcOptions options = options_;
  auto server = Http2Server::Start(options, methods);
  ASSERT_TRUE(server.ok()) << server.status().message();
  RawClient client((*server)->port());
  client.Send(WholeCall(1, kNever, "") + Frame(kPing, kNoFlag, 0, std::string(8, 'p')));
  RawClient::ReadFrame frame;
  while (client.Read(frame) && frame.type != kPing) {
  }
  EXPECT_EQ((*server)->Stop(std::chrono::milliseconds(0)), 1u);
  EXPECT_EQ((*server)->num_calls(), 1u);
  call->Finish({});
}

class GrpcWriteTimeoutTest : public GrpcTransportTest {
 protected:
  void SetUp() override {
    options_.write_timeout_ms = 50;
    GrpcTransportTest::SetUp();
  }
};

TEST_F(GrpcWriteTimeoutTest, DropsResponsesThatAreNotRead) {
  constexpr uint32_t kCancel = 8;
  RawClient client(server_->port());
  const std::string window = Number(4, 2) + Number(20, 4);  // SETTINGS_INITIAL_WINDOW_SIZE
  client.Send(Frame(kSettings, kNoFlag, 0, window) +
              WholeCall(1, kEcho, "longer than the stream window") + WholeCall(3, kEcho, "x"));
  EXPECT_EQ(EndOf(client, 1), kCancel);
  client.Send(WholeCall(5, kEcho, "short"));
  EXPECT_EQ(EndOf(client, 5), 0U) << "the connection stays open";
  server_->Stop(std::chrono::seconds(60));
  EXPECT_EQ(context_.num_done, 3);
}

TEST_F(GrpcWriteTimeoutTest, KeepsStreamsThatPause) {
  RawClient client(server_->port());
  const std::string window = Number(4, 2) + Number(20, 4);
  client.Send(Frame(kSettings, kNoFlag, 0, window) +
              Frame(kHeaders, kEndHeaders, 1, CallHeaders(kEchoStream)) +
              Frame(kData, kNoFlag, 1, Framed("longer than the stream window")) +
              WholeCall(3, kEcho, "longer than the stream window"));
  EXPECT_NE(EndOf(client, 3), 0U);
  client.Send(Frame(kWindowUpdate, kNoFlag, 1, Number(1000, 4)) + Frame(kData, kEndStream, 1, ""));
  EXPECT_EQ(EndOf(client, 1), 0U);
}

TEST_F(GrpcWriteTimeoutTest, ResetsFullStreamsThatAreNotRead) {
  constexpr uint32_t kCancel = 8;
  RawClient client(server_->port());
  const std::string window = Number(4, 2) + Number(20, 4);  // of one stream
  client.Send(Frame(kSettings, kNoFlag, 0, window) +
              Frame(kHeaders, kEndHeaders, 1, CallHeaders(kFullStream)));
  EXPECT_EQ(EndOf(client, 1), kCancel);
  client.Send(WholeCall(3, kEcho, "short"));
  EXPECT_EQ(EndOf(client, 3), 0U) << "the connection stays open";
}

TEST_F(GrpcWriteTimeoutTest, ResetsFullStreamsThatAreReadByTheByte) {
  constexpr uint32_t kCancel = 8;
  RawClient client(server_->port());
  client.Send(Frame(kHeaders, kEndHeaders, 1, CallHeaders(kFullStream)));
  std::atomic<bool> has_ended{false};
  std::thread reader([&] {
    while (!has_ended) {
      client.Send(Frame(kWindowUpdate, kNoFlag, 1, Number(1, 4)));
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  EXPECT_EQ(EndOf(client, 1), kCancel);
  has_ended = true;
  reader.join();
}

class GrpcAnyAddressTest : public GrpcTransportTest {
 protected:
  void SetUp() override {
    options_.address = "0.0.0.0";
    GrpcTransportTest::SetUp();
  }
};

TEST_F(GrpcAnyAddressTest, AcceptsIpv4AndIpv6Clients) {
  EXPECT_TRUE(RawClient(server_->port()).is_open());
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  const int probe = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (probe < 0 || bind(probe, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    if (probe >= 0) close(probe);
    GTEST_SKIP() << "this machine has no IPv6";
  }
  close(probe);
  const int client = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  address.sin6_port = htons(server_->port());
  EXPECT_EQ(connect(client, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  close(client);
}

TEST_F(GrpcTransportTest, EndsEveryCallOfMisbehavingClients) {
  std::minstd_rand random(20261122);
  const char* const paths[] = {kEcho, kEchoStream, kNever, "/test/Unknown"};
  for (int round = 0; round < 60; ++round) {
    RawClient client(server_->port());
    std::string frames;
    for (uint32_t stream = 1; stream < 40; stream += 2) {
      frames += Frame(kHeaders, kEndHeaders, stream, CallHeaders(paths[random() % 4]));
      const std::string message = Framed(std::string(random() % 300, 'x'));
      frames +=
          Frame(kData, random() % 2 == 0 ? kEndStream : kNoFlag, stream,
                message.substr(0, random() % 4 == 0 ? random() % message.size() : message.size()));
      if (random() % 3 == 0)
        frames += Frame(kReset, kNoFlag, 1 + 2 * (random() % 20), Number(8, 4));
    }
    if (random() % 4 == 0) frames[random() % frames.size()] ^= 0x40;
    client.Send(std::string_view(frames).substr(0, frames.size() - random() % 50));
    RawClient::ReadFrame frame;
    for (size_t i = random() % 8; i > 0 && client.Read(frame); --i) {
      if (frame.type != kSettings && frame.type != kData && frame.type != kHeaders) break;
    }
  }
  server_->Stop(std::chrono::milliseconds(0));
  EXPECT_GT(context_.num_started, 0);
  EXPECT_EQ(context_.num_done, context_.num_started);
}

}  // namespace
}  // namespace nereid::grpc
