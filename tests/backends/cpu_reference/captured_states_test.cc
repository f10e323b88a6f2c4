// Hidden states of chosen layers, side by side.
#include "backends/cpu_reference/model/captured_states.h"

#include <gtest/gtest.h>

namespace nereid::cpu {
namespace {

TEST(CapturedStatesTest, TheChosenLayersOfATokenLieSideBySide) {
  CapturedStates captured(/*hidden_size=*/2);
  const std::vector<float> first = {1, 2, 3, 4};  // of two tokens
  captured.Offer(0, first.data(), 2);
  EXPECT_TRUE(captured.states().empty());  // nothing was chosen yet
  captured.Choose({5, 0});
  EXPECT_EQ(captured.row_size(), 4u);
  const std::vector<float> last = {5, 6, 7, 8};
  captured.Offer(0, first.data(), 2);
  captured.Offer(3, last.data(), 2);  // not chosen
  captured.Offer(5, last.data(), 2);
  const std::vector<float> states(captured.states().begin(), captured.states().end());
  EXPECT_EQ(states, (std::vector<float>{5, 6, 1, 2, 7, 8, 3, 4}));
}

}  // namespace
}  // namespace nereid::cpu
