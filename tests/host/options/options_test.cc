// Parsing of the command line.
#include "host/options.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "host/frontend/restricted_apis.h"
#include "host/option_table.h"

namespace nereid {
namespace {

Result<Options> Parse(std::vector<std::string> args) {
  args.push_back("--model-repository=/models");
  return ParseOptions(args);
}

std::string ErrorOf(const std::vector<std::string>& args) {
  const Result<Options> options = Parse(args);
  return options.ok() ? "no error" : options.status().message();
}

TEST(OptionsTest, DefaultsAreTritons) {
  const Result<Options> options = Parse({});
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->http.port, 8000);
  EXPECT_EQ(options->grpc.port, 8001);
  EXPECT_EQ(options->metrics.port, 8002);
  EXPECT_EQ(options->http.limits.max_body_bytes, size_t{64} << 20);
  EXPECT_EQ(options->exit_timeout_s, 30);
  EXPECT_FALSE(options->strict_model_config);
  EXPECT_EQ(options->control_mode, TRITONSERVER_MODEL_CONTROL_NONE);
}

TEST(OptionsTest, AcceptsBothFormsOfAValue) {
  EXPECT_EQ(Parse({"--http-port=9000"})->http.port, 9000);
  EXPECT_EQ(Parse({"--http-port", "9000"})->http.port, 9000);
  EXPECT_EQ(Parse({"--model-repository", "/a", "--model-store=/b"})->repositories,
            (std::vector<std::string>{"/a", "/b", "/models"}));
}

TEST(OptionsTest, AcceptsFourSpellingsOfBooleans) {
  EXPECT_FALSE(Parse({"--allow-grpc=false"})->allow_grpc);
  EXPECT_FALSE(Parse({"--allow-grpc", "0"})->allow_grpc);
  EXPECT_TRUE(Parse({"--allow-grpc=True"})->allow_grpc);
  EXPECT_TRUE(Parse({"--allow-grpc=1"})->allow_grpc);
  EXPECT_EQ(ErrorOf({"--allow-grpc=yes"}),
            "Bad option: \"--allow-grpc\": expected true, false, 1 or 0, got 'yes'");
}

TEST(OptionsTest, NamesTheFlagAndTheValueOfAnError) {
  EXPECT_EQ(ErrorOf({"--nope=1"}), "unknown option '--nope'");
  EXPECT_EQ(ErrorOf({"models"}), "unknown option 'models'");
  EXPECT_EQ(ErrorOf({"--grpc-prot=1"}),
            "unknown option '--grpc-prot' (did you mean '--grpc-port'?)");
  EXPECT_EQ(ErrorOf({"--http-port=70000"}),
            "Bad option: \"--http-port\": expected an integer from 0 to 65535, got '70000'");
  EXPECT_EQ(ErrorOf({"--disable-auto-complete-config=1"}),
            "--disable-auto-complete-config: takes no value, got '1'");
  EXPECT_EQ(ErrorOf({"--backend-config=python"}),
            "Bad option: \"--backend-config\": expected <name>,<key>=<value> or <key>=<value>, got "
            "'python'");
  EXPECT_FALSE(ParseOptions({"--http-port"}).ok());
}

TEST(OptionsTest, ADisabledPortMayBeAnyNumber) {
  EXPECT_TRUE(ParseOptions({"--model-repository=m", "--http-port=-47", "--allow-http=0"}).ok());
  EXPECT_TRUE(ParseOptions({"--allow-grpc=0", "--model-repository=m", "--grpc-port=70000"}).ok());
  EXPECT_TRUE(
      ParseOptions({"--model-repository=m", "--metrics-port=-1", "--allow-metrics=0"}).ok());
  EXPECT_EQ(ErrorOf({"--grpc-port=-47", "--allow-http=0"}),
            "Bad option: \"--grpc-port\": expected an integer from 0 to 65535, got '-47'");
  EXPECT_EQ(ErrorOf({"--http-port=x", "--allow-http=0"}),
            "Bad option: \"--http-port\": expected an integer from 0 to 65535, got 'x'");
  EXPECT_EQ(ErrorOf({"--model-load-gpu-limit=x:0.5"}),
            "Bad option: \"--model-load-gpu-limit\": expected an integer from 0 to 1023, got 'x'");
}

TEST(OptionsTest, NamesTheReplacementOfADeprecatedFlag) {
  EXPECT_EQ(
      Parse({"--trace-rate=7", "--trace-config=rate=8", "--strict-model-config=1"})->warnings,
      (std::vector<std::string>{
          "Warning: '--trace-rate' has been deprecated and will be removed in future releases. "
          "Please use '--trace-config rate=<integer>' instead.",
          "Warning: '--strict-model-config' has been deprecated! Please use "
          "'--disable-auto-complete-config' instead."}));
}

TEST(OptionsTest, DisablingAutoCompleteOverridesItsDeprecatedForm) {
  const auto options = Parse({"--disable-auto-complete-config", "--strict-model-config=false"});
  EXPECT_TRUE(options->strict_model_config);
  ASSERT_EQ(options->warnings.size(), 2u);
  EXPECT_EQ(options->warnings[1],
            "Warning: Overriding deprecated '--strict-model-config' from False to True in favor of "
            "'--disable-auto-complete-config'!");
  EXPECT_EQ(Parse({"--disable-auto-complete-config"})->warnings.size(), 0u);
}

TEST(OptionsTest, AcceptsUnambiguousAbbreviationsOfFlags) {
  EXPECT_EQ(Parse({"--grpc-po=1234"})->grpc.port, 1234);
  EXPECT_EQ(Parse({"--grpc-po", "1234"})->grpc.port, 1234);
  EXPECT_EQ(Parse({"--trace-config=rate=8", "--trace-ra=7"})->warnings.size(), 1u);
  EXPECT_EQ(ErrorOf({"--allow-g=1"}),
            "option '--allow-g' is ambiguous; possibilities: '--allow-grpc' '--allow-gpu-metrics'");
  EXPECT_EQ(ErrorOf({"--"}), "unknown option '--'");
}

TEST(OptionsTest, ABadTraceSettingIsNamed) {
  EXPECT_EQ(ErrorOf({"--trace-config=opentelemetry,bsp_schedule_delay=bad_value"}),
            "Bad option: \"--trace-config opentelemetry,bsp_schedule_delay\": expected an integer "
            "from 1 up, got 'bad_value'");
}

TEST(OptionsTest, TlsIsConfiguredPerPort) {
  const Result<Options> options = Parse(
      {"--http-use-ssl=true", "--http-server-cert=c", "--http-server-key=k", "--http-root-cert=r"});
  ASSERT_TRUE(options.ok()) << options.status().message();
  ASSERT_TRUE(options->http.tls.has_value());
  EXPECT_EQ(options->http.tls->flag_prefix, "--http");
  EXPECT_EQ(options->http.tls->server_cert_path, "c");
  EXPECT_EQ(options->http.tls->server_key_path, "k");
  EXPECT_EQ(options->http.tls->root_cert_path, "r");
  EXPECT_FALSE(options->http.tls->is_mutual);
  EXPECT_FALSE(options->grpc.tls.has_value());
  EXPECT_FALSE(options->metrics.tls.has_value());
  // Mutual TLS enables TLS.
  EXPECT_TRUE(Parse({"--http-use-ssl-mutual=1"})->http.tls->is_mutual);
  EXPECT_TRUE(Parse({"--grpc-use-ssl-mutual=1"})->grpc.tls->is_mutual);
  EXPECT_FALSE(Parse({"--http-use-ssl-mutual=0"})->http.tls.has_value());
}

TEST(OptionsTest, ACertificateOpensNoPlainHttpPort) {
  for (const char* const flag : {"--http-server-cert", "--http-server-key", "--http-root-cert"}) {
    EXPECT_EQ(
        ErrorOf({std::string(flag) + "=file"}),
        std::string(flag) +
            ": expected '--http-use-ssl=true' beside it, got none; --http-use-ssl=false opens "
            "the port without TLS");
  }
  const Result<Options> plain = Parse({"--http-server-cert=c", "--http-use-ssl=false"});
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  EXPECT_FALSE(plain->http.tls.has_value());
  EXPECT_TRUE(Parse({"--http-server-cert=c", "--allow-http=false"}).ok());
}

TEST(OptionsTest, ACertificateWithoutTlsOverGrpcGetsAWarning) {
  const Result<Options> options = Parse({"--grpc-server-cert=c", "--grpc-server-key=k"});
  ASSERT_TRUE(options.ok()) << options.status().message();
  EXPECT_FALSE(options->grpc.tls.has_value());
  EXPECT_EQ(options->warnings,
            std::vector<std::string>{"Warning: '--grpc-server-cert' has no effect without "
                                     "'--grpc-use-ssl=true': the gRPC port does not use TLS."});
  EXPECT_TRUE(Parse({"--grpc-root-cert=r", "--grpc-use-ssl=0"})->warnings.empty());
  EXPECT_TRUE(Parse({"--grpc-root-cert=r", "--allow-grpc=0"})->warnings.empty());
}

TEST(OptionsTest, RootCertificatesThatCheckNoClientGetAWarning) {
  const std::vector<std::string> http = {"--http-use-ssl=true", "--http-root-cert=r"};
  const std::vector<std::string> expected = {
      "Warning: '--http-root-cert' has no effect without '--http-use-ssl-mutual=true': the HTTP "
      "port asks clients for no certificate."};
  EXPECT_EQ(Parse(http)->warnings, expected);
  const std::vector<std::string> grpc = Parse({"--grpc-root-cert=r", "--grpc-use-ssl=1"})->warnings;
  ASSERT_EQ(grpc.size(), 1u);
  EXPECT_NE(grpc[0].find("'--grpc-use-ssl-mutual=true': the gRPC port"), std::string::npos)
      << grpc[0];
  EXPECT_TRUE(Parse({"--http-use-ssl-mutual=true", "--http-root-cert=r"})->warnings.empty());
  EXPECT_TRUE(Parse({"--http-use-ssl=true", "--http-server-cert=c"})->warnings.empty());
  EXPECT_TRUE(
      Parse({"--http-use-ssl=true", "--http-root-cert=r", "--allow-http=0"})->warnings.empty());
}

TEST(OptionsTest, CloudPlatformsHaveTheirOwnPorts) {
  const Result<Options> options =
      Parse({"--allow-sagemaker=true", "--sagemaker-port=8081", "--sagemaker-thread-count=3",
             "--http-address=127.0.0.1", "--http-max-input-size=5"});
  ASSERT_TRUE(options.ok()) << options.status().message();
  EXPECT_TRUE(options->allow_sagemaker);
  EXPECT_EQ(options->sagemaker.port, 8081);
  EXPECT_EQ(options->sagemaker.num_threads, 3);
  EXPECT_EQ(options->sagemaker.address, "127.0.0.1");
  EXPECT_EQ(options->sagemaker.limits.max_body_bytes, 5u);
  EXPECT_FALSE(options->allow_vertex_ai);
  EXPECT_EQ(Parse({"--vertex-ai-default-model=m"})->vertex_ai_routes.default_model, "m");
}

TEST(OptionsTest, AcceptsNoPortsAndNoPollingAsTritonDoes) {
  EXPECT_EQ(ErrorOf({"--allow-http=0", "--allow-grpc=0"}), "no error");
  EXPECT_EQ(ErrorOf({"--allow-http=0", "--allow-grpc=0", "--allow-metrics=0"}), "no error");
  EXPECT_EQ(Parse({"--repository-poll-secs=0"})->repository_poll_s, 0);
  EXPECT_EQ(Parse({"--repository-poll-secs=-3"})->repository_poll_s, -3);
  EXPECT_NE(ErrorOf({"--repository-poll-secs=x"}).find("'x'"), std::string::npos);
}

TEST(OptionsTest, SafePortRangeAppliesToTheOtherPorts) {
  const std::string range = "--sagemaker-safe-port-range=8000-8002";
  EXPECT_EQ(ErrorOf({"--allow-sagemaker=1", range}), "no error");
  EXPECT_EQ(ErrorOf({"--allow-sagemaker=1", range, "--http-port=9000"}),
            "--http-port: expected a port of --sagemaker-safe-port-range, 8000 to 8002, got 9000");
  EXPECT_EQ(ErrorOf({"--allow-sagemaker=1", range, "--http-port=9000", "--allow-http=0"}),
            "no error");
  EXPECT_EQ(ErrorOf({"--sagemaker-safe-port-range=5"}),
            "Bad option: \"--sagemaker-safe-port-range\": expected <first>-<last>, got '5'");
  EXPECT_NE(ErrorOf({"--sagemaker-safe-port-range=9-5"}), "no error");
}

TEST(OptionsTest, AcceptsTraceSettingsInOldAndNewForm) {
  const Result<Options> options =
      Parse({"--trace-config=triton,file=/tmp/t", "--trace-config=level=TIMESTAMPS",
             "--trace-config=level=TENSORS", "--trace-rate=7", "--trace-count=3", "--trace-config",
             "triton,log-frequency=2"});
  ASSERT_TRUE(options.ok()) << options.status().message();
  EXPECT_EQ(options->trace.file, "/tmp/t");
  EXPECT_EQ(options->trace.values.level,
            TRITONSERVER_TRACE_LEVEL_TIMESTAMPS | TRITONSERVER_TRACE_LEVEL_TENSORS);
  EXPECT_EQ(options->trace.values.rate, 7u);
  EXPECT_EQ(options->trace.values.count, 3);
  EXPECT_EQ(options->trace.values.log_frequency, 2u);
  EXPECT_EQ(Parse({"--trace-config=mode=opentelemetry",
                   "--trace-config=opentelemetry,resource=service.name=mine"})
                ->trace.otlp.resource.at("service.name"),
            "mine");
  for (const char* wrong :
       {"--trace-config=mode=zipkin", "--trace-config=zipkin,url=x", "--trace-config=rate=0",
        "--trace-config=level=ALL", "--trace-config=colour=red", "--trace-config=triton,colour=red",
        "--trace-config=opentelemetry,url=ftp://host/", "--trace-config=level=TIMESTAMPS"}) {
    EXPECT_NE(ErrorOf({wrong}), "no error") << wrong;
  }
}

TEST(OptionsTest, TheVerboseLevelMayBeABoolean) {
  EXPECT_EQ(Parse({"--log-verbose=true"})->log_verbose, 1u);
  EXPECT_EQ(Parse({"--log-verbose=false"})->log_verbose, 0u);
  EXPECT_NE(ErrorOf({"--log-verbose=yes"}), "no error");
}

TEST(OptionsTest, AcceptsDeprecatedNamesOfTraceLevels) {
  for (const char* level : {"min", "MAX", "true", "timestamps"}) {
    const Result<Options> options = Parse({"--trace-file=/tmp/t", StrCat("--trace-level=", level)});
    ASSERT_TRUE(options.ok()) << level;
    EXPECT_EQ(options->trace.values.level, TRITONSERVER_TRACE_LEVEL_TIMESTAMPS) << level;
  }
  EXPECT_EQ(Parse({"--trace-level=off"})->trace.values.level, TRITONSERVER_TRACE_LEVEL_DISABLED);
}

TEST(OptionsTest, OpenTelemetryReadsItsVariables) {
  const std::vector<std::string> mode{"--trace-config=mode=opentelemetry"};
  using Shown = std::map<std::string, std::vector<std::string>>;
  EXPECT_EQ(Parse(mode)->trace.otlp.reported_settings,
            (Shown{{"bsp_max_queue_size", {"2048"}},
                   {"bsp_schedule_delay", {"5000"}},
                   {"bsp_max_export_batch_size", {"512"}}}));
  setenv("OTEL_BSP_MAX_QUEUE_SIZE", "77", 1);
  setenv("OTEL_BSP_SCHEDULE_DELAY", "9", 1);
  setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318", 1);
  const Result<Options> options =
      Parse({mode[0], "--trace-config=opentelemetry,bsp_schedule_delay=20",
             "--trace-config=opentelemetry,resource=a=b"});
  setenv("OTEL_BSP_SCHEDULE_DELAY", "soon", 1);
  const std::string error = ErrorOf(mode);
  const bool is_read_without_mode = !Parse({}).ok();
  unsetenv("OTEL_BSP_MAX_QUEUE_SIZE");
  unsetenv("OTEL_BSP_SCHEDULE_DELAY");
  unsetenv("OTEL_EXPORTER_OTLP_ENDPOINT");
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->trace.otlp.max_queue_size, 77u);
  EXPECT_EQ(options->trace.otlp.schedule_delay_ms, 20);
  EXPECT_EQ(options->trace.otlp.url, "http://collector:4318/v1/traces");
  EXPECT_EQ(options->trace.otlp.reported_settings.at("resource"), std::vector<std::string>{"a=b"});
  EXPECT_FALSE(options->trace.otlp.reported_settings.contains("url"));
  EXPECT_EQ(error,
            "Bad option: \"OTEL_BSP_SCHEDULE_DELAY\": expected an integer from 1 up, got 'soon'");
  EXPECT_FALSE(is_read_without_mode);
}

