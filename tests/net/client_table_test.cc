// ClientTable limits each remote client by itself, and forgets those that are gone.
#include "net/client_table.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "base/byte_budget.h"

namespace nereid::net {
namespace {

ClientAddress Address(uint16_t number) {
  ClientAddress address = {};
  address[0] = static_cast<uint8_t>(number >> 8);
  address[1] = static_cast<uint8_t>(number);
  return address;
}

TEST(ClientTableTest, LimitsTheConnectionsOfOneClient) {
  ClientTable table(nullptr, {.max_connections = 2});
  const ClientPlace first(&table, Address(1));
  auto second = std::make_unique<ClientPlace>(&table, Address(1));
  EXPECT_TRUE(first.is_admitted());
  EXPECT_TRUE(second->is_admitted());
  EXPECT_FALSE(ClientPlace(&table, Address(1)).is_admitted());
  EXPECT_TRUE(ClientPlace(&table, Address(2)).is_admitted()) << "another client";
  second.reset();
  EXPECT_TRUE(ClientPlace(&table, Address(1)).is_admitted()) << "one has closed";
}

TEST(ClientTableTest, LimitsTheMemoryOfOneClientOverAllItsConnections) {
  ByteBudget whole(100);
  ClientTable table(&whole, {.max_request_bytes = 50});
  const ClientPlace a(&table, Address(1)), b(&table, Address(1)), other(&table, Address(2));
  ByteReservation of_a(a.budget()), of_b(b.budget()), of_other(other.budget());
  EXPECT_TRUE(of_a.GrowTo(40));
  EXPECT_FALSE(of_b.GrowTo(20));
  EXPECT_EQ(b.budget()->tightest().flag(), "--max-client-memory-size");
  EXPECT_TRUE(of_other.GrowTo(50));
  EXPECT_EQ(whole.num_refused(), 1u);
  EXPECT_EQ(whole.used_bytes(), 90u);
}

TEST(ClientTableTest, AConnectionMayHaveAShareOfItsClients) {
  ByteBudget whole(100);
  ClientTable table(&whole, {.max_request_bytes = 50});
  ByteReservation held;
  {
    const ClientPlace place(&table, Address(1));
    const BudgetShare share(place.budget(), 30, "--connection");
    held = ByteReservation(share.budget());
    EXPECT_FALSE(held.GrowTo(31));
    EXPECT_EQ(whole.num_refused(), 1u);
    EXPECT_TRUE(held.GrowTo(30));
  }
  EXPECT_EQ(whole.used_bytes(), 30u);
  held.Clear();
  EXPECT_EQ(whole.used_bytes(), 0u);
}

TEST(ClientTableTest, AClientThatConnectsAgainHasNoMore) {
  ByteBudget whole(100);
  ClientTable table(&whole, {.max_request_bytes = 50});
  ByteReservation held;
  {
    const ClientPlace place(&table, Address(0));
    held = ByteReservation(place.budget());
    ASSERT_TRUE(held.GrowTo(40));
  }
  for (uint16_t i = 1; i < 1000; ++i) ClientPlace(&table, Address(i));
  const ClientPlace again(&table, Address(0));
  EXPECT_FALSE(ByteReservation(again.budget()).GrowTo(20));
}

TEST(ClientTableTest, ForgetsClientsThatAreGone) {
  ClientTable table(nullptr, {.max_connections = 1});
  std::vector<std::unique_ptr<ClientPlace>> places;
  for (uint16_t i = 0; i < 1000; ++i) {
    places.push_back(std::make_unique<ClientPlace>(&table, Address(i)));
  }
  EXPECT_EQ(table.size(), 1000u);
  places.clear();
  for (uint16_t i = 1000; i < 2000; ++i) ClientPlace(&table, Address(i));
  EXPECT_LE(table.size(), 64u);
}

TEST(ClientTableTest, LocalClientsHaveTheWhole) {
  ByteBudget whole(100);
  ClientTable table(&whole, {.max_connections = 1, .max_request_bytes = 50});
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  const ClientPlace a(&table, pair[0]), b(&table, pair[0]);
  EXPECT_TRUE(b.is_admitted());
  EXPECT_EQ(b.budget(), &whole);
  EXPECT_EQ(table.size(), 0u);
  close(pair[0]);
  close(pair[1]);
}

TEST(ClientTableTest, WithoutATableNothingIsLimited) {
  const ClientPlace place(nullptr, -1);
  EXPECT_TRUE(place.is_admitted());
  EXPECT_EQ(place.budget(), nullptr);
}

}  // namespace
}  // namespace nereid::net
