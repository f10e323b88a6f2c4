// Tests of SocketServer: the assignment of connections to loops.
#include "net/socket_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

namespace nereid::net {
namespace {

constexpr const char* kServer = "127.0.0.1";
// a client with this address does not share the server's address
constexpr const char* kOther = "127.0.0.2";

sockaddr_in Address(const char* host, uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  inet_pton(AF_INET, host, &address.sin_addr);
  return address;
}

// Records the loop of each connection and keeps the sockets open.
class RecordingHandler final : public ConnectionHandler {
 public:
  bool Admit(int) override { return true; }
  void AddConnection(size_t loop, int fd) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    loops_.push_back(loop);
    fds_.push_back(fd);
    changed_.notify_all();
  }
  ~RecordingHandler() {
    for (const int fd : fds_) close(fd);
  }
  // Waits for `count` connections and returns their loops in the order of arrival.
  std::vector<size_t> Loops(size_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return loops_.size() >= count; });
    return loops_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<size_t> loops_;
  std::vector<int> fds_;
};

// Has memory for every second connection only.
class ForgetfulHandler final : public ConnectionHandler {
 public:
  bool Admit(int) override { return true; }
  void AddConnection(size_t loop, int fd) override {
    if (num_added_++ % 2 == 0) {
      close(fd);
      throw std::bad_alloc();
    }
    handler_.AddConnection(loop, fd);
  }
  std::vector<size_t> Loops(size_t count) { return handler_.Loops(count); }

 private:
  std::atomic<int> num_added_{0};
  RecordingHandler handler_;
};

TEST(SocketServerMemoryTest, TurnsClientsAwayWithoutMemoryForTheirConnections) {
  ForgetfulHandler handler;
  Result<std::unique_ptr<SocketServer>> server =
      SocketServer::Open({.address = {.host = kServer}, .num_loops = 2, .loop_name = "test-loop"});
  ASSERT_TRUE(server.ok()) << server.status().message();
  ASSERT_TRUE((*server)->Serve(handler).ok());
  const sockaddr_in address = Address(kServer, (*server)->port());
  std::vector<int> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(socket(AF_INET, SOCK_STREAM, 0));
    ASSERT_EQ(connect(clients.back(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
              0);
  }
  handler.Loops(4);
  (*server)->StopAccepting();
  (*server)->StopLoops();
  EXPECT_EQ((*server)->num_open(), 4u);
  for (const int client : clients) close(client);
}

class SocketServerTest : public testing::Test {
 protected:
  void SetUp() override {
    // Pins this thread to one core. Its number determines the loop that local connections prefer.
    ASSERT_EQ(sched_getaffinity(0, sizeof(all_cores_), &all_cores_), 0);
    while (!CPU_ISSET(core_, &all_cores_)) ++core_;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core_, &one);
    Result<std::unique_ptr<SocketServer>> port = SocketServer::Open(
        {.address = {.host = kServer}, .num_loops = 4, .loop_name = "test-loop"});
    ASSERT_TRUE(port.ok()) << port.status().message();
    socket_server_ = std::move(port).value();
    ASSERT_TRUE(socket_server_->Serve(handler_).ok());
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  }
  void TearDown() override {
    sched_setaffinity(0, sizeof(all_cores_), &all_cores_);
    socket_server_->StopAccepting();
    socket_server_->StopLoops();
    for (const int fd : clients_) close(fd);
  }

  // Opens `count` connections from `address`, one after the other. Returns their number per loop.
  std::vector<int> Connect(int count, const char* address) {
    std::vector<int> connections(socket_server_->num_loops());
    for (int i = 0; i < count; ++i) {
      const int fd = socket(AF_INET, SOCK_STREAM, 0);
      clients_.push_back(fd);
      const sockaddr_in from = Address(address, 0), to = Address(kServer, socket_server_->port());
      EXPECT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&from), sizeof(from)), 0);
      EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
      ++connections[handler_.Loops(clients_.size()).back()];
    }
    return connections;
  }
  size_t preferred() const { return core_ % socket_server_->num_loops(); }

  RecordingHandler handler_;
  std::unique_ptr<SocketServer> socket_server_;
  std::vector<int> clients_;
  cpu_set_t all_cores_;
  size_t core_ = 0;
};

TEST_F(SocketServerTest, DistributesRemoteClientsEvenly) {
  EXPECT_EQ(Connect(8, kOther), std::vector<int>(4, 2));
  EXPECT_EQ(socket_server_->num_open(), 8u);
}

TEST_F(SocketServerTest, KeepsTheConnectionsOfALocalThreadOnOneLoop) {
  std::vector<int> expected(4);
  expected[preferred()] = 4;
  EXPECT_EQ(Connect(4, kServer), expected);
}

TEST_F(SocketServerTest, LimitsTheLeadOfALoopToFourConnections) {
  std::vector<int> expected(4, 9);
  expected[preferred()] = 13;
  EXPECT_EQ(Connect(40, kServer), expected);
}

TEST_F(SocketServerTest, StopsCountingClosedConnections) {
  Connect(8, kOther);
  socket_server_->OnClosed(2);
  socket_server_->OnClosed(2);
  EXPECT_EQ(socket_server_->num_open(), 6u);
  EXPECT_EQ(Connect(2, kOther), (std::vector<int>{0, 0, 2, 0}));
}

}  // namespace
}  // namespace nereid::net
