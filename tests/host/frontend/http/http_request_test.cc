// Tests of ParseHead: accepted requests, and requests that are rejected before any endpoint sees
// them.
#include "host/frontend/http/transport/http_request.h"

#include <gtest/gtest.h>

#include "nereid/status.h"

namespace nereid::http {
namespace {

struct ParsedRequest {
  int status;  // 0 if the head is valid
  RequestHead head;
};

// `text` must outlive the result.
ParsedRequest ParseRequest(std::string_view text) {
  static const HttpLimits limits;
  ParsedRequest parsed{0, {}};
  if (const auto error = ParseHead(text, limits, parsed.head)) parsed.status = error->status;
  return parsed;
}

TEST(RequestHeadTest, ReadsARequest) {
  const ParsedRequest parsed = ParseRequest(
      "POST /v2/models/m/infer?x=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n"
      "Expect: 100-continue\r\nX-Empty:\r\n\r\n");
  ASSERT_EQ(parsed.status, 0);
  EXPECT_EQ(parsed.head.method, Method::kPost);
  EXPECT_EQ(parsed.head.path, "/v2/models/m/infer");
  EXPECT_EQ(parsed.head.query, "x=1");
  EXPECT_EQ(parsed.head.content_length, 12u);
  EXPECT_TRUE(parsed.head.expects_continue);
  EXPECT_TRUE(parsed.head.keep_alive);
  EXPECT_EQ(parsed.head.Header("HOST"), "a");
  EXPECT_NE(parsed.head.Header("x-empty").data(), nullptr);
  EXPECT_EQ(parsed.head.Header("absent").data(), nullptr);
}

TEST(RequestHeadTest, AcceptsAbsoluteTargets) {
  const ParsedRequest parsed =
      ParseRequest("GET http://127.0.0.1:8000/v2?a=b HTTP/1.1\r\nHost: a\r\n\r\n");
  ASSERT_EQ(parsed.status, 0);
  EXPECT_EQ(parsed.head.path, "/v2");
  EXPECT_EQ(parsed.head.query, "a=b");
  EXPECT_EQ(ParseRequest("GET https://host HTTP/1.1\r\nHost: a\r\n\r\n").head.path, "/");
  EXPECT_EQ(ParseRequest("GET ftp://host/v2 HTTP/1.1\r\nHost: a\r\n\r\n").status, 400);
}

TEST(RequestHeadTest, KeepAliveFollowsVersionAndHeader) {
  EXPECT_TRUE(ParseRequest("GET / HTTP/1.1\r\nHost: a\r\n\r\n").head.keep_alive);
  EXPECT_FALSE(ParseRequest("GET / HTTP/1.0\r\n\r\n").head.keep_alive);
  EXPECT_FALSE(
      ParseRequest("GET / HTTP/1.1\r\nHost: a\r\nConnection: x, Close\r\n\r\n").head.keep_alive);
  EXPECT_TRUE(ParseRequest("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").head.keep_alive);
}

TEST(RequestHeadTest, RejectsMalformedHeads) {
  for (const char* text :
       {"\r\n", "GET\r\n\r\n", "GET /\r\n\r\n", "GET  HTTP/1.1\r\nHost: a\r\n\r\n",
        "GE T / HTTP/1.1\r\nHost: a\r\n\r\n", "GET x HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\n\n", "G\tT / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nNoColon\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nA : b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n folded\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nA: b\x01\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nA: b\rc\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1,1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n"}) {
    EXPECT_EQ(ParseRequest(text).status, 400) << text;
  }
  EXPECT_EQ(ParseRequest("GET / HTTP/2.0\r\n\r\n").status, 505);
  EXPECT_EQ(ParseRequest("GET / HTTP/1.1\r\nHost: a\r\nExpect: magic\r\n\r\n").status, 417);
}

TEST(RequestHeadTest, RequiresOneHostHeader) {
  EXPECT_EQ(ParseRequest("GET / HTTP/1.1\r\n\r\n").status, 400);
  EXPECT_EQ(ParseRequest("GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n").status, 400);
  EXPECT_EQ(ParseRequest("GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n").status, 400);
  EXPECT_EQ(ParseRequest("GET http://a/ HTTP/1.1\r\n\r\n").status, 400);
  EXPECT_EQ(ParseRequest("GET / HTTP/1.0\r\n\r\n").status, 0);
  for (const char* host : {"", "a", "a.b:80", "[::1]:8000", "127.0.0.1"}) {
    EXPECT_EQ(ParseRequest(StrCat("GET / HTTP/1.1\r\nHost: ", host, "\r\n\r\n")).status, 0) << host;
  }
  for (const char* host : {"a b", "a, b", "a/b", "user@a"}) {
    EXPECT_EQ(ParseRequest(StrCat("GET / HTTP/1.1\r\nHost: ", host, "\r\n\r\n")).status, 400)
        << host;
  }
}

TEST(RequestHeadTest, RejectsAmbiguousBodyLengths) {
  EXPECT_EQ(
      ParseRequest("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n")
          .status,
      400);
  EXPECT_EQ(
      ParseRequest(
          "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n")
          .status,
      400);
  EXPECT_EQ(
      ParseRequest("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n").status,
      501);
  EXPECT_EQ(ParseRequest("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n").status, 501);
  EXPECT_EQ(
      ParseRequest("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n")
          .status,
      0);
}

TEST(RequestHeadTest, RejectsTooManyHeaders) {
  std::string text = "GET / HTTP/1.1\r\nHost: a\r\n";
  for (int i = 0; i < 200; ++i) text += "A: b\r\n";
  EXPECT_EQ(ParseRequest(text + "\r\n").status, 431);
}

TEST(RequestHeadTest, FindsTheEndForEverySplitOfTheBytes) {
  const std::string text = "GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n\r\nrest";
  const size_t end = text.size() - 4;
  for (size_t first = 0; first < end; ++first) {
    EXPECT_FALSE(FindHeadEnd(text.substr(0, first), 0));
    EXPECT_EQ(FindHeadEnd(text, first), end) << first;
  }
}

TEST(RequestHeadTest, FindsAControlCharacterAtEveryPosition) {
  for (size_t size = 1; size < 20; ++size) {
    for (size_t at = 0; at < size; ++at) {
      for (int c = 0; c < 256; ++c) {
        std::string text(size, 'x');
        text[at] = static_cast<char>(c);
        const bool is_control = (c < ' ' && c != '\t') || c == 0x7f;
        ASSERT_EQ(HasControlCharacter(text), is_control) << size << " " << at << " " << c;
      }
    }
  }
}

TEST(RequestHeadTest, ComparesEveryPairOfBytesWithoutCase) {
  const auto lower = [](int c) { return c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c; };
  for (const size_t size : {1, 8, 13}) {
    for (int a = 0; a < 256; ++a) {
      for (int b = 0; b < 256; ++b) {
        const size_t at = (a * 7 + b) % size;
        std::string first(size, 'Q'), second(size, 'q');
        first[at] = static_cast<char>(a);
        second[at] = static_cast<char>(b);
        ASSERT_EQ(EqualsIgnoreCase(first, second), lower(a) == lower(b)) << size << " " << a << b;
      }
    }
  }
  EXPECT_FALSE(EqualsIgnoreCase("transfer-encoding", "transfer-encodinh"));
  EXPECT_FALSE(EqualsIgnoreCase("host", "hos"));
}

}  // namespace
}  // namespace nereid::http
