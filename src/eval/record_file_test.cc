// SPDX-License-Identifier: Apache-2.0
#include "eval/record_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "base/json.h"
#include "base/mapped_file.h"
#include "checkpoint/content_hash.h"
#include "hydrant/error.h"
#include "tests/test_data.h"

namespace hydrant::eval::record_file_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

RecordingKey Key() {
  return {.model = "xxh64:1", .heads = "xxh64:2", .prompts = "xxh64:3", .settings = "{\"seed\":1}"};
}

Recording Small() {
  const uint8_t no = tree::kNoRank;
  Recording recording;
  recording.replies = {{.prompt_ids = {1, 300, 70000},
                        .token_ids = {5, 6, 7},
                        .past_end = {8},
                        .finish_reason = FinishReason::kStop,
                        .seed = ~uint64_t{0}},
                       {.prompt_ids = {1}, .token_ids = {9}, .past_end = {}, .finish_reason = FinishReason::kEos},
                       {.prompt_ids = {2}, .token_ids = {9, 2}, .past_end = {1, 2, 3}, .seed = 3}};
  recording.ranks = {.num_levels = 2, .num_ranks = 4, .replies = {{0, 3, 1, no}, {}, {no, no}}};
  return recording;
}

class RecordFileTest : public testing::Test {
 protected:
  RecordFileTest() { WriteRecording(path_, Key(), Small()); }

  std::string Read(const RecordingKey& key = Key()) const {
    try {
      ReadRecording(path_, key);
    } catch (const FileError& error) {
      EXPECT_THAT(error.what(), StartsWith(path_ + ": "));
      return error.what();
    }
    return "";
  }
  // Of the file with another header, and other bytes behind it.
  std::string ReadWith(const std::function<void(base::Json&)>& header,
                       const std::function<void(std::string&)>& content = {}) const {
    const std::string whole = base::ReadTextFile(path_);
    const size_t end = whole.find('\n');
    base::Json json = base::ParseJson(whole.substr(0, end), path_);
    std::string rest = whole.substr(end + 1);
    if (content) {
      content(rest);
      folder_.Write("bytes", rest);
      json["content"] = checkpoint::HashOfFiles({folder_.path() + "/bytes"});
    }
    header(json);
    folder_.Write("recording", base::DumpJson(json) + "\n" + rest);
    std::string error = Read();
    folder_.Write("recording", whole);
    return error;
  }

  test::TempDir folder_;
  std::string path_ = folder_.path() + "/recording";
};

TEST_F(RecordFileTest, GivesBackWhatWasWritten) {
  EXPECT_EQ(ReadRecording(path_, Key()), Small());
  const RecordingKey none = {};
  WriteRecording(path_, none, {.replies = {}, .ranks = {.num_levels = 1, .num_ranks = 255, .replies = {}}});
  EXPECT_TRUE(ReadRecording(path_, none).replies.empty());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 1) << "nothing is left beside it";
}

TEST_F(RecordFileTest, ARecordingOfSomethingElseIsRefusedByName) {
  RecordingKey key = Key();
  key.model = "xxh64:9";
  EXPECT_THAT(Read(key), HasSubstr("'model' is \"xxh64:1\", expected \"xxh64:9\""));
  key = Key();
  key.heads = "xxh64:9";
  EXPECT_THAT(Read(key), HasSubstr("'heads' is \"xxh64:2\""));
  key = Key();
  key.prompts = "xxh64:9";
  EXPECT_THAT(Read(key), HasSubstr("'prompts' is \"xxh64:3\""));
  key = Key();
  key.settings = "{\"seed\":2}";
  EXPECT_THAT(Read(key), HasSubstr("'settings' is "));
}

TEST_F(RecordFileTest, ACutOrLongerFileIsRefused) {
  const std::string whole = base::ReadTextFile(path_);
  for (size_t size = 0; size < whole.size(); ++size) {
    folder_.Write("recording", whole.substr(0, size));
    EXPECT_NE(Read(), "") << size << " bytes of " << whole.size();
  }
  folder_.Write("recording", whole + "x");
  EXPECT_THAT(Read(), HasSubstr("bytes behind its first line, expected "));
  folder_.Write("recording", whole);
  EXPECT_EQ(Read(), "");
}

TEST_F(RecordFileTest, AByteThatChangedIsSeen) {
  const std::string whole = base::ReadTextFile(path_);
  for (size_t at = whole.find('\n') + 1; at < whole.size(); ++at) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    folder_.Write("recording", changed);
    EXPECT_THAT(Read(), HasSubstr("'content' is \"xxh64:"));
  }
}

