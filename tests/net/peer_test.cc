// Tests of IsPeerLocal.
#include "net/peer.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace nereid::net {
namespace {

// A connection over IPv4 to a socket that accepts IPv4 or, with `is_dual`, both families.
class Connection {
 public:
  explicit Connection(bool is_dual) {
    const int off = 0;
    const int listener = socket(is_dual ? AF_INET6 : AF_INET, SOCK_STREAM, 0);
    sockaddr_in6 any6 = {.sin6_family = AF_INET6};
    sockaddr_in any = {.sin_family = AF_INET};
    if (is_dual) setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    auto* const address = is_dual ? reinterpret_cast<sockaddr*>(&any6)  // NOLINT
                                  : reinterpret_cast<sockaddr*>(&any);
    socklen_t size = is_dual ? sizeof(any6) : sizeof(any);
    if (bind(listener, address, size) == 0 && listen(listener, 1) == 0 &&
        getsockname(listener, address, &size) == 0) {
      sockaddr_in server = {.sin_family = AF_INET,
                            .sin_port = is_dual ? any6.sin6_port : any.sin_port};
      inet_pton(AF_INET, "127.0.0.1", &server.sin_addr);
      client = socket(AF_INET, SOCK_STREAM, 0);
      if (connect(client, reinterpret_cast<sockaddr*>(&server), sizeof(server)) == 0) {
        accepted = accept(listener, nullptr, nullptr);
      }
    }
    close(listener);
  }
  ~Connection() {
    close(client);
    close(accepted);
  }
  int client = -1;
  int accepted = -1;
};

TEST(PeerTest, LoopbackAddressesAreLocal) {
  const Connection plain(/*is_dual=*/false);
  EXPECT_TRUE(IsPeerLocal(plain.accepted));
  const Connection mapped(/*is_dual=*/true);
  if (mapped.accepted < 0) GTEST_SKIP() << "no IPv6";
  EXPECT_TRUE(IsPeerLocal(mapped.accepted));
}

TEST(PeerTest, UnixSocketsAreLocal) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  EXPECT_TRUE(IsPeerLocal(pair[0]));
  close(pair[0]);
  close(pair[1]);
}

TEST(PeerTest, WhatIsNotConnectedIsNotLocal) {
  EXPECT_FALSE(IsPeerLocal(-1));
  const int unconnected = socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_FALSE(IsPeerLocal(unconnected));
  close(unconnected);
}

}  // namespace
}  // namespace nereid::net
