// SPDX-License-Identifier: Apache-2.0
// Any bytes as a file of training data, under every template and two tokenizers: a typed error, or documents whose
// tokens lie in the vocabulary, segments within them and batches that have each segment once. The first byte chooses
// tokenizer and template, the rest is the file.
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "hydrant/error.h"
#include "train/data/batches.h"
#include "train/data/segments.h"
#include "train/data/token_data.h"

namespace hydrant::fuzz {
namespace {

namespace fs = std::filesystem;
using tokenizer::Tokenizer;
using train::TokenData;

constexpr int32_t kMost = 24, kLeast = 2;

const Tokenizer& TokenizerOf(unsigned choice) {
  const auto load = [](const char* folder) {
    return tokenizer::LoadTokenizer(std::string(HYDRANT_SOURCE_DIR) + "/" + folder);
  };
  static const std::array<std::unique_ptr<Tokenizer>, 2> tokenizers = {load("models/tale-14m"),
                                                                       load("tests/cases/added_tokens")};
  return *tokenizers[choice % tokenizers.size()];
}

// Its own for each process, removed at the end.
class DataFile {
 public:
  DataFile()
      : path_((fs::is_directory("/dev/shm") ? fs::path("/dev/shm") : fs::temp_directory_path()) /
              ("hydrant_fuzz_training_data_" + std::to_string(getpid()))) {}
  ~DataFile() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  DataFile(const DataFile&) = delete;
  DataFile& operator=(const DataFile&) = delete;

  std::vector<std::string> Write(std::string_view bytes) const {
    std::ofstream(path_, std::ios::binary) << bytes;
    return {path_};
  }

 private:
  std::string path_;
};

void CheckData(const TokenData& data, const Tokenizer& tokenizer) {
  HYDRANT_CHECK(data.learned.size() == data.tokens.size() && !data.ends.empty());
  for (const int32_t token : data.tokens) HYDRANT_CHECK(token >= 0 && token < tokenizer.vocab_size());
  for (const uint8_t learned : data.learned) HYDRANT_CHECK(learned <= 1);
  int64_t begin = 0;
  for (const int64_t end : data.ends) {
    HYDRANT_CHECK(begin < end && data.learned[static_cast<size_t>(begin)] == 0);
    begin = end;
  }
  HYDRANT_CHECK(static_cast<size_t>(begin) == data.tokens.size());
}

void CheckBatches(const TokenData& data) {
  const std::vector<train::Segment> segments = train::CutSegments(data, kMost, kLeast);
  int64_t begin = 0;
  for (const train::Segment& segment : segments) {
    HYDRANT_CHECK(segment.begin >= begin && segment.count >= kLeast && segment.count <= kMost);
    begin = segment.begin + segment.count;
  }
  HYDRANT_CHECK(begin <= static_cast<int64_t>(data.tokens.size()));
  train::BatchOrder order(segments, kMost, 3, data.tokens.size());
  size_t seen = 0;
  for (int64_t step = 0; step < order.steps(0); ++step) {
    const train::Batch batch = order.at(0, step);
    for (const int rank : {0, 1}) {
      for (const train::Row& row : train::ShareOf(batch, rank, 2).rows) seen += row.segments.size();
    }
  }
  HYDRANT_CHECK(seen == segments.size());
}

void Read(unsigned choice, std::string_view bytes) {
  static const DataFile file;
  const Tokenizer& tokenizer = TokenizerOf(choice);
  const auto names = tokenizer::TemplateNames();
  const size_t template_idx = choice / 2 % (names.size() + 1);
  train::ReadOptions options;
  if (template_idx < names.size()) {
    options.template_name = names[template_idx];
    options.template_tokens = tokenizer::UsualTokens(names[template_idx]);
  }
  const std::vector<std::string> files = file.Write(bytes);
  const TokenData data = train::ReadTokenData(files, tokenizer, options);
  CheckData(data, tokenizer);
  CheckBatches(data);
  options.max_tokens = static_cast<int64_t>(data.tokens.size() + 1) / 2;
  const TokenData half = train::ReadTokenData(files, tokenizer, options);  // unless nothing of it is learned
  CheckData(half, tokenizer);
  HYDRANT_CHECK(static_cast<int64_t>(half.tokens.size()) == options.max_tokens);
  for (size_t i = 0; i < half.tokens.size(); ++i) HYDRANT_CHECK(half.tokens[i] == data.tokens[i]);
}

}  // namespace
}  // namespace hydrant::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  try {
    hydrant::fuzz::Read(data[0], {reinterpret_cast<const char*>(data + 1), size - 1});
  } catch (const hydrant::UserError&) {
  }
  return 0;
}