TEST(OptionsTest, ChoicesIgnoreCase) {
  EXPECT_EQ(Parse({"--model-control-mode=EXPLICIT"})->control_mode,
            TRITONSERVER_MODEL_CONTROL_EXPLICIT);
  EXPECT_EQ(Parse({"--model-control-mode=Poll"})->control_mode, TRITONSERVER_MODEL_CONTROL_POLL);
  EXPECT_EQ(Parse({"--grpc-infer-response-compression-level=High"})->grpc.response_compression,
            GrpcCompression::kHigh);
  EXPECT_EQ(Parse({"--trace-config=mode=OpenTelemetry"})->trace.mode, TraceMode::kOpenTelemetry);
  EXPECT_EQ(ErrorOf({"--rate-limit=EXECUTION_COUNT"}), "no error");
  EXPECT_NE(ErrorOf({"--rate-limit=EXECUTIONCOUNT"}), "no error");
}

TEST(OptionsTest, ASettingHasAKeyAndAValue) {
  for (const std::string setting : {",a=3", "a=", "a", "=3", "b,a=", "b,a", "b,=3"}) {
    const std::string error = ErrorOf({"--backend-config=" + setting});
    EXPECT_NE(error.find("expected <name>,<key>=<value> or <key>=<value>, got '" + setting + "'"),
              std::string::npos)
        << error;
  }
  EXPECT_NE(ErrorOf({"--model-config-name="}), "no error");
}

