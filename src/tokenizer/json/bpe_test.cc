// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/json/bpe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/json.h"
#include "hydrant/error.h"

namespace hydrant::tokenizer::bpe_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

BpeModel Parsed(const std::string& json) {
  const base::Json value = base::ParseJson(json, "t.json");
  return BpeModel::Parse(base::JsonView(value, "t.json"));
}

std::vector<int32_t> Ids(const BpeModel& model, const std::string& word) {
  std::vector<int32_t> ids;
  model.Encode(word, &ids);
  return ids;
}

std::string MessageOf(const std::string& json) {
  try {
    Parsed(json);
  } catch (const FileError& e) {
    return e.what();
  }
  return "accepted";
}

TEST(BpeTest, MergesByRankThenFromTheLeft) {
  const BpeModel model =
      Parsed(R"({"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"ba":3,"aba":4},"merges":["b a",["a","b"],"ab a"]})");
  EXPECT_THAT(Ids(model, "ab"), ElementsAre(2));
  EXPECT_THAT(Ids(model, "aba"), ElementsAre(0, 3));
  EXPECT_THAT(Ids(model, ""), ElementsAre());
}

TEST(BpeTest, TakesAWholeTokenFirstWhenMergesAreIgnored) {
  const std::string vocab = R"({"vocab":{"a":0,"b":1,"ab":2},"merges":[],"ignore_merges":)";
  EXPECT_THAT(Ids(Parsed(vocab + "true}"), "ab"), ElementsAre(2));
  EXPECT_THAT(Ids(Parsed(vocab + "false}"), "ab"), ElementsAre(0, 1));
}

TEST(BpeTest, FallsBackToBytesThenToUnknownThenToNothing) {
  const std::string start = R"({"vocab":{"<unk>":0,"a":1,"<0xC3>":2,"<0xA9>":3},"merges":[],"byte_fallback":true)";
  const std::string text = "a\xC3\xA9\xC3\xA8\xC3\xA8";
  EXPECT_THAT(Ids(Parsed(start + R"(,"unk_token":"<unk>","fuse_unk":true})"), text), ElementsAre(1, 2, 3, 0));
  EXPECT_THAT(Ids(Parsed(start + R"(,"unk_token":"<unk>"})"), text), ElementsAre(1, 2, 3, 0, 0));
  EXPECT_THAT(Ids(Parsed(start + R"(,"unk_token":null})"), text), ElementsAre(1, 2, 3));
}

// The definition, for comparison: again and again the leftmost pair of the lowest rank.
std::vector<std::string> MergeSlowly(const std::string& word,
                                     const std::vector<std::pair<std::string, std::string>>& merges) {
  std::vector<std::string> parts;
  for (const char letter : word) parts.emplace_back(1, letter);
  for (;;) {
    size_t best_rank = merges.size();
    size_t best = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      for (size_t rank = 0; rank < best_rank; ++rank) {
        if (merges[rank] == std::pair(parts[i], parts[i + 1])) {
          best_rank = rank;
          best = i;
        }
      }
    }
    if (best_rank == merges.size()) return parts;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST(BpeTest, EqualsTheSlowDefinition) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    base::Json vocab = {{"a", 0}, {"b", 1}, {"c", 2}};
    std::vector<std::string> tokens = {"a", "b", "c"};
    std::vector<std::pair<std::string, std::string>> merges;
    base::Json merges_json = base::Json::array();
    while (merges.size() < 12) {
      const std::string left = tokens[random() % tokens.size()];
      const std::string right = tokens[random() % tokens.size()];
      if (std::find(merges.begin(), merges.end(), std::pair(left, right)) != merges.end()) continue;
      if (!vocab.contains(left + right)) {
        vocab[left + right] = tokens.size();
        tokens.push_back(left + right);
      }
      merges.emplace_back(left, right);
      merges_json.push_back({left, right});
    }
    const BpeModel model = Parsed(base::Json{{"vocab", vocab}, {"merges", merges_json}}.dump());
    std::string word;
    for (int i = 0; i < 40; ++i) word += static_cast<char>('a' + random() % 3);
    std::vector<int32_t> expected;
    for (const std::string& part : MergeSlowly(word, merges)) expected.push_back(model.IdOf(part));
    ASSERT_EQ(Ids(model, word), expected) << word;
  }
}

TEST(BpeTest, TakesAMegabyteInOneWord) {
  const BpeModel model = Parsed(R"({"vocab":{"a":0,"aa":1,"aaaa":2,"b":3},"merges":["a a","aa aa"]})");
  EXPECT_EQ(Ids(model, std::string(1 << 20, 'a')).size(), (1U << 20) / 4);
}

TEST(BpeTest, RefusesBrokenTables) {
  EXPECT_THAT(MessageOf(R"({"type":"Unigram","vocab":{},"merges":[]})"), HasSubstr("\"Unigram\""));
  EXPECT_THAT(MessageOf(R"({"vocab":{"a":0,"b":0},"merges":[]})"), HasSubstr("an id that no other token has"));
  EXPECT_THAT(MessageOf(R"({"vocab":{"a":4000000000},"merges":[]})"), HasSubstr("an id from 0 to"));
  EXPECT_THAT(MessageOf(R"({"vocab":{"a":-1},"merges":[]})"), HasSubstr("an id from 0 to"));
  EXPECT_THAT(MessageOf(R"({"vocab":{"a":0},"merges":["a b"]})"), HasSubstr("it has no \"b\""));
  EXPECT_THAT(MessageOf(R"({"vocab":{"a":0},"merges":["aa"]})"), HasSubstr("one space"));
  EXPECT_THAT(MessageOf(R"({"vocab":{"a":0},"merges":["a a a"]})"), HasSubstr("one space"));
  EXPECT_THAT(MessageOf(R"({"vocab":{"a":0},"merges":[["a"]]})"), HasSubstr("'merges[0]'"));
  EXPECT_THAT(MessageOf(R"({"vocab":{"a":0},"merges":[],"unk_token":"x"})"), HasSubstr("unk_token"));
  EXPECT_THAT(MessageOf(R"({"vocab":{"a":0},"merges":[],"dropout":0.1})"), HasSubstr("dropout"));
  EXPECT_THAT(MessageOf(R"({"vocab":{"a":0},"merges":[],"end_of_word_suffix":"</w>"})"), HasSubstr("end_of_word"));
}

}  // namespace
}  // namespace hydrant::tokenizer::bpe_test