TEST_F(RecordFileTest, AnotherKindOfFileIsRefused) {
  EXPECT_THAT(ReadWith([](base::Json& json) { json["format"] = "x"; }), HasSubstr("is no recording"));
  EXPECT_THAT(ReadWith([](base::Json& json) { json = base::Json::array(); }), HasSubstr("is no recording"));
  EXPECT_THAT(ReadWith([](base::Json& json) { json["version"] = 2; }), HasSubstr("'version' is 2, expected 1"));
  folder_.Write("recording", "no line");
  EXPECT_THAT(Read(), HasSubstr("its first line does not end"));
  std::filesystem::remove(path_);
  EXPECT_NE(Read(), "");
}

TEST_F(RecordFileTest, HeadersThatNoRecordingHasAreRefused) {
  const auto error = [this](const char* pointer, const base::Json& value) {
    return ReadWith([&](base::Json& json) { json[base::Json::json_pointer(pointer)] = value; });
  };
  EXPECT_THAT(error("/num_levels", 0), HasSubstr("'num_levels' is 0"));
  EXPECT_THAT(error("/num_levels", 65), HasSubstr("'num_levels' is 65"));
  EXPECT_THAT(error("/num_levels", 3), HasSubstr("bytes behind its first line"));
  EXPECT_THAT(error("/num_ranks", 256), HasSubstr("'num_ranks' is 256"));
  EXPECT_THAT(error("/replies", 7), HasSubstr("'replies' is 7"));
  EXPECT_THAT(error("/replies/1", "x"), HasSubstr("'replies[1]'"));
  EXPECT_THAT(error("/replies/0/tokens", -1), HasSubstr("tokens' is -1"));
  EXPECT_THAT(error("/replies/0/prompt", int64_t{1} << 40), HasSubstr("prompt' is 1099511627776"));
  EXPECT_THAT(error("/replies/0/past_end", 2), HasSubstr("bytes behind its first line"));
  EXPECT_THAT(error("/replies/2/finish_reason", "error"), HasSubstr("finish_reason' is \"error\""));
  EXPECT_THAT(error("/replies/0/seed", "18446744073709551616"), HasSubstr("seed' is "));
  EXPECT_THAT(error("/replies/0/seed", "7x"), HasSubstr("seed' is "));
  EXPECT_THAT(error("/replies/0/seed", ""), HasSubstr("seed' is "));
  EXPECT_THAT(error("/replies/0/seed", 7), HasSubstr("seed' is 7"));
}

TEST_F(RecordFileTest, RanksThatNoRecordingHasAreRefused) {
  const auto spoil = [this](size_t from_end, char rank) {
    return ReadWith([](base::Json&) {}, [&](std::string& content) { content[content.size() - from_end] = rank; });
  };
  EXPECT_EQ(spoil(5, 3), "");  // the second rank of the first row, as it is
  EXPECT_THAT(spoil(5, 4), HasSubstr("reply 0 has a rank in row 0"));
  EXPECT_THAT(spoil(1, 0), HasSubstr("reply 2 has a rank in row 0"));
}

TEST(RecordingKeyTest, HangsOnAllThatChangesARecording) {
  const test::TempDir model, heads;
  for (const auto& [from, to] : {std::pair("base_mha", &model), std::pair("hydra/mlp_k3_l2", &heads)}) {
    std::filesystem::copy(test::SourceDir() + "/tests/golden/" + from, to->path());
  }
  EngineOptions engine;
  engine.model = model.path();
  engine.draft = heads.path();
  engine.load_tokenizer = false;
  const std::unique_ptr<load::LoadedModel> loaded = load::LoadModel(engine);
  std::vector<std::vector<int32_t>> prompts{{1, 2}, {3}};
  RecordOptions options;
  const auto key = [&] { return KeyOf(*loaded, prompts, options); };
  const RecordingKey before = key();
  EXPECT_EQ(key(), before);
  options.num_levels = 3;
  EXPECT_EQ(key(), before) << "as many as there are by default";
  heads.Write("trees.json", "[]");
  EXPECT_EQ(key(), before) << "what a search writes is no part of it";
  options.sampling.seed = 1;
  EXPECT_NE(key().settings, before.settings);
  options = {.num_ranks = 7};
  EXPECT_NE(key().settings, before.settings);
  options = {};
  prompts = {{1}, {2, 3}};
  EXPECT_NE(key().prompts, before.prompts) << "the same ids, parted elsewhere";
  heads.Write("notes.txt", "x");
  EXPECT_NE(key().heads, before.heads);
  EXPECT_EQ(key().model, before.model);
  EXPECT_THROW(KeyOf(*loaded, prompts, options, [] { throw Stopped(); }), Stopped);
  std::filesystem::remove_all(heads.path());
  EXPECT_THROW(key(), FileError);
}

}  // namespace
}  // namespace hydrant::eval::record_file_test