TEST(OptionsTest, AcceptsOnlyOneFormOfCacheSettings) {
  const std::string old_form = "--response-cache-byte-size=8192";
  EXPECT_EQ(Parse({old_form})->cache_settings.at("local").at("size"), "8192");
  EXPECT_NE(ErrorOf({old_form, "--cache-config=local,size=8192"}).find("Incompatible flags"),
            std::string::npos);
  EXPECT_EQ(ErrorOf({"--response-cache-byte-size=0", "--cache-config=local,size=1"}), "no error");
}

TEST(OptionsTest, StartupModelsNeedExplicitControl) {
  EXPECT_EQ(ErrorOf({"--load-model=a"}),
            "Error: Use of '--load-model' requires setting '--model-control-mode=explicit' as "
            "well.");
  EXPECT_EQ(ErrorOf({"--model-control-mode=explicit", "--load-model=a", "--load-model=b"}),
            "no error");
  EXPECT_EQ(ErrorOf({"--model-control-mode=explicit", "--load-model=*", "--load-model=b"}),
            "Error: Wildcard model name '*' must be the ONLY startup model if specified at all.");
}

TEST(OptionsTest, AcceptsTheFlagsOfALaunchScript) {
  EXPECT_EQ(ErrorOf({"--disable-auto-complete-config", "--log-verbose=1", "--log-file=/dev/null",
                     "--backend-config=python,shm-region-prefix-name=prefix0_",
                     "--grpc-infer-thread-count=4", "--pinned-memory-pool-byte-size=0",
                     "--cuda-memory-pool-byte-size=0:300000000", "--rate-limit=execution_count",
                     "--rate-limit-resource=R:3:0", "--host-policy=cpu,numa-node=0",
                     "--cache-config=local,size=1048576", "--model-load-gpu-limit=0:0.8",
                     "--metrics-config=summary_latencies=true", "--exit-on-error=false"}),
            "no error");
}

