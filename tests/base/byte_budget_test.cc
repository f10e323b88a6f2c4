// ByteBudget never lends more than its limit, and every reservation returns what it took.
#include "base/byte_budget.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace nereid {
namespace {

TEST(ByteBudgetTest, RefusesWhatExceedsTheLimitAndChangesNothing) {
  ByteBudget budget(100);
  ByteReservation first(&budget);
  ByteReservation second(&budget);
  EXPECT_TRUE(first.GrowTo(60));
  EXPECT_FALSE(second.GrowTo(41));
  EXPECT_EQ(second.bytes(), 0u);
  EXPECT_EQ(budget.used_bytes(), 60u);
  EXPECT_EQ(budget.num_refused(), 1u);
  EXPECT_TRUE(second.GrowBy(40));
  EXPECT_EQ(budget.used_bytes(), 100u);
}

TEST(ByteBudgetTest, DoesNotOverflowOnAbsurdSizes) {
  ByteBudget budget(100);
  ByteReservation some(&budget);
  ASSERT_TRUE(some.GrowTo(60));
  ByteReservation absurd(&budget);
  EXPECT_FALSE(absurd.GrowTo(SIZE_MAX - 10));
  EXPECT_FALSE(absurd.GrowTo(SIZE_MAX / 2));
  EXPECT_EQ(budget.used_bytes(), 60u);
}

TEST(ByteBudgetTest, ReturnsBytesWithTheReservation) {
  ByteBudget budget(100);
  {
    ByteReservation reservation(&budget);
    ASSERT_TRUE(reservation.GrowTo(80));
    EXPECT_TRUE(reservation.GrowTo(20));  // it is larger already
    EXPECT_EQ(budget.used_bytes(), 80u);
    reservation.ShrinkTo(50);
    EXPECT_EQ(budget.used_bytes(), 50u);
    ByteReservation moved = std::move(reservation);
    EXPECT_EQ(budget.used_bytes(), 50u);
    ByteReservation other(&budget);
    ASSERT_TRUE(other.GrowTo(10));
    other = std::move(moved);
    EXPECT_EQ(budget.used_bytes(), 50u);
  }
  EXPECT_EQ(budget.used_bytes(), 0u);
}

TEST(ByteBudgetTest, CountsWithoutALimit) {
  ByteBudget unlimited(0);
  ByteReservation reservation(&unlimited);
  EXPECT_TRUE(reservation.GrowTo(size_t{1} << 40));
  EXPECT_EQ(unlimited.used_bytes(), size_t{1} << 40);
  ByteReservation without_budget;
  EXPECT_TRUE(without_budget.GrowTo(size_t{1} << 40));
}

TEST(ByteBudgetTest, HoldsItsLimitAmongThreads) {
  constexpr size_t kMaxBytes = 1000;
  ByteBudget budget(kMaxBytes);
  std::atomic<bool> was_exceeded{false};
  std::atomic<size_t> num_held{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 5000; ++round) {
        ByteReservation reservation(&budget);
        if (!reservation.GrowTo(400)) continue;
        if (num_held.fetch_add(400) + 400 > kMaxBytes) was_exceeded = true;
        num_held.fetch_sub(400);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(was_exceeded);
  EXPECT_EQ(budget.used_bytes(), 0u);
}

TEST(CapacityOfClaimTest, GrowsWithWhatHasArrived) {
  constexpr size_t kClaim = size_t{2} << 30;
  EXPECT_EQ(CapacityOfClaim(kClaim, 1, 4096), 4096u);
  EXPECT_EQ(CapacityOfClaim(kClaim, 1000, 4096), 16'000u);
  EXPECT_EQ(CapacityOfClaim(kClaim, kClaim / 32 + 1, 4096), kClaim);
  EXPECT_EQ(CapacityOfClaim(1000, 0, 4096), 1000u);
  EXPECT_EQ(CapacityOfClaim(SIZE_MAX, SIZE_MAX / 2, 4096), SIZE_MAX);
}

TEST(CapacityOfClaimTest, CopiesLittle) {
  for (size_t claim = 200'000; claim < 1'000'000'000; claim += claim / 3 + 1) {
    size_t copied_bytes = 0;
    size_t capacity = CapacityOfClaim(claim, 0, 4096);
    while (capacity < claim) {
      copied_bytes += capacity;
      capacity = CapacityOfClaim(claim, capacity, 4096);
    }
    EXPECT_LE(copied_bytes, claim * 6 / 10 + 1) << claim;
  }
}

TEST(CapacityOfClaimTest, CopiesASixteenthOfWhatIsLittleLongerThanTheFirstMemory) {
  constexpr size_t kFirst = 1 << 20;
  EXPECT_EQ(CapacityOfClaim(kFirst, 0, kFirst), kFirst);
  for (const size_t claim : {kFirst + 100, 2 * kFirst, 16 * kFirst}) {
    const size_t capacity = CapacityOfClaim(claim, 0, kFirst);
    EXPECT_EQ(capacity, claim / 16);
    EXPECT_EQ(CapacityOfClaim(claim, capacity, kFirst), claim);
  }
}

TEST(BudgetShareTest, LimitsOneClientAndCountsInTheWhole) {
  ByteBudget whole(100);
  BudgetShare share(&whole, 60, "--share");
  ByteReservation a(share.budget()), b(&whole), c(share.budget());
  EXPECT_TRUE(a.GrowTo(50));
  EXPECT_FALSE(c.GrowTo(20)) << "the share is used up";
  EXPECT_EQ(share.budget()->tightest().flag(), "--share");
  EXPECT_TRUE(b.GrowTo(45));
  EXPECT_FALSE(c.GrowTo(7)) << "the whole is used up";
  EXPECT_EQ(&share.budget()->tightest(), &whole);
  EXPECT_EQ(whole.used_bytes(), 95u);
  EXPECT_EQ(whole.num_refused(), 2u);
  a.Clear();
  EXPECT_TRUE(c.GrowTo(55));
  EXPECT_EQ(whole.used_bytes(), 100u);
}

TEST(BudgetShareTest, ReservationsOutliveTheOwner) {
  ByteBudget whole(100);
  ByteReservation held, empty;
  {
    BudgetShare share(&whole, 60, "--share");
    held = ByteReservation(share.budget());
    empty = ByteReservation(share.budget());
    EXPECT_TRUE(held.GrowTo(50));
  }
  held.ShrinkTo(20);
  EXPECT_EQ(whole.used_bytes(), 20u);
  ByteReservation moved = std::move(held);
  moved.Clear();
  EXPECT_EQ(whole.used_bytes(), 0u);
}

TEST(BudgetShareTest, WithoutALimitIsTheWhole) {
  ByteBudget whole(100);
  EXPECT_EQ(BudgetShare(&whole, 0, "--share").budget(), &whole);
  EXPECT_EQ(BudgetShare(nullptr, 60, "--share").budget(), nullptr);
}

}  // namespace
}  // namespace nereid
