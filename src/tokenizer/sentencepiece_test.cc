// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>

#include "base/mapped_file.h"
#include "hydrant/error.h"
#include "tests/test_data.h"
#include "tokenizer/loaders.h"
#include "tokenizer/sentencepiece/charsmap.h"
#include "tokenizer/sentencepiece/protobuf.h"
#include "tokenizer/sentencepiece/sentencepiece_model.h"

namespace hydrant::tokenizer::sentencepiece_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Piece = SentencePieceModel::Piece;

std::string OwnModel() { return base::ReadTextFile(test::SourceDir() + "/models/tale-14m/tokenizer.model"); }

SentencePieceModel Tiny() {
  SentencePieceModel model;
  model.is_bpe = true;
  model.pieces = {{"<unk>", 0, PieceType::kUnknown}, {"<s>", 0, PieceType::kControl},
                  {"</s>", 0, PieceType::kControl},  {"\xE2\x96\x81", -1, PieceType::kNormal},
                  {"a", -2, PieceType::kNormal},     {"b", -3, PieceType::kNormal},
                  {"ab", -4, PieceType::kNormal}};
  return model;
}

std::string MessageOf(const std::string& bytes) {
  try {
    LoadSentencePiece(bytes, "t.model");
  } catch (const FileError& e) {
    return e.what();
  }
  return "accepted";
}
std::string MessageOf(const SentencePieceModel& model) { return MessageOf(Serialize(model)); }

TEST(SentencePieceTest, EncodesAndDecodesWithTheLeastModel) {
  const auto tokenizer = LoadSentencePiece(Serialize(Tiny()), "t.model");
  EXPECT_THAT(tokenizer->Encode("ab", {}), ElementsAre(3, 6));
  EXPECT_THAT(tokenizer->Encode("a</s>", {.parse_special = true, .add_bos = true}), ElementsAre(1, 3, 4, 2));
  EXPECT_THAT(tokenizer->Encode("a c", {}), ElementsAre(3, 4, 3, 0));
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{1, 3, 6, 3, 4, 2}, true), "ab a");
  EXPECT_EQ(tokenizer->bos_id(), 1);
  EXPECT_TRUE(tokenizer->adds_bos());
  EXPECT_THROW(tokenizer->Decode(std::vector<int32_t>{7}, true), UserError);
}

TEST(SentencePieceTest, ReadsUnigramModels) {
  SentencePieceModel model = Tiny();
  model.is_bpe = false;
  EXPECT_THAT(LoadSentencePiece(Serialize(model), "t.model")->Encode("ab", {}), ElementsAre(3, 6));
}

TEST(SentencePieceTest, TakesTheBosRuleAndMoreTokensFromTheConfig) {
  ConfigRules rules;
  rules.add_bos_token = false;
  rules.added_tokens = {{.id = 2, .content = "</s>", .special = true}, {.id = 7, .content = "<pad>", .special = true}};
  const auto tokenizer = LoadSentencePiece(Serialize(Tiny()), "t.model", rules);
  EXPECT_FALSE(tokenizer->adds_bos());
  EXPECT_EQ(tokenizer->vocab_size(), 8);
  EXPECT_THAT(tokenizer->Encode("<pad>a", {}), ElementsAre(7, 3, 4));
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{7, 3, 4}, false), "<pad> a");
  rules.added_tokens = {{.id = 2000000000, .content = "x"}};
  EXPECT_THROW(LoadSentencePiece(Serialize(Tiny()), "t.model", rules), FileError);
  rules.added_tokens = {{.id = 100'000, .content = "x"}, {.id = 300'000, .content = "y"}};  // not by the first's id
  EXPECT_THROW(LoadSentencePiece(Serialize(Tiny()), "t.model", rules), FileError);
}

// A fine-tuned model may give a piece another name, or say that one is special.
TEST(SentencePieceTest, TakesPiecesAsTheConfigHasThem) {
  ConfigRules rules;
  rules.added_tokens = {{.id = 5, .content = "<|end|>", .special = true}, {.id = 4, .content = "a", .special = true}};
  const auto tokenizer = LoadSentencePiece(Serialize(Tiny()), "t.model", rules);
  EXPECT_THAT(tokenizer->Encode("ab<|end|>", {}), ElementsAre(3, 6, 5));
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{3, 6, 5}, false), "ab<|end|>");
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{6, 5, 4}, true), "ab");
}

