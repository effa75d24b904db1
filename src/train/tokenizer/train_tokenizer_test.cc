// SPDX-License-Identifier: Apache-2.0
#include "train/tokenizer/train_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sentencepiece_processor.h>

#include "hydrant/error.h"
#include "tests/test_data.h"
#include "tokenizer/loaders.h"
#include "tokenizer/sentencepiece/sentencepiece_model.h"

namespace hydrant::train::train_tokenizer_test {
namespace {

using testing::HasSubstr;
using tokenizer::PieceType;

std::string Stories() {
  std::string text;
  const char* const who[] = {"fox", "hen", "old king", "boy named Tim", "girl named Anna"};
  const char* const what[] = {"ran to the river", "found 1234 red apples", "said \"hello\" to a friend", "was sad"};
  for (int i = 0; i < 400; ++i) {
    text += "Once upon a time there was a " + std::string(who[i % 5]) + " who " + what[(i * 7 + i / 5) % 4] + ".\n";
    if (i % 9 == 0) text += "    for (int i = 0; i < " + std::to_string(i * 37) + "; ++i)\tcaf\xc3\xa9\n";
  }
  return text;
}

std::string Train(const std::string& content, int32_t vocab_size) {
  const test::TempDir dir;
  return TrainTokenizer(std::vector<std::string>{dir.Write("data.txt", content)}, {.vocab_size = vocab_size});
}

TEST(TrainTokenizerTest, HasLlamasLayout) {
  const std::string bytes = Train(Stories(), 400);
  const tokenizer::SentencePieceModel model = tokenizer::ParseSentencePieceModel(bytes, "new");
  ASSERT_EQ(model.pieces.size(), 400U);
  EXPECT_EQ(model.pieces[0].type, PieceType::kUnknown);
  EXPECT_EQ(model.pieces[1].text, "<s>");
  EXPECT_EQ(model.pieces[2].text, "</s>");
  EXPECT_EQ(model.pieces[3].text, "<0x00>");
  EXPECT_EQ(model.pieces[258].text, "<0xFF>");
  EXPECT_EQ(model.pieces[258].type, PieceType::kByte);
  EXPECT_TRUE(model.is_bpe && model.byte_fallback && model.add_dummy_prefix && !model.remove_extra_whitespaces);
  EXPECT_EQ(model.charsmap, "");
  for (const auto& piece : model.pieces) {
    if (piece.type != PieceType::kNormal || piece.text.size() < 2) continue;
    EXPECT_EQ(piece.text.find_first_of("0123456789"), std::string::npos) << "digits stand alone: " << piece.text;
  }
}

TEST(TrainTokenizerTest, OurLoaderGivesTheIdsOfSentencePiece) {
  const std::string bytes = Train(Stories(), 420);
  const auto ours = tokenizer::LoadSentencePiece(bytes, "new");
  sentencepiece::SentencePieceProcessor theirs;
  ASSERT_TRUE(theirs.LoadFromSerializedProto(bytes).ok());
  for (const std::string text : {"Once upon a time there was a fox", "  two  spaces\n\nand lines", "12345 caf\xc3\xa9",
                                 "\xe4\xbd\xa0\xe5\xa5\xbd, unseen", "x", " ", ""}) {
    std::vector<int> expected;
    ASSERT_TRUE(theirs.Encode(text, &expected).ok());
    EXPECT_EQ(ours->Encode(text, {.parse_special = false, .add_bos = false}), expected) << text;
    EXPECT_EQ(ours->Decode(expected, false), text);
  }
  EXPECT_EQ(ours->bos_id(), 1);
  EXPECT_LE(ours->Encode("Once upon a time there was a", {.add_bos = false}).size(), 7U) << "frequent words are pieces";
}

TEST(TrainTokenizerTest, TheSameTextGivesTheSameBytes) {
  const std::string bytes = Train(Stories(), 450);
  EXPECT_EQ(Train(Stories(), 450), bytes);
  EXPECT_NE(Train(Stories() + "zebra zebra zebra", 450), bytes);
}

TEST(TrainTokenizerTest, SizesThatTheTextCannotGiveAreRefusedWithTheReason) {
  const auto message = [](const std::string& text, int32_t vocab_size) {
    try {
      Train(text, vocab_size);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(message(Stories(), 100000),
              testing::ContainsRegex("is 100000, and the text gives [0-9]+ tokens at most"));
  EXPECT_THAT(message(Stories(), 262), HasSubstr("more different characters"));
  EXPECT_THAT(message(Stories(), 259), HasSubstr("expected 260 to"));
  EXPECT_THAT(message("aaaa", 5000), HasSubstr("tokens at most"));
}

// What the trainer itself trips over, or leaves out.
TEST(TrainTokenizerTest, OddTextGivesATokenizerThatIsRead) {
  const std::string odd =
      Stories() +
      "tab\tin\xe2\x96\x81it \xef\xbf\xbf \xef\xb7\x90 \xe2\x96\x85 \xf0\x9f\x98\x80\n\t\t\n<s> </s> <unk> <0x41>\n";
  const auto read = tokenizer::LoadSentencePiece(Train(odd + odd, 420), "new");
  EXPECT_EQ(read->vocab_size(), 420);
}

}  // namespace
}  // namespace hydrant::train::train_tokenizer_test
