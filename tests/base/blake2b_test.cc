// The expected digests come from Python's hashlib.blake2b(..., digest_size=32).
#include "base/blake2b.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace nereid {
namespace {

std::string Hash(const std::string& text) {
  Blake2b hash;
  hash.Add(text);
  return hash.HexDigest();
}

TEST(Blake2bTest, MatchesTheDigestsOfHashlib) {
  EXPECT_EQ(Hash(""), "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8");
  EXPECT_EQ(Hash("abc"), "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
  EXPECT_EQ(Hash(std::string(128, 'x')),
            "164ffb7089bae6f5a62fb0795e751dc9e88eac92e1a5b2fafe93a25abf2d9c3b");
  EXPECT_EQ(Hash(std::string(129, 'x')),
            "03b0758fa71d249c846c2304a2b9996e6ae66ffa7e5528f9e612e089a360fc8d");
}

TEST(Blake2bTest, DigestDoesNotDependOnChunkSizes) {
  std::string bytes;
  for (int i = 0; i < 1024; ++i) bytes += static_cast<char>(i % 256);
  for (const size_t chunk : {1u, 7u, 127u, 128u, 129u, 1024u}) {
    Blake2b hash;
    for (size_t at = 0; at < bytes.size(); at += chunk) hash.Add(bytes.substr(at, chunk));
    EXPECT_EQ(hash.HexDigest(), "f1551feeb252c7e60bb362205bd1ac2f70b145260a91d41e8c5d0a187549a5f2")
        << chunk;
  }
}

}  // namespace
}  // namespace nereid
