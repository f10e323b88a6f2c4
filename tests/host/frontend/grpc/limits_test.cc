// Limits of sizes, numbers and times: what exceeds one ends, and other calls go on.
#include "host/frontend/http/bodies/compression.h"
#include "tests/host/frontend/grpc/server_fixture.h"

namespace nereid::grpc {
namespace {

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

class GrpcConnectionMemoryTest : public GrpcTransportTest {
 protected:
  void SetUp() override {
    options_.budget = &budget_;
    options_.max_connection_memory_bytes = 200 << 10;
    GrpcTransportTest::SetUp();
  }
  void TearDown() override { server_.reset(); }  // the budget outlives its connections

  // Most of a call's message.
  static std::string BeginningOf(uint32_t stream) {
    const std::string message = Framed(std::string(120 << 10, 'm'));
    std::string frames = Frame(kHeaders, kEndHeaders, stream, CallHeaders(kSize));
    for (size_t at = 0; at < (112 << 10); at += 16 << 10) {
      frames += Frame(kData, kNoFlag, stream, message.substr(at, 16 << 10));
    }
    return frames;
  }

  ByteBudget budget_{1 << 20};
};

TEST_F(GrpcConnectionMemoryTest, RefusesWhatExceedsTheShareOfAConnection) {
  RawClient client(server_->port()), other(server_->port());
  RawClient::ReadFrame frame;
  while (client.Read(frame) && frame.type != kWindowUpdate) {  // of the connection
  }
  client.Send(Frame(kSettings, 1, 0, "") + BeginningOf(1) + BeginningOf(3));
  EXPECT_EQ(EndOf(client, 3), 0u);
  EXPECT_EQ(budget_.num_refused(), 1u);
  other.Send(WholeCall(1, kSize, std::string(16'000, 'm')));
  EXPECT_EQ(EndOf(other, 1), 0u);
  EXPECT_EQ(context_.num_started, 1) << "other clients have their own share";
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

}  // namespace
}  // namespace nereid::grpc
