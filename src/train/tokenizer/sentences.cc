// SPDX-License-Identifier: Apache-2.0
#include "train/tokenizer/sentences.h"

#include <algorithm>
#include <memory>
#include <queue>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/text_parts.h"
#include "hydrant/error.h"
#include "tokenizer/chat/chat_template.h"
#include "tokenizer/utf8.h"
#include "train/data/documents.h"
#include "train/data/random.h"

namespace hydrant::train {
namespace {

// Each line gets a random key by its number. Those with the smallest keys are the sample, as many as have the bytes.
class Sample {
 public:
  explicit Sample(const SentenceOptions& options) : most_bytes_(options.most_bytes), seed_(MixBits(options.seed)) {}

  void Add(std::string_view line) {
    const uint64_t number = next_++;
    const uint64_t key = MixBits(seed_ ^ MixBits(number));
    if (key >= limit_) return;
    bytes_ += line.size();
    lines_.push({key, number, std::string(line)});
    while (bytes_ > most_bytes_) {  // what is dropped now has no place later either: smaller keys only come in
      limit_ = lines_.top().key;
      bytes_ -= lines_.top().text.size();
      lines_.pop();
    }
  }

  std::vector<std::string> Take() {
    std::vector<Line> kept;
    for (; !lines_.empty(); lines_.pop()) kept.push_back(lines_.top());
    std::ranges::sort(kept, {}, &Line::number);
    std::vector<std::string> texts;
    texts.reserve(kept.size());
    for (Line& line : kept) texts.push_back(std::move(line.text));
    return texts;
  }

 private:
  struct Line {
    uint64_t key = 0, number = 0;
    std::string text;
    bool operator<(const Line& other) const { return key < other.key; }
  };

  size_t most_bytes_, bytes_ = 0;
  uint64_t seed_, next_ = 0;
  uint64_t limit_ = ~uint64_t{0};
  std::priority_queue<Line> lines_;
};

class Reader {
 public:
  explicit Reader(const SentenceOptions& options) : options_(options), sample_(options) {}

  std::vector<std::string> Read(std::span<const std::string> files) {
    for (const std::string& name : files) {
      files_.push_back(base::MappedFile::Open(name));
      total_bytes_ += files_.back()->bytes().size();
    }
    for (const auto& file : files_) {
      ReadFile(*file);
      bytes_before_ += file->bytes().size();
    }
    return sample_.Take();
  }

 private:
  void ReadFile(const base::MappedFile& file) {
    const std::string_view content{reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
    SplitFile(content, file.path(), [&](const FilePart& part) {
      if (part.is_json) {
        AddJson(part, base::AtLine(file.path(), part.line));
      } else {
        AddText(part.text.substr(!part.begins && part.text.starts_with(' ') ? 1 : 0));
      }
      const auto read = bytes_before_ + static_cast<size_t>(part.text.data() - content.data());
      if (options_.progress) options_.progress(static_cast<double>(read) / static_cast<double>(total_bytes_));
      return true;
    });
  }

  void AddJson(const FilePart& part, const std::string& where) {
    const base::Json json = base::ParseJson(part.text, where);
    const Example example = ReadExample(base::JsonView(json, where));
    if (example.left_out) return;
    if (example.messages.empty()) return AddText(example.text);
    if (options_.template_name.empty()) {
      for (const tokenizer::Message& message : example.messages) AddText(message.content);
      return;
    }
    try {
      AddText(tokenizer::RenderTemplate(options_.template_name, example.messages, {}, false));
    } catch (const FileError&) {
      throw;
    } catch (const UserError&) {  // a conversation that the template refuses is left out of training, too
    }
  }

  void AddText(std::string_view text) {
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size());
      AddLine(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
  }

  void AddLine(std::string_view line) {
    if (line.ends_with('\r')) line.remove_suffix(1);
    while (!base::Trimmed(line).empty()) {
      const std::string_view piece = FirstPiece(line, kMostSentenceBytes);
      line.remove_prefix(piece.size());
      if (line.starts_with(' ')) line.remove_prefix(1);  // a tokenizer puts a space before each line
      if (tokenizer::IsValidUtf8(piece) && piece.find('\0') == std::string_view::npos) sample_.Add(piece);
    }
  }

  const SentenceOptions& options_;
  Sample sample_;
  std::vector<std::shared_ptr<const base::MappedFile>> files_;
  size_t total_bytes_ = 0, bytes_before_ = 0;
};

}  // namespace

std::vector<std::string> ReadSentences(std::span<const std::string> files, const SentenceOptions& options) {
  if (files.empty()) throw UserError("there is no file of training data", "name one at least");
  std::vector<std::string> sentences = Reader(options).Read(files);
  if (sentences.empty()) {
    throw FileError(files.front() + (files.size() > 1 ? " and the other files" : ""),
                    "there is no line of text to make a tokenizer from");
  }
  return sentences;
}

}  // namespace hydrant::train