TEST(SentencePieceTest, RewritesTheModelWithoutLoss) {
  const SentencePieceModel model = ParseSentencePieceModel(OwnModel(), "t.model");
  EXPECT_EQ(model.pieces.size(), 4096U);
  EXPECT_TRUE(model.is_bpe);
  EXPECT_TRUE(model.byte_fallback);
  EXPECT_EQ(Serialize(ParseSentencePieceModel(Serialize(model), "t.model")), Serialize(model));
}

TEST(SentencePieceTest, RefusesBrokenPieces) {
  const auto with = [](const Piece& piece) {
    SentencePieceModel model = Tiny();
    model.pieces.push_back(piece);
    return MessageOf(model);
  };
  EXPECT_EQ(with({"c", -5, PieceType::kNormal}), "accepted");
  EXPECT_THAT(with({"", 0, PieceType::kNormal}), HasSubstr("0 bytes"));
  EXPECT_THAT(with({std::string(600, 'x'), 0, PieceType::kNormal}), HasSubstr("600 bytes"));
  EXPECT_THAT(with({"a", 0, PieceType::kNormal}), HasSubstr("piece 7 (\"a\") stands twice"));
  EXPECT_THAT(with({"\xFF", 0, PieceType::kNormal}), HasSubstr("not valid text"));
  EXPECT_THAT(with({std::string("x\0y", 3), 0, PieceType::kUserDefined}), HasSubstr("not valid text"));
  EXPECT_THAT(with({"c", std::numeric_limits<float>::quiet_NaN(), PieceType::kNormal}), HasSubstr("score"));
  EXPECT_THAT(with({"c", std::numeric_limits<float>::infinity(), PieceType::kNormal}), HasSubstr("score"));
  EXPECT_THAT(with({"<u2>", 0, PieceType::kUnknown}), HasSubstr("2 unknown pieces"));
  EXPECT_THAT(with({"<0x00>", 0, PieceType::kByte}), HasSubstr("byte_fallback"));
  EXPECT_THAT(with({"c", 0, static_cast<PieceType>(9)}), HasSubstr("type 9"));
}

TEST(SentencePieceTest, RefusesBrokenModels) {
  SentencePieceModel model = Tiny();
  model.byte_fallback = true;
  EXPECT_THAT(MessageOf(model), HasSubstr("0 bytes, expected all 256"));
  model.pieces.push_back({"<0x0>", 0, PieceType::kByte});
  EXPECT_THAT(MessageOf(model), HasSubstr("<0x0A>"));
  EXPECT_THAT(MessageOf(std::string()), HasSubstr("has no pieces"));
  model = Tiny();
  model.pieces.erase(model.pieces.begin() + 3, model.pieces.end());
  EXPECT_THAT(MessageOf(model), HasSubstr("no normal pieces"));
  // Later messages of the same field add to earlier ones, as protobuf merges them.
  const auto with_trainer = [](uint32_t field, uint64_t value) {
    ProtoWriter trainer;
    trainer.Number(field, value);
    ProtoWriter message;
    message.Bytes(2, trainer.message());
    return MessageOf(Serialize(Tiny()) + message.message());
  };
  EXPECT_THAT(with_trainer(3, 3), HasSubstr("model_type"));
  EXPECT_THAT(with_trainer(24, 1), HasSubstr("treat_whitespace_as_suffix"));
  EXPECT_THAT(with_trainer(40, 7), HasSubstr("'trainer_spec.unk_id' is 7, expected -1 or the id of one of 7 pieces"));
  EXPECT_THAT(with_trainer(41, ~uint64_t{1}), HasSubstr("bos_id' is -2"));
  EXPECT_EQ(with_trainer(43, ~uint64_t{0}), "accepted");
}

TEST(SentencePieceTest, RefusesMalformedMessages) {
  EXPECT_THAT(MessageOf("\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F"), HasSubstr("truncated"));
  EXPECT_THAT(MessageOf(std::string(12, '\xFF')), HasSubstr("more than 10 bytes"));
  EXPECT_THAT(MessageOf("\x0B"), HasSubstr("wire type"));
  EXPECT_THAT(MessageOf(std::string("\x00\x01", 2)), HasSubstr("field number"));
  EXPECT_THAT(MessageOf("\x08\x01"), HasSubstr("another type"));
  // A tiktoken file, which some models call tokenizer.model too.
  EXPECT_NE(MessageOf("IQ== 0\nIg== 1\n"), "accepted");
}

