#include "host/core/repository/status.h"

#include <thread>

#include "tests/host/core/repository/fake_models.h"

namespace nereid::core {
namespace {

std::shared_ptr<Model> NewModel(const std::string& name, int64_t version) {
  auto model = std::make_shared<Model>();
  model->name = name;
  model->version = version;
  return model;
}

TEST(ModelTableTest, FindsTheLatestAndANamedVersion) {
  ModelTable table;
  table.Publish("m", {{1, NewModel("m", 1)}, {3, NewModel("m", 3)}});
  EXPECT_EQ(table.Find("m", ModelTable::kLatest).value()->version, 3);
  EXPECT_EQ(table.Find("m", 1).value()->version, 1);
  EXPECT_EQ(table.Versions("m").value(), (std::vector<int64_t>{1, 3}));
}

TEST(ModelTableTest, AModelThatWasFoundBeforeIsTheNewOneOnceItIsPublished) {
  ModelTable table;
  table.Publish("m", {{1, NewModel("m", 1)}});
  table.Publish("n", {{7, NewModel("n", 7)}});
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(table.Find("m", ModelTable::kLatest).value()->version, 1);
    EXPECT_EQ(table.Find("m", ModelTable::kLatest).value()->version, 1);
    EXPECT_EQ(table.Find("n", ModelTable::kLatest).value()->version, 7);
  }
  table.Publish("n", {{8, NewModel("n", 8)}});
  EXPECT_EQ(table.Find("n", ModelTable::kLatest).value()->version, 8);
  table.Publish("n", {});
  EXPECT_FALSE(table.Find("n", ModelTable::kLatest).ok());
  EXPECT_FALSE(table.Find("unknown", ModelTable::kLatest).ok());
}

TEST(ModelTableTest, ErrorsNameTheReason) {
  ModelTable table;
  table.Publish("m", {{1, NewModel("m", 1)}});
  table.Publish("gone", {});
  const auto message = [&](const char* name, int64_t version) {
    const auto model = table.Find(name, version);
    EXPECT_EQ(model.status().code(), StatusCode::kNotFound);
    return model.status().message();
  };
  EXPECT_EQ(message("nosuch", -1), "Request for unknown model: 'nosuch' is not found");
  EXPECT_EQ(message("gone", -1), "Request for unknown model: 'gone' has no available versions");
  EXPECT_EQ(message("m", 2), "Request for unknown model: 'm' version 2 is not found");
}

TEST(ModelTableTest, ReportsVersionsThatDoNotServe) {
  ModelTable table;
  table.Publish("m", {{1, NewModel("m", 1)}}, {2});
  EXPECT_EQ(table.Find("m", ModelTable::kLatest).value()->version, 1);
  EXPECT_EQ(table.Find("m", 2).status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(table.Find("m", 2).status().message(),
            "Request for unknown model: 'm' version 2 is not at ready state");
  EXPECT_EQ(table.Find("m", 3).status().code(), StatusCode::kNotFound);
}

TEST(ModelTableTest, ReadersKeepAModelAlive) {
  ModelTable table;
  std::weak_ptr<Model> weak;
  std::shared_ptr<Model> reader;
  {
    auto model = NewModel("m", 1);
    weak = model;
    table.Publish("m", {{1, std::move(model)}});
  }
  reader = table.Find("m", 1).value();
  table.Publish("m", {});
  EXPECT_FALSE(weak.expired());
  reader.reset();
  EXPECT_TRUE(weak.expired());
}

TEST(ModelTableTest, ReadersSeeTheOldOrTheNewVersion) {
  ModelTable table;
  table.Publish("m", {{1, NewModel("m", 1)}});
  std::atomic<bool> stop{false};
  std::vector<std::thread> readers;
  for (int i = 0; i < 4; ++i) {
    readers.emplace_back([&] {
      while (!stop) {
        const auto model = table.Find("m", ModelTable::kLatest);
        ASSERT_TRUE(model.ok());
        ASSERT_TRUE(model.value()->version == 1 || model.value()->version == 2);
      }
    });
  }
  for (int i = 0; i < 300; ++i) table.Publish("m", {{1 + i % 2, NewModel("m", 1 + i % 2)}});
  stop = true;
  for (std::thread& reader : readers) reader.join();
}

}  // namespace
}  // namespace nereid::core
