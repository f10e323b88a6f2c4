// Tests input tensors as views: types, sizes, buffers, alignment.
#include "nereid/tensor_view.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/fake_core/fake_core.h"

namespace nereid {
namespace {

using fake::BytesOf;

Result<TensorView> ViewOf(fake::Input& input) {
  return TensorView::Of(reinterpret_cast<TRITONBACKEND_Input*>(&input));
}

TEST(TensorViewTest, ASingleBufferIsReadWithoutACopy) {
  fake::Input input{"X", TRITONSERVER_TYPE_INT32, {2, 2}, {BytesOf<int32_t>({1, 2, 3, 4})}};
  Result<TensorView> view = ViewOf(input);
  ASSERT_TRUE(view.ok());
  EXPECT_STREQ(view->name(), "X");
  EXPECT_EQ(view->size_bytes(), 16u);
  const Result<std::span<const int32_t>> elements = view->As<int32_t>();
  ASSERT_TRUE(elements.ok());
  EXPECT_EQ(static_cast<const void*>(elements->data()), input.pieces[0].data());
  EXPECT_EQ((*elements)[3], 4);
}

TEST(TensorViewTest, SeveralBuffersAreJoinedOnce) {
  const std::string bytes = BytesOf<int32_t>({1, 2, 3});
  fake::Input input{"X",
                    TRITONSERVER_TYPE_INT32,
                    {3},
                    {bytes.substr(0, 3), "", bytes.substr(3, 6), bytes.substr(9)}};
  Result<TensorView> view = ViewOf(input);
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(view->buffers().size(), 3u) << "a piece without bytes is none";
  const std::span<const int32_t> first = *view->As<int32_t>();
  EXPECT_EQ(std::vector<int32_t>(first.begin(), first.end()), (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(view->As<int32_t>()->data(), first.data());
}

TEST(TensorViewTest, AMisalignedBufferIsCopied) {
  std::string buffer = "?" + BytesOf<double>({0.5});
  const auto bytes = std::as_bytes(std::span(buffer)).subspan(1);
  const std::vector<int64_t> shape = {1};
  TensorView view = TensorView::Of("X", DataType::kFp64, shape, bytes);
  const Result<std::span<const double>> elements = view.As<double>();
  ASSERT_TRUE(elements.ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(elements->data()) % alignof(double), 0u);
  EXPECT_EQ((*elements)[0], 0.5);
}

TEST(TensorViewTest, AnotherTypeIsRefusedByName) {
  fake::Input input{"X", TRITONSERVER_TYPE_INT32, {1}, {BytesOf<int32_t>({1})}};
  EXPECT_EQ(ViewOf(input)->As<float>().status().message(), "input 'X': expected FP32, got INT32");
  EXPECT_EQ(ViewOf(input)->Strings().status().message(), "input 'X': expected BYTES, got INT32");
}

TEST(TensorViewTest, ASizeThatIsNotTheShapesIsRefused) {
  fake::Input input{"X", TRITONSERVER_TYPE_INT32, {3}, {BytesOf<int32_t>({1, 2})}};
  EXPECT_EQ(ViewOf(input)->As<int32_t>().status().message(),
            "input 'X': expected 12 bytes for INT32 [3], got 8");
}

TEST(TensorViewTest, MemoryOfADeviceIsRefused) {
  fake::Input input{
      "X", TRITONSERVER_TYPE_INT32, {1}, {BytesOf<int32_t>({1})}, TRITONSERVER_MEMORY_GPU};
  EXPECT_EQ(ViewOf(input)->As<int32_t>().status().code(), StatusCode::kUnsupported);
}

TEST(TensorViewTest, AnEmptyTensorHasNoBuffers) {
  fake::Input input{"X", TRITONSERVER_TYPE_FP32, {0, 4}, {}};
  Result<TensorView> view = ViewOf(input);
  ASSERT_TRUE(view.ok());
  EXPECT_TRUE(view->buffers().empty());
  EXPECT_TRUE(view->As<float>()->empty());
}

TEST(TensorViewTest, StringsAreAsManyAsTheShapeSays) {
  fake::Input input{
      "S", TRITONSERVER_TYPE_BYTES, {2}, {*EncodeBytes(std::vector<std::string>{"one", ""})}};
  Result<TensorView> view = ViewOf(input);
  EXPECT_EQ(*view->Strings(), (std::vector<std::string_view>{"one", ""}));
  input.shape = {3};
  EXPECT_EQ(ViewOf(input)->Strings().status().message(),
            "input 'S': expected 3 BYTES elements, got 2");
}

TEST(TensorViewTest, AScalarHasOneElementWhateverItsRank) {
  fake::Input input{"X", TRITONSERVER_TYPE_INT32, {1, 1}, {BytesOf<int32_t>({7})}};
  EXPECT_EQ(*ViewOf(input)->Scalar<int32_t>(), 7);
  fake::Input two{"X", TRITONSERVER_TYPE_INT32, {2}, {BytesOf<int32_t>({7, 8})}};
  EXPECT_EQ(ViewOf(two)->Scalar<int32_t>().status().message(),
            "input 'X': expected 1 element, got shape [2]");
}

}  // namespace
}  // namespace nereid