std::string AddressesOf(const Result<Options>& options) {
  return StrCat(options->http.address, " ", options->grpc.address, " ", options->metrics.address,
                " ", options->sagemaker.address, " ", options->vertex_ai.address);
}

TEST(OptionsTest, TheNameOfTheProgramDecidesTheDefaults) {
  EXPECT_EQ(ProgramOf("tritonserver"), Program::kTriton);
  EXPECT_EQ(ProgramOf("/opt/tritonserver/bin/tritonserver"), Program::kTriton);
  for (const char* name : {"nereid", "./nereid", "tritonserver/nereid", "tritonserver2", ""}) {
    EXPECT_EQ(ProgramOf(name), Program::kNereid) << name;
  }
  const Result<Options> ours = ParseOptions({"--model-repository=m"}, Program::kNereid);
  EXPECT_EQ(AddressesOf(ours), "127.0.0.1 127.0.0.1 127.0.0.1 127.0.0.1 127.0.0.1");
  EXPECT_FALSE(ours->access.allows_remote_admin);
  EXPECT_FALSE(ours->access.allows_inline_models);
  EXPECT_FALSE(ours->access.allows_client_shm);
  const Result<Options> tritons = ParseOptions({"--model-repository=m"}, Program::kTriton);
  EXPECT_EQ(AddressesOf(tritons), "0.0.0.0 0.0.0.0 0.0.0.0 0.0.0.0 0.0.0.0");
  EXPECT_TRUE(tritons->access.allows_remote_admin);
  EXPECT_TRUE(tritons->access.allows_inline_models);
  EXPECT_FALSE(tritons->access.allows_client_shm);
}

