// SPDX-License-Identifier: Apache-2.0
#include "sequence/text_collector.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace hydrant::sequence::text_collector_test {
namespace {

// A tokenizer whose token i is the i-th of a list of byte strings.
class ListTokenizer : public tokenizer::Tokenizer {
 public:
  explicit ListTokenizer(std::vector<std::string> pieces) : pieces_(std::move(pieces)) {}
  std::vector<int32_t> Encode(std::string_view /*text*/, const tokenizer::EncodeOptions& /*options*/) const override {
    return {};
  }
  std::string Decode(std::span<const int32_t> ids, bool /*skip_special*/) const override {
    std::string text;
    for (const int32_t id : ids) text += pieces_[static_cast<size_t>(id)];
    return text;
  }
  std::string TokenBytes(int32_t id, bool /*is_first*/) const override { return pieces_[static_cast<size_t>(id)]; }
  int32_t vocab_size() const override { return static_cast<int32_t>(pieces_.size()); }
  bool IsSpecial(int32_t /*id*/) const override { return false; }
  int32_t bos_id() const override { return -1; }
  bool adds_bos() const override { return false; }
  std::string TokenText(int32_t id) const override { return pieces_[static_cast<size_t>(id)]; }
  int32_t IdOfToken(std::string_view /*text*/) const override { return -1; }

 private:
  std::vector<std::string> pieces_;
};

TEST(TextCollectorTest, AStopStringAcrossTokensIsCutAtItsStart) {
  const ListTokenizer tokenizer({"ab", "cE", "ND", "x"});
  TextCollector text(&tokenizer, {"END"});
  EXPECT_FALSE(text.Push(0));
  EXPECT_FALSE(text.Push(1));
  EXPECT_EQ(text.num_ready(), 1) << "'cE' may still become the stop string";
  EXPECT_TRUE(text.Push(2));
  EXPECT_EQ(text.text(), "abc");
  EXPECT_EQ(text.num_ready(), 3);
  EXPECT_EQ(text.token_text(1), "c");
  EXPECT_EQ(text.token_text(2), "");
}

TEST(TextCollectorTest, AFalseBeginningIsReleased) {
  const ListTokenizer tokenizer({"ab", "cE", "ND", "x"});
  TextCollector text(&tokenizer, {"END"});
  text.Push(1);
  EXPECT_FALSE(text.Push(3));
  EXPECT_EQ(text.num_ready(), 2);
}

TEST(TextCollectorTest, TheEarliestMatchWinsAmongSeveral) {
  const ListTokenizer tokenizer({"one two three"});
  TextCollector text(&tokenizer, {"three", "two", "o three"});
  EXPECT_TRUE(text.Push(0));
  EXPECT_EQ(text.text(), "one ");
}

TEST(TextCollectorTest, AnIncompleteCharacterIsHeldAndThenReplaced) {
  const ListTokenizer tokenizer({"\xE2\x82", "\xAC", "\xC3"});
  TextCollector text(&tokenizer, {});
  text.Push(0);
  EXPECT_EQ(text.text(), "");
  text.Push(1);
  EXPECT_EQ(text.text(), "\xE2\x82\xAC");
  text.Push(2);
  text.Close();
  EXPECT_EQ(text.text(), "\xE2\x82\xAC\xEF\xBF\xBD");
}

TEST(TextCollectorTest, IdsBeyondTheTokenizerHaveNoText) {
  const ListTokenizer tokenizer({"a"});
  TextCollector text(&tokenizer, {});
  EXPECT_FALSE(text.Push(0));
  EXPECT_FALSE(text.Push(7));
  EXPECT_EQ(text.text(), "a");
  EXPECT_EQ(text.num_tokens(), 2);
}

TEST(TextCollectorTest, WithoutATokenizerThereIsNoText) {
  TextCollector text(nullptr, {});
  EXPECT_FALSE(text.Push(5));
  text.Close();
  EXPECT_EQ(text.text(), "");
  EXPECT_EQ(text.num_ready(), 1);
}

}  // namespace
}  // namespace hydrant::sequence::text_collector_test
