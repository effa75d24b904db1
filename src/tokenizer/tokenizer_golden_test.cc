// SPDX-License-Identifier: Apache-2.0
// Ids and texts of the reference libraries (tests/golden/tokenizers, and all of them where ../shared exists).
#include <gtest/gtest.h>

#include <filesystem>

#include "base/json.h"
#include "base/mapped_file.h"
#include "tests/test_data.h"
#include "tokenizer/tokenizer.h"

namespace hydrant::tokenizer::tokenizer_golden_test {
namespace {

using base::Json;
using Ids = std::vector<int32_t>;

class Golden {
 public:
  explicit Golden(const std::string& folder)
      : cases_(base::ReadJsonFile(folder + "/cases.json")),
        streams_(base::ReadJsonFile(folder + "/stream.json")),
        tokenizer_(LoadTokenizer(folder + "/" + cases_["file"].get<std::string>())) {}

  void CheckCases() const;
  void CheckDecodeCases() const;
  void CheckStreams() const;
  void CheckInvalidInput() const;

 private:
  Json cases_;
  Json streams_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

void Golden::CheckCases() const {
  const bool has_bos = !cases_["bos_id"].is_null();
  ASSERT_EQ(tokenizer_->bos_id(), has_bos ? cases_["bos_id"].get<int32_t>() : -1);
  EXPECT_EQ(tokenizer_->adds_bos(), has_bos);
  ASSERT_EQ(cases_["cases"].size(), cases_["num_texts"].get<size_t>());
  for (const Json& golden : cases_["cases"]) {
    const auto text = golden["text"].get<std::string>();
    SCOPED_TRACE(base::DumpJson(golden));
    const auto ids = golden["ids"].get<Ids>();
    EXPECT_EQ(tokenizer_->Encode(text, {}), ids);
    const Ids plain = golden.contains("ids_no_special") ? golden["ids_no_special"].get<Ids>() : ids;
    EXPECT_EQ(tokenizer_->Encode(text, {.parse_special = false, .add_bos = false}), plain);
    const auto decoded = golden["decoded"].get<std::string>();
    EXPECT_EQ(tokenizer_->Decode(ids, false), decoded);
    EXPECT_EQ(tokenizer_->Decode(ids, true), golden.value("decoded_skip_special", decoded));
    if (has_bos) {
      Ids with_bos = {tokenizer_->bos_id()};
      with_bos.insert(with_bos.end(), ids.begin(), ids.end());
      EXPECT_EQ(tokenizer_->Encode(text, {.parse_special = true, .add_bos = true}), with_bos);
    }
  }
}

void Golden::CheckDecodeCases() const {
  for (const Json& golden : cases_["decode_cases"]) {
    SCOPED_TRACE(base::DumpJson(golden));
    const auto ids = golden["ids"].get<Ids>();
    EXPECT_EQ(tokenizer_->Decode(ids, false), golden["decoded"].get<std::string>());
    EXPECT_EQ(tokenizer_->Decode(ids, true), golden["decoded_skip_special"].get<std::string>());
  }
}

void Golden::CheckStreams() const {
  for (const Json& golden : streams_["streams"]) {
    SCOPED_TRACE(base::DumpJson(golden));
    StreamDecoder decoder(tokenizer_.get(), !golden["prompt_ids"].empty());
    const auto ids = golden["ids"].get<Ids>();
    std::vector<std::string> emitted;
    for (const int32_t id : ids) emitted.push_back(decoder.Push(id));
    EXPECT_EQ(emitted, golden["emit"].get<std::vector<std::string>>());
    EXPECT_EQ(decoder.Flush(), golden["flush"].get<std::string>());
    EXPECT_EQ(decoder.Flush(), "");
  }
}

void Golden::CheckInvalidInput() const {
  for (const Json& golden : cases_.value("invalid_utf8_input", Json::array())) {
    const auto hex = golden["bytes_hex"].get<std::string>();
    SCOPED_TRACE(hex);
    std::string bytes;
    for (size_t i = 0; i < hex.size(); i += 2)
      bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
    EXPECT_EQ(tokenizer_->Encode(bytes, {}), golden["ids"].get<Ids>());
  }
}

void CheckFolder(const std::string& folder) {
  SCOPED_TRACE(folder);
  const Golden golden(folder);
  golden.CheckCases();
  golden.CheckDecodeCases();
  golden.CheckStreams();
  golden.CheckInvalidInput();
}

std::vector<std::string> FoldersOf(const std::string& parent) {
  std::vector<std::string> folders;
  for (const auto& entry : std::filesystem::directory_iterator(parent)) {
    if (entry.is_directory()) folders.push_back(entry.path().string());
  }
  return folders;
}

TEST(TokenizerGoldenTest, MatchesTheCommittedCases) {
  const std::vector<std::string> folders = FoldersOf(test::SourceDir() + "/tests/golden/tokenizers");
  EXPECT_EQ(folders.size(), 6U);
  for (const std::string& folder : folders) CheckFolder(folder);
}

TEST(TokenizerGoldenTest, MatchesAllReferenceCases) {
  HYDRANT_NEED_SHARED();
  const std::vector<std::string> folders = FoldersOf(test::SharedDir() + "/golden/tokenizers");
  EXPECT_EQ(folders.size(), 13U);
  for (const std::string& folder : folders) CheckFolder(folder);
}

// Texts with a separator line after each, and one line of ids per text.
void CheckConformance(const std::string& name, const std::string& tokenizer_path) {
  SCOPED_TRACE(name + " " + tokenizer_path);
  const auto tokenizer = LoadTokenizer(tokenizer_path);
  const std::string base = test::SharedDir() + "/tokenizers/conformance_cases/ggml-vocab-" + name + ".gguf";
  std::string texts = base::ReadTextFile(base + ".inp");
  std::istringstream ids_file(base::ReadTextFile(base + ".out"));
  const std::string separator = "\n__ggml_vocab_test__\n";
  size_t num_texts = 0;
  for (size_t end = texts.find(separator); end != std::string::npos; end = texts.find(separator)) {
    std::string line;
    ASSERT_TRUE(std::getline(ids_file, line));
    std::istringstream numbers(line);
    Ids expected;
    for (int32_t id = 0; numbers >> id;) expected.push_back(id);
    EXPECT_EQ(tokenizer->Encode(texts.substr(0, end), {}), expected) << base::DumpJson(texts.substr(0, end));
    texts.erase(0, end + separator.size());
    ++num_texts;
  }
  EXPECT_EQ(num_texts, 46U);
}

TEST(TokenizerGoldenTest, MatchesTheConformanceCases) {
  HYDRANT_NEED_SHARED();
  const std::string golden = test::SharedDir() + "/golden/tokenizers";
  CheckConformance("llama-bpe", golden + "/llama3");
  CheckConformance("qwen2", golden + "/qwen2");
  CheckConformance("llama-spm", golden + "/llama2");
  CheckConformance("llama-spm", test::SharedDir() + "/tokenizers/llama2/tokenizer.model");
}

}  // namespace
}  // namespace hydrant::tokenizer::tokenizer_golden_test