TEST(OptionsTest, AnAddressIsThatOfThePortThenThatOfTheHost) {
  EXPECT_EQ(AddressesOf(Parse({"--host=0.0.0.0"})), "0.0.0.0 0.0.0.0 0.0.0.0 0.0.0.0 0.0.0.0");
  EXPECT_EQ(AddressesOf(Parse({"--grpc-address=::1", "--host", "h"})), "h ::1 h h h");
  EXPECT_EQ(AddressesOf(Parse({"--http-address=a"})), "a 127.0.0.1 a a a");
  EXPECT_EQ(ErrorOf({"--host="}), "Bad option: \"--host\": expected an address, got ''");
}

TEST(OptionsTest, TheLowestVersionOfTlsHoldsForBothPorts) {
  EXPECT_EQ(Parse({})->http_tls.minimum, net::TlsVersion::k12);
  const Result<Options> options = Parse({"--tls-minimum=1.3"});
  EXPECT_EQ(options->http_tls.minimum, net::TlsVersion::k13);
  EXPECT_EQ(options->grpc_tls.minimum, net::TlsVersion::k13);
  EXPECT_EQ(ErrorOf({"--tls-minimum=1.1"}),
            "Bad option: \"--tls-minimum\": expected 1.2 or 1.3, got '1.1'");
}

