// Tests of Listener: free ports, ports and paths in use, and stale socket files.
#include "net/listener.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace nereid::net {
namespace {

TEST(ListenerTest, ReportsTheFreePortThatItChose) {
  const Result<Listener> first = Listener::Open({.host = "127.0.0.1"});
  ASSERT_TRUE(first.ok()) << first.status().message();
  EXPECT_NE(first->port(), 0);
  EXPECT_GE(first->fd(), 0);
}

TEST(ListenerTest, RejectsAPortInUseAndNamesIt) {
  const Result<Listener> first = Listener::Open({.host = "127.0.0.1"});
  ASSERT_TRUE(first.ok()) << first.status().message();
  const Result<Listener> second = Listener::Open({.host = "127.0.0.1", .port = first->port()});
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().message().find(StrCat("127.0.0.1:", first->port())), std::string::npos)
      << second.status().message();
}

TEST(ListenerTest, RejectsAnUnknownHostName) {
  const Result<Listener> listener = Listener::Open({.host = "not an address"});
  ASSERT_FALSE(listener.ok());
  EXPECT_NE(listener.status().message().find("'not an address'"), std::string::npos);
}

TEST(ListenerTest, MovesItsSocket) {
  Result<Listener> first = Listener::Open({.host = "127.0.0.1"});
  ASSERT_TRUE(first.ok()) << first.status().message();
  const uint16_t port = first->port();
  Listener second = std::move(first).value();
  EXPECT_EQ(second.port(), port);
  second.Close();
  EXPECT_LT(second.fd(), 0);
  EXPECT_TRUE(Listener::Open({.host = "127.0.0.1", .port = port}).ok());
}

class UnixListenerTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(mkdtemp(folder_), nullptr); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path() const { return StrCat(folder_, "/socket"); }
  Result<Listener> Open(const std::string& prefix = "unix:") const {
    return Listener::Open({.host = prefix + path()});
  }
  bool Exists() const {
    struct stat info;
    return stat(path().c_str(), &info) == 0;
  }

 private:
  // short, because the length of a socket path is limited
  char folder_[32] = "/tmp/nereid-listener-XXXXXX";
};

TEST_F(UnixListenerTest, RemovesItsPathOnClose) {
  for (const char* prefix : {"unix:", "unix://"}) {
    Result<Listener> listener = Open(prefix);
    ASSERT_TRUE(listener.ok()) << listener.status().message();
    EXPECT_EQ(listener->port(), 0);
    EXPECT_TRUE(Exists());
    listener->Close();
    EXPECT_FALSE(Exists());
  }
}

TEST_F(UnixListenerTest, RejectsThePathOfARunningServer) {
  const Result<Listener> first = Open();
  ASSERT_TRUE(first.ok()) << first.status().message();
  const Result<Listener> second = Open();
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().message().find(path()), std::string::npos);
  EXPECT_TRUE(Exists());
}

TEST_F(UnixListenerTest, ReplacesTheStaleSocketOfADeadServer) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path().copy(address.sun_path, sizeof(address.sun_path) - 1);
  const int dead = socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(bind(dead, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  close(dead);  // the socket file remains
  ASSERT_TRUE(Exists());
  const Result<Listener> living = Open();
  EXPECT_TRUE(living.ok()) << living.status().message();
}

TEST_F(UnixListenerTest, RejectsAPathThatIsTooLong) {
  const Result<Listener> listener = Listener::Open({.host = "unix:/" + std::string(200, 'x')});
  ASSERT_FALSE(listener.ok());
  EXPECT_NE(listener.status().message().find("got 201"), std::string::npos)
      << listener.status().message();
}

}  // namespace
}  // namespace nereid::net
