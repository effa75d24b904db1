// SPDX-License-Identifier: Apache-2.0
#include "train/data/token_data.h"

#include <algorithm>
#include <array>
#include <exception>
#include <memory>
#include <string_view>
#include <utility>

#include "base/mapped_file.h"
#include "hydrant/error.h"
#include "train/data/documents.h"
#include "train/data/encoder.h"
#include "train/data/random.h"

namespace hydrant::train {
namespace {

// Of parts that are made tokens at a time, so that every thread has some and progress is seen.
constexpr size_t kBatchBytes = size_t{4} << 20;
constexpr size_t kLeastBatchBytes = size_t{64} << 10;
constexpr int64_t kUsualTokenBytes = 4;
constexpr size_t kBatchParts = size_t{1} << 14;

std::string_view ContentOf(const base::MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

class Reader {
 public:
  Reader(std::span<const std::string> files, const tokenizer::Tokenizer& tokenizer, const ReadOptions& options)
      : encoder_(tokenizer, options), options_(options) {
    if (files.empty()) throw UserError("there is no file of training data", "name one at least");
    if (options.max_tokens < 0) {
      throw UserError("ReadOptions::max_tokens is " + std::to_string(options.max_tokens) + ", expected 0 or more");
    }
    for (const std::string& file : files) {
      files_.push_back(base::MappedFile::Open(file));
      total_bytes_ += files_.back()->bytes().size();
    }
  }

  TokenData Read() {
    for (const auto& file : files_) {
      if (IsFull()) break;
      ReadFile(*file);
      bytes_before_ += file->bytes().size();
    }
    if (std::find(data_.learned.begin(), data_.learned.end(), 1) == data_.learned.end()) {
      throw FileError(files_.front()->path() + (files_.size() > 1 ? " and the other files" : ""),
                      "there are " + std::to_string(data_.tokens.size()) +
                          " tokens and none to learn, expected a text of " +
                          "two tokens or a conversation with a reply",
                      "give more of the data");
    }
    if (options_.progress) options_.progress(1);
    return std::move(data_);
  }

 private:
  struct Job {
    FilePart part;
    EncodedPart encoded;
    std::exception_ptr error;
  };

  bool IsFull() const { return options_.max_tokens > 0 && Size() >= options_.max_tokens; }
  int64_t Size() const { return static_cast<int64_t>(data_.tokens.size()); }

  void ReadFile(const base::MappedFile& file) {
    const size_t documents_before = data_.ends.size();
    left_out_ = {};
    bool has_text = false;
    SplitFile(ContentOf(file), file.path(), [&](const FilePart& part) {
      has_text = has_text || !part.is_json;
      jobs_.push_back({.part = part, .encoded = {}, .error = {}});
      batch_bytes_ += part.text.size();
      return (batch_bytes_ < MostBatchBytes() && jobs_.size() < kBatchParts) || EncodeBatch(file);
    });
    EncodeBatch(file);
    FinishDocument();  // where max_tokens cut it
    Report(file.path(), data_.ends.size() - documents_before);
    if (has_text && options_.warn && IsNamedForJson(file.path())) {
      options_.warn(file.path() + ": holds neither JSON objects nor texts of JSON, and is learned as plain text");
    }
  }

  // Little more than max_tokens wants.
  size_t MostBatchBytes() const {
    if (options_.max_tokens == 0) return kBatchBytes;
    const int64_t wanted = std::min<int64_t>(options_.max_tokens - Size(), kBatchBytes) * kUsualTokenBytes;
    return std::clamp(static_cast<size_t>(wanted), kLeastBatchBytes, kBatchBytes);
  }

  // False: max_tokens are there.
  bool EncodeBatch(const base::MappedFile& file) {
    const auto encode = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) EncodeJob(file.path(), &jobs_[static_cast<size_t>(i)]);
    };
    const auto count = static_cast<int64_t>(jobs_.size());
    if (options_.pool != nullptr) {
      options_.pool->ParallelFor(count, 1, encode);
    } else {
      encode(0, count);
    }
    for (const Job& job : jobs_) {
      if (IsFull()) break;
      // Here and not by the pool: an error behind the last token that is wanted is none.
      if (job.error) std::rethrow_exception(job.error);
      Append(job, file.path());
    }
    if (options_.progress && !jobs_.empty()) {
      const std::string_view last = jobs_.back().part.text;
      options_.progress(Share(static_cast<size_t>(last.data() + last.size() - ContentOf(file).data())));
    }
    jobs_.clear();
    batch_bytes_ = 0;
    return !IsFull();
  }