TEST(OptionsTest, SomeFlagsMeanTrueWithoutAValue) {
  EXPECT_TRUE(Parse({"--remote-admin"})->access.allows_remote_admin);
  EXPECT_TRUE(Parse({"--remote-admin=true"})->access.allows_remote_admin);
  EXPECT_FALSE(
      ParseOptions({"--remote-admin=false"}, Program::kTriton)->access.allows_remote_admin);
  EXPECT_TRUE(Parse({"--allow-inline-models", "--grpc-port=1"})->access.allows_inline_models);
  EXPECT_EQ(ErrorOf({"--remote-admin", "false"}), "unknown option 'false'");
  EXPECT_EQ(ErrorOf({"--allow-inline-models=x"}),
            "Bad option: \"--allow-inline-models\": expected true, false, 1 or 0, got 'x'");
}

TEST(OptionsTest, TheMetricsPortFollowsTheHttpAddress) {
  EXPECT_EQ(Parse({"--http-address=127.0.0.1"})->metrics.address, "127.0.0.1");
  EXPECT_EQ(Parse({"--http-address=127.0.0.1", "--metrics-address=::1"})->metrics.address, "::1");
}

TEST(OptionsTest, TheHelpTextNamesEveryFlagOnce) {
  const std::string usage = UsageText("nereid");
  for (const std::span<const Flag> flags : {CoreFlags(), FrontendFlags()}) {
    for (const Flag& flag : flags) {
      const std::string line = StrCat("\n  ", flag.name, flag.value.empty() ? "\n" : " ");
      const size_t at = usage.find(line);
      EXPECT_NE(at, std::string::npos) << flag.name;
      EXPECT_EQ(usage.find(line, at + 1), std::string::npos) << flag.name;
    }
  }
  EXPECT_TRUE(ParseOptions({"--help"})->show_help);
}