// A table that maps 'a' (97) to the text at `leaf`, and nothing else: 512 units of 4 bytes.
std::string Charsmap(uint32_t leaf, const std::string& texts) {
  std::vector<uint32_t> units(512, 0x80000000);
  units[0] = 256U << 10;             // children of the root at 256 ^ byte
  units[256 ^ 'a'] = 'a' | 1U << 8;  // has a leaf, offset set below
  const uint32_t node = 256 ^ 'a';
  units[node] |= (node ^ 256U ^ 'z') << 10;  // its leaf at 256 ^ 'z'
  units[256 ^ 'z'] = 0x80000000 | leaf;
  std::string table(4, '\0');
  const auto bytes = static_cast<uint32_t>(units.size() * 4);
  std::memcpy(table.data(), &bytes, 4);
  table.append(reinterpret_cast<const char*>(units.data()), bytes);
  return table + texts;
}

TEST(CharsmapTest, AcceptsATableThatTheLibraryCanFollow) {
  SentencePieceModel model = Tiny();
  model.charsmap = Charsmap(2, std::string("x\0b\0", 4));
  const auto tokenizer = LoadSentencePiece(Serialize(model), "t.model");
  EXPECT_THAT(tokenizer->Encode("a", {}), ElementsAre(3, 5));  // mapped to b
}

TEST(CharsmapTest, RefusesTablesThatLeadOutside) {
  const auto message = [](const std::string& table) {
    SentencePieceModel model = Tiny();
    model.charsmap = table;
    return MessageOf(model);
  };
  const std::string texts("x\0b\0", 4);
  EXPECT_THAT(message("abc"), HasSubstr("has 3 bytes"));
  EXPECT_THAT(message(std::string("\xFF\xFF\xFF\xFF", 4) + std::string(2000, '\0')), HasSubstr("4294967295 bytes"));
  EXPECT_THAT(message(Charsmap(2, "")), HasSubstr("its trie has 2048 bytes"));
  EXPECT_THAT(message(Charsmap(4, texts)), HasSubstr("outside its texts"));
  EXPECT_THAT(message(Charsmap(0, "no end")), HasSubstr("outside its texts"));
  EXPECT_THAT(message(Charsmap(0, std::string(200, 'x') + '\0')), HasSubstr("200 bytes"));
  EXPECT_THAT(message(Charsmap(0, std::string("\xFF\0", 2))), HasSubstr("not valid UTF-8"));
  std::string circle = Charsmap(2, texts);  // the children of 'a' are those of the root
  const uint32_t node = 'a' | static_cast<uint32_t>('a') << 10;
  std::memcpy(circle.data() + 4 + size_t{4} * (256 ^ 'a'), &node, 4);
  EXPECT_THAT(message(circle), HasSubstr("a key of more than 64 bytes"));
  std::string far = Charsmap(2, texts);
  const uint32_t root = 512U << 10;
  std::memcpy(far.data() + 4, &root, 4);
  EXPECT_THAT(message(far), HasSubstr("outside the table"));
}

// Loads bytes that may be anything: a typed error or a tokenizer that works.
void LoadDamaged(const std::string& bytes) {
  try {
    const auto tokenizer = LoadSentencePiece(bytes, "t.model");
    tokenizer->Decode(tokenizer->Encode("The caf\xC3\xA9 costs 12 </s> \xFF", {}), false);
  } catch (const UserError&) {
  }
}

TEST(SentencePieceTest, SurvivesTruncation) {
  const std::string tiny = Serialize(Tiny());
  for (size_t size = 0; size < tiny.size(); ++size) LoadDamaged(tiny.substr(0, size));
  const std::string model = OwnModel();
  for (size_t size = 0; size < model.size(); size += 997) LoadDamaged(model.substr(0, size));
}

TEST(SentencePieceTest, SurvivesFlippedBits) {
  SentencePieceModel mapped = Tiny();
  mapped.charsmap = Charsmap(2, std::string("x\0b\0", 4));
  const std::string tiny = Serialize(mapped);
  for (size_t i = 0; i < tiny.size() * 8; ++i) {
    std::string damaged = tiny;
    damaged[i / 8] = static_cast<char>(damaged[i / 8] ^ (1 << (i % 8)));
    LoadDamaged(damaged);
  }
  std::mt19937 random(11);
  const std::string model = OwnModel();
  for (int round = 0; round < 100; ++round) {
    std::string damaged = model;
    char& byte = damaged[random() % damaged.size()];
    byte = static_cast<char>(byte ^ (1 << (random() % 8)));
    LoadDamaged(damaged);
  }
}

}  // namespace
}  // namespace hydrant::tokenizer::sentencepiece_test
