// Calls over real sockets, answered from other threads: every call ends exactly once, whatever its
// client does.
#include <random>

#include "tests/host/frontend/grpc/server_fixture.h"

namespace nereid::grpc {
namespace {

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