TEST(OptionsTest, AnEmptyKeyFileDoesNotOpenTheServer) {
  EXPECT_NE(ErrorOf({"--api-key-file="}).find("expected the path of a file, got ''"),
            std::string::npos);
  EXPECT_NE(ErrorOf({"--api-key-file", ""}).find("--api-key-file"), std::string::npos);
  EXPECT_EQ(Parse({"--api-key-file=/keys"})->api_key_file, "/keys");
}

TEST(OptionsTest, AConsoleThatOtherMachinesReachNeedsKeys) {
  EXPECT_FALSE(Parse({})->openai.console.has_value());
  EXPECT_TRUE(Parse({"--console=on"})->openai.console.value());
  EXPECT_FALSE(Parse({"--console", "off", "--host=0.0.0.0"})->openai.console.value());
  EXPECT_EQ(ErrorOf({"--console=on", "--host=0.0.0.0"}),
            "--console=on: other machines reach the HTTP port at 0.0.0.0, which needs "
            "--api-key-file");
  EXPECT_TRUE(Parse({"--console=on", "--host=0.0.0.0", "--api-key-file=/keys"}).ok());
  EXPECT_NE(ErrorOf({"--console=maybe"}).find("--console"), std::string::npos);
}

TEST(RestrictedApisTest, NoErrorTellsASecret) {
  for (const char* const flag : {"--http-restricted-api=", "--grpc-restricted-protocol="}) {
    for (const char* const wrong :
         {"s3cret", "inference", "inference=s3cret", "inference:s3cret", "inference:=s3cret",
          ":key=s3cret", "key=s3cret:inference", "inference,key=s3cret:a=b", "colour:key=s3cret",
          "inference,inference:key=s3cret", "inference:s3cret="}) {
      const std::string error = ErrorOf({std::string(flag) + wrong});
      EXPECT_NE(error.find("Bad option"), std::string::npos) << wrong;
      EXPECT_EQ(error.find("s3cret"), std::string::npos) << error;
    }
  }
  EXPECT_NE(ErrorOf({"--http-restricted-api=colour:key=x"}).find("unknown group 'colour'"),
            std::string::npos);
  EXPECT_NE(ErrorOf({"--http-restricted-api=trace:key="}).find("got no value after '='"),
            std::string::npos);
}

TEST(RestrictedApisTest, AFileHasOneValueALineAndItsErrorsTellNoSecret) {
  const std::string path = testing::TempDir() + "restricted_apis.txt";
  std::ofstream(path) << "# admin\ntrace,logging:key=secret\n\nhealth:probe=x\r\n";
  RestrictedApis apis;
  ASSERT_TRUE(apis.AddFile(path).ok());
  ASSERT_NE(apis.Find(ApiGroup::kHealth), nullptr);
  EXPECT_EQ(apis.Find(ApiGroup::kHealth)->value, "x");
  EXPECT_EQ(apis.Find(ApiGroup::kLogging)->value, "secret");
  std::ofstream(path) << "trace:key=a\ninference=secret\n";
  RestrictedApis others;
  const Status wrong = others.AddFile(path);
  EXPECT_EQ(wrong.message(),
            "'" + path +
                "', line 2: expected <group>[,<group>...]:<key>=<value>, got no ':'; the text is "
                "not shown, because it may contain a secret");
  EXPECT_EQ(others.AddFile(path + ".absent").code(), StatusCode::kNotFound);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace nereid
