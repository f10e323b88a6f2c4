// Which loop gets which client.
#include "host/frontend/http/transport/port.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

namespace nereid::http {
namespace {

constexpr const char* kServer = "127.0.0.1";
constexpr const char* kOther = "127.0.0.2";  // a client from there is not of the server's address

sockaddr_in Address(const char* host, uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  inet_pton(AF_INET, host, &address.sin_addr);
  return address;
}

// Keeps what it is dealt.
class Keeper final : public PortUser {
 public:
  bool Admit(int) override { return true; }
  void Adopt(size_t loop, int fd) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    loops_.push_back(loop);
    fds_.push_back(fd);
    changed_.notify_all();
  }
  ~Keeper() {
    for (const int fd : fds_) close(fd);
  }
  // The loops of the first `count` connections, once so many are there.
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

class PortTest : public testing::Test {
 protected:
  void SetUp() override {
    // One core for this thread, whose number says which loop its connections prefer.
    ASSERT_EQ(sched_getaffinity(0, sizeof(all_cores_), &all_cores_), 0);
    while (!CPU_ISSET(core_, &all_cores_)) ++core_;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core_, &one);
    Result<std::unique_ptr<Port>> port =
        Port::Open({.address = {.host = kServer}, .num_loops = 4, .loop_name = "test-loop"});
    ASSERT_TRUE(port.ok()) << port.status().message();
    port_ = std::move(port).value();
    ASSERT_TRUE(port_->Serve(keeper_).ok());
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  }
  void TearDown() override {
    sched_setaffinity(0, sizeof(all_cores_), &all_cores_);
    port_->StopAccepting();
    port_->StopLoops();
    for (const int fd : clients_) close(fd);
  }

  // The loops, by index, of `count` connections from `address`, one after the other.
  std::vector<int> Connect(int count, const char* address) {
    std::vector<int> connections(port_->num_loops());
    for (int i = 0; i < count; ++i) {
      const int fd = socket(AF_INET, SOCK_STREAM, 0);
      clients_.push_back(fd);
      const sockaddr_in from = Address(address, 0), to = Address(kServer, port_->port());
      EXPECT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&from), sizeof(from)), 0);
      EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
      ++connections[keeper_.Loops(clients_.size()).back()];
    }
    return connections;
  }
  size_t preferred() const { return core_ % port_->num_loops(); }

  Keeper keeper_;
  std::unique_ptr<Port> port_;
  std::vector<int> clients_;
  cpu_set_t all_cores_;
  size_t core_ = 0;
};

TEST_F(PortTest, DealsOtherMachinesClientsEvenly) {
  EXPECT_EQ(Connect(8, kOther), std::vector<int>(4, 2));
  EXPECT_EQ(port_->num_open(), 8u);
}

TEST_F(PortTest, KeepsTheConnectionsOfALocalThreadTogether) {
  std::vector<int> expected(4);
  expected[preferred()] = 4;
  EXPECT_EQ(Connect(4, kServer), expected);
}

TEST_F(PortTest, LetsNoLoopLeadByMoreThanFourConnections) {
  std::vector<int> expected(4, 9);
  expected[preferred()] = 13;
  EXPECT_EQ(Connect(40, kServer), expected);
}

TEST_F(PortTest, CountsWhatClosedNoMore) {
  Connect(8, kOther);
  port_->OnClosed(2);
  port_->OnClosed(2);
  EXPECT_EQ(port_->num_open(), 6u);
  EXPECT_EQ(Connect(2, kOther), (std::vector<int>{0, 0, 2, 0}));
}

}  // namespace
}  // namespace nereid::http
