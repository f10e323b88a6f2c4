// Repository agents: the checksum agent, and an agent that records its calls.
#include <set>

#include "tests/host/core/capi/server_fixture.h"
#include "triton/core/tritonrepoagent.h"

namespace nereid::core {
namespace {

class RepoAgentTest : public ServerTest {
 protected:
  ServerOptions AgentOptions() const {
    ServerOptions options = Explicit();
    EXPECT_TRUE(
        options.Set(TRITONSERVER_ServerOptionsSetRepoAgentDirectory, NEREID_TEST_REPOAGENTS).ok());
    return options;
  }
  std::string Agent(const std::string& name,
                    const std::vector<std::pair<std::string, std::string>>& parameters) const {
    std::string text = StrCat("model_repository_agents { agents [ { name: '", name, "' ");
    for (const auto& [key, value] : parameters) {
      text += StrCat("parameters { key: '", key, "' value: '", value, "' } ");
    }
    return text + "} ] }\n";
  }
  std::string LogPath() const { return (root_ / "agent.log").string(); }
  std::vector<std::string> Log() const {
    std::ifstream file(LogPath());
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }
};

TEST_F(RepoAgentTest, ChecksumAcceptsUnchangedFiles) {
  Write("m/1/data", "hello\n");  // md5sum: b1946ac92492d2347c6235b4d2611184
  AddModel("m",
           kIdentity + Agent("checksum", {{"MD5:1/data", "b1946ac92492d2347c6235b4d2611184"}}));
  ASSERT_TRUE(Start(AgentOptions()).ok());
  const Status status = server_->LoadModel("m");
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(Infer("m", {1}).ok());
}

TEST_F(RepoAgentTest, ChecksumErrorShowsBothHashes) {
  Write("m/1/data", "hullo\n");
  AddModel("m",
           kIdentity + Agent("checksum", {{"MD5:1/data", "b1946ac92492d2347c6235b4d2611184"}}));
  ASSERT_TRUE(Start(AgentOptions()).ok());
  const Status status = server_->LoadModel("m");
  EXPECT_NE(
      status.message().find("failed to poll from model repository: Mismatched MD5 hash for file "
                            "1/data, expecting: b1946ac92492d2347c6235b4d2611184, got: "),
      std::string::npos)
      << status.message();
  EXPECT_FALSE(*server_->IsModelReady("m"));
  EXPECT_NE(Text(server_->ModelIndex(false)).find("checksum"), std::string::npos);
  Write("m/1/data", "hello\n");
  EXPECT_TRUE(server_->LoadModel("m").ok());
}

TEST_F(RepoAgentTest, ChecksumStaysInsideTheModel) {
  AddModel("m", kIdentity + Agent("checksum", {{"MD5:../../secret", "00"}}));
  ASSERT_TRUE(Start(AgentOptions()).ok());
  EXPECT_NE(server_->LoadModel("m").message().find("inside the model's folder"), std::string::npos);
}

TEST_F(RepoAgentTest, RunsAllActionsOfAModel) {
  AddModel("m", kIdentity + Agent("recorder", {{"log", LogPath()}}));
  ASSERT_TRUE(Start(AgentOptions()).ok());
  ASSERT_TRUE(server_->LoadModel("m").ok());
  EXPECT_EQ(Log(), (std::vector<std::string>{"ModelInitialize", "LOAD", "LOAD_COMPLETE"}));
  ASSERT_TRUE(server_->LoadModel("m").ok());  // unchanged, so not loaded again
  EXPECT_EQ(Log().size(), 3u);
  server_.reset();
  EXPECT_EQ(Log(), (std::vector<std::string>{"ModelInitialize", "LOAD", "LOAD_COMPLETE", "UNLOAD",
                                             "UNLOAD_COMPLETE", "ModelFinalize"}));
}

TEST_F(RepoAgentTest, RunsLoadFailWhenTheLoadFails) {
  AddModel("m", "backend: 'nosuch'\n" + Agent("recorder", {{"log", LogPath()}}));
  ASSERT_TRUE(Start(AgentOptions()).ok());
  EXPECT_FALSE(server_->LoadModel("m").ok());
  server_.reset();
  EXPECT_EQ(Log(),
            (std::vector<std::string>{"ModelInitialize", "LOAD", "LOAD_FAIL", "ModelFinalize"}));
}

TEST_F(RepoAgentTest, MayRelocateTheModel) {
  AddModel("m", kIdentity +
                    Agent("recorder",
                          {{"log", LogPath()}, {"move", "yes"}, {"append", "max_batch_size: 8"}}));
  ASSERT_TRUE(Start(AgentOptions()).ok());
  const Status status = server_->LoadModel("m");
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_NE(Text(server_->ModelConfig("m")).find("\"max_batch_size\":8"), std::string::npos);
  const std::string moved = Log().at(2);
  ASSERT_EQ(moved.rfind("moved to ", 0), 0u) << moved;
  const std::string folder = moved.substr(9);
  EXPECT_TRUE(std::filesystem::exists(folder + "/config.pbtxt"));
  server_.reset();
  EXPECT_FALSE(std::filesystem::exists(folder));
}

TEST_F(RepoAgentTest, ErrorBeforeTheLoadFailsTheLoad) {
  for (const char* fault : {"ModelInitialize", "LOAD"}) {
    AddModel("m", kIdentity + Agent("recorder", {{"log", LogPath()}, {"fault", fault}}));
    ASSERT_TRUE(Start(AgentOptions()).ok());
    const Status status = server_->LoadModel("m");
    EXPECT_NE(status.message().find(StrCat("recorder: ", fault, " fails")), std::string::npos)
        << status.message();
    server_.reset();
    EXPECT_EQ(Log().back(), "ModelFinalize");
  }
}

TEST_F(RepoAgentTest, LaterErrorsOfTheAgentDoNotAffectTheModel) {
  for (const char* fault : {"LOAD_COMPLETE", "UNLOAD", "UNLOAD_COMPLETE", "ModelFinalize"}) {
    AddModel("m", kIdentity + Agent("recorder", {{"log", LogPath()}, {"fault", fault}}));
    ASSERT_TRUE(Start(AgentOptions()).ok());
    ASSERT_TRUE(server_->LoadModel("m").ok()) << fault;
    EXPECT_TRUE(Infer("m", {1}).ok());
    EXPECT_TRUE(server_->UnloadModel("m").ok()) << fault;
    server_.reset();
  }
}

TEST_F(RepoAgentTest, LogsAnAgentThatThrowsInFinalize) {
  AddModel("m", kIdentity + Agent("recorder", {{"log", LogPath()}, {"throw", "ModelFinalize"}}));
  ASSERT_TRUE(Start(AgentOptions()).ok());
  ASSERT_TRUE(server_->LoadModel("m").ok());
  testing::internal::CaptureStderr();
  server_.reset();
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("ModelFinalize threw: recorder: ModelFinalize throws"), std::string::npos)
      << log;
}

TEST_F(RepoAgentTest, AbandonsAnAgentThatDoesNotFinish) {
  const std::string gate = (root_ / "gate").string();
  AddModel("m", kIdentity + Agent("recorder", {{"log", LogPath()}, {"hang", gate}}));
  const ServerOptions options = AgentOptions();
  TRITONSERVER_Server* server = nullptr;
  ASSERT_EQ(TRITONSERVER_ServerNew(&server, options.get()), nullptr);
  ASSERT_TRUE(Server::Borrow(server).LoadModel("m").ok());
  testing::internal::CaptureStderr();
  const Status status = ToStatus(TRITONSERVER_ServerDelete(server));
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("repository agent 'recorder' has not ended with '"), std::string::npos) << log;
  EXPECT_NE(status.message().find("must not end by exit()"), std::string::npos);
  EXPECT_EQ(Log().back(), "UNLOAD_COMPLETE");
  std::ofstream(gate) << "open";
  while (Log().back() != "ModelFinalize") std::this_thread::yield();
}

TEST_F(RepoAgentTest, ErrorListsTheSearchedPathsOfAnUnknownAgent) {
  AddModel("m", kIdentity + Agent("nosuch", {}));
  ASSERT_TRUE(Start(AgentOptions()).ok());
  EXPECT_NE(server_->LoadModel("m").message().find("libtritonrepoagent_nosuch.so"),
            std::string::npos);
}

}  // namespace
}  // namespace nereid::core