  void EncodeJob(const std::string& name, Job* job) const {
    try {
      job->encoded = encoder_.Encode(job->part, name);
    } catch (...) {
      job->error = std::current_exception();
    }
  }

  void Append(const Job& job, const std::string& name) {
    const EncodedPart& encoded = job.encoded;
    if (encoded.left_out) {
      ++left_out_[static_cast<size_t>(*encoded.left_out)];
      return;
    }
    const int64_t most = options_.max_tokens > 0 ? options_.max_tokens : kMostTokens;
    const auto count =
        static_cast<std::ptrdiff_t>(std::min(static_cast<int64_t>(encoded.tokens.size()), most - Size()));
    if (options_.max_tokens == 0 && count < static_cast<std::ptrdiff_t>(encoded.tokens.size())) {
      throw FileError(name, "brings the training data to more than " + std::to_string(kMostTokens) + " tokens",
                      "read less of it (ReadOptions::max_tokens)");
    }
    data_.tokens.insert(data_.tokens.end(), encoded.tokens.begin(), encoded.tokens.begin() + count);
    data_.learned.insert(data_.learned.end(), encoded.learned.begin(), encoded.learned.begin() + count);
    if (job.part.ends) FinishDocument();
  }

  void FinishDocument() {
    const int64_t begin = data_.ends.empty() ? 0 : data_.ends.back();
    if (begin == Size()) return;
    data_.learned[static_cast<size_t>(begin)] = 0;  // nothing stands before it
    data_.ends.push_back(Size());
  }

  // Of all the bytes, or of the tokens that are wanted, whichever is nearer to its end.
  double Share(size_t bytes_of_file) const {
    const double read = static_cast<double>(bytes_before_ + bytes_of_file) / static_cast<double>(total_bytes_);
    const double wanted =
        options_.max_tokens > 0 ? static_cast<double>(Size()) / static_cast<double>(options_.max_tokens) : 0;
    return std::min(1.0, std::max(read, wanted));
  }

  void Report(const std::string& name, size_t documents) const {
    int64_t total = 0;
    std::string reasons;
    for (size_t i = 0; i < kNumLeftOut; ++i) {
      if (left_out_[i] == 0) continue;
      total += left_out_[i];
      reasons += (reasons.empty() ? "" : ", ") + std::to_string(left_out_[i]) + " " +
                 std::string(Words(static_cast<LeftOut>(i)));
    }
    if (documents == 0) {
      throw FileError(name, "has no document to learn from" + (total > 0 ? ": " + reasons + " left out" : ""),
                      "give texts, or conversations of user and assistant in turns");
    }
    if (total == 0 || !options_.warn) return;
    options_.warn(name + ": left out " + std::to_string(total) + " of " +
                  std::to_string(total + static_cast<int64_t>(documents)) + " documents: " + reasons);
  }

  const Encoder encoder_;
  const ReadOptions& options_;
  std::vector<std::shared_ptr<const base::MappedFile>> files_;
  size_t total_bytes_ = 0, bytes_before_ = 0;
  std::vector<Job> jobs_;
  size_t batch_bytes_ = 0;
  std::array<int64_t, kNumLeftOut> left_out_{};  // of the file
  TokenData data_;
};

}  // namespace

uint64_t ContentHash(const TokenData& data) {
  uint64_t hash = 0;
  const auto add = [&hash](uint64_t number) { hash = MixBits(hash + number + 0x9E3779B97F4A7C15); };
  add(data.ends.size());
  for (const int64_t end : data.ends) add(static_cast<uint64_t>(end));
  add(data.tokens.size());
  for (size_t i = 0; i < data.tokens.size(); ++i) {
    add(uint64_t{static_cast<uint32_t>(data.tokens[i])} | uint64_t{data.learned[i]} << 32);
  }
  return hash;
}

TokenData ReadTokenData(std::span<const std::string> files, const tokenizer::Tokenizer& tokenizer,
                        const ReadOptions& options) {
  return Reader(files, tokenizer, options).Read();
}

}  // namespace hydrant::train
