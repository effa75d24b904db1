// SPDX-License-Identifier: Apache-2.0
#include "eval/record_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/atomic_file.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "checkpoint/content_hash.h"
#include "hydrant/error.h"

namespace hydrant::eval {
namespace {

using base::Json;
using base::JsonView;

constexpr const char* kFormat = "hydrant recording";
constexpr int64_t kVersion = 1;
constexpr size_t kLongestHeader = size_t{64} << 20;
constexpr int64_t kMostTokens = int64_t{1} << 30;  // of one part of a reply

constexpr std::array<FinishReason, 4> kReasons = {FinishReason::kEos, FinishReason::kStop, FinishReason::kLength,
                                                  FinishReason::kContext};

using Bytes = std::vector<uint8_t>;

void Append(std::span<const int32_t> tokens, Bytes& bytes) {
  for (const int32_t token : tokens) {
    for (int shift = 0; shift < 32; shift += 8)
      bytes.push_back(static_cast<uint8_t>(static_cast<uint32_t>(token) >> shift));
  }
}

std::string HashOf(std::span<const uint8_t> bytes) {
  std::string text = "xxh64:";
  const uint64_t hash = checkpoint::XxHash64(bytes);
  for (int shift = 60; shift >= 0; shift -= 4) text += "0123456789abcdef"[(hash >> shift) & 15];
  return text;
}

std::string HashOfFolder(const std::string& folder, const std::function<void()>& look) {
  if (folder.empty()) return "";
  std::vector<std::string> files;
  std::error_code error, unknown;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->is_regular_file(unknown) && entry->path().filename() != "trees.json") files.push_back(entry->path());
  }
  if (error) throw FileError(folder, "cannot be read: " + error.message());
  std::ranges::sort(files);
  return checkpoint::HashOfFiles(files, look);
}

Json SettingsOf(const load::LoadedModel& loaded, const RecordOptions& options) {
  const SamplingOptions& sampling = options.sampling;
  const EngineInfo& info = loaded.info;
  return {{"temperature", sampling.temperature},
          {"top_k", sampling.top_k},
          {"top_p", sampling.top_p},
          {"min_p", sampling.min_p},
          {"repetition_penalty", sampling.repetition_penalty},
          {"presence_penalty", sampling.presence_penalty},
          {"frequency_penalty", sampling.frequency_penalty},
          {"seed", sampling.seed},
          {"max_tokens", options.stop.max_tokens},
          {"ignore_eos", options.stop.ignore_eos},
          {"stop", options.stop.stop},
          {"eos_token_ids", options.stop.eos_token_ids},
          {"num_levels", options.num_levels},
          {"num_ranks", options.num_ranks},
          {"weights", info.weights},
          {"head_weights", info.head_weights},
          {"num_draft_vocab", info.num_draft_vocab},
          {"draft_vocab", loaded.options.draft_vocab},
          {"draft_vocab_text", loaded.options.draft_vocab_text},
          {"kv_type", info.kv_type},
          {"cpu_target", info.cpu_target}};
}

Json HeaderOf(const RecordingKey& key, const Recording& recording, std::span<const uint8_t> bytes) {
  Json replies = Json::array();
  for (const RecordedReply& reply : recording.replies) {
    replies.push_back({{"prompt", reply.prompt_ids.size()},
                       {"tokens", reply.token_ids.size()},
                       {"past_end", reply.past_end.size()},
                       {"finish_reason", NameOf(reply.finish_reason)},
                       {"seed", std::to_string(reply.seed)}});  // JSON's numbers are signed here
  }
  return {{"format", kFormat},
          {"version", kVersion},
          {"model", key.model},
          {"heads", key.heads},
          {"prompts", key.prompts},
          {"settings", key.settings},
          {"num_levels", recording.ranks.num_levels},
          {"num_ranks", recording.ranks.num_ranks},
          {"replies", std::move(replies)},
          {"content", HashOf(bytes)}};
}

void CheckKey(const JsonView& header, const RecordingKey& key) {
  const auto check = [&header](const char* name, const std::string& expected, const char* what) {
    const JsonView value = header.At(name);
    if (value.String() == expected) return;
    value.Fail(base::DumpJson(expected),
               std::string("it is a recording with other ") + what + ": remove it to record anew");
  };
  check("model", key.model, "files of the base model");
  check("heads", key.heads, "files of the heads");
  check("prompts", key.prompts, "prompts");
  check("settings", key.settings, "settings");
}

FinishReason ReasonIn(const JsonView& value) {
  const std::string name = value.String();
  for (const FinishReason reason : kReasons) {
    if (name == NameOf(reason)) return reason;
  }
  value.Fail("\"eos\", \"stop\", \"length\" or \"context\"");
}

uint64_t SeedIn(const JsonView& value) {
  const std::string text = value.String();
  uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error != std::errc() || end != text.data() + text.size()) value.Fail("an integer from 0 to 2^64-1 as a string");
  return seed;
}

// The part behind the header, taken from its front.
class Content {
 public:
  explicit Content(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  std::vector<int32_t> Tokens(size_t count) {
    std::vector<int32_t> tokens(count);
    for (int32_t& token : tokens) {
      uint32_t value = 0;
      for (size_t i = 0; i < 4; ++i) value |= uint32_t{bytes_[i]} << (8 * i);
      token = static_cast<int32_t>(value);
      bytes_ = bytes_.subspan(4);
    }
    return tokens;
  }
  Bytes Ranks(size_t count) {
    const std::span<const uint8_t> ranks = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return {ranks.begin(), ranks.end()};
  }

 private:
  std::span<const uint8_t> bytes_;
};

// How long the parts of a reply are.
struct Lengths {
  size_t prompt = 0, tokens = 0, past_end = 0, ranks = 0;

  Lengths(const JsonView& reply, int32_t num_levels)
      : prompt(LengthIn(reply, "prompt")),
        tokens(LengthIn(reply, "tokens")),
        past_end(LengthIn(reply, "past_end")),
        ranks((std::max<size_t>(tokens, 1) - 1) * static_cast<size_t>(num_levels)) {}
  // Less than 2^37. No header is long enough for the 2^27 replies that overflow would take.
  size_t bytes() const { return 4 * (prompt + tokens + past_end) + ranks; }

 private:
  static size_t LengthIn(const JsonView& reply, const char* part) {
    return static_cast<size_t>(reply.At(part).Int(0, kMostTokens));
  }
};

Recording Parse(const JsonView& header, std::span<const uint8_t> bytes) {
  Recording recording;
  tree::RankTable& ranks = recording.ranks;
  ranks.num_levels = static_cast<int32_t>(header.At("num_levels").Int(1, tree::Topology::kMaxDepth));
  ranks.num_ranks = static_cast<int32_t>(header.At("num_ranks").Int(1, tree::kNoRank));
  const JsonView replies = header.At("replies");
  std::vector<Lengths> lengths;
  size_t expected = 0;
  for (size_t i = 0; i < replies.Size(); ++i) {
    lengths.emplace_back(replies.At(i), ranks.num_levels);
    expected += lengths.back().bytes();
  }
  if (bytes.size() != expected) {
    throw FileError(header.file(), "has " + std::to_string(bytes.size()) + " bytes behind its first line, expected " +
                                       std::to_string(expected) + " (by 'replies')");
  }
  const JsonView hash = header.At("content");
  if (hash.String() != HashOf(bytes)) hash.Fail(HashOf(bytes) + " (of what stands behind the first line)");
  Content content(bytes);
  for (size_t i = 0; i < lengths.size(); ++i) {
    RecordedReply& reply = recording.replies.emplace_back();
    reply.prompt_ids = content.Tokens(lengths[i].prompt);
    reply.token_ids = content.Tokens(lengths[i].tokens);
    reply.past_end = content.Tokens(lengths[i].past_end);
    reply.finish_reason = ReasonIn(replies.At(i).At("finish_reason"));
    reply.seed = SeedIn(replies.At(i).At("seed"));
  }
  for (const Lengths& length : lengths) ranks.replies.push_back(content.Ranks(length.ranks));
  return recording;
}

}  // namespace

RecordingKey KeyOf(const load::LoadedModel& loaded, std::span<const std::vector<int32_t>> prompts,
                   const RecordOptions& options, const std::function<void()>& look) {
  RecordOptions complete = options;
  if (complete.num_levels == 0 && loaded.drafter) complete.num_levels = loaded.drafter->usual_depth();
  Bytes ids;
  for (const std::vector<int32_t>& prompt : prompts) {
    const auto length = static_cast<int32_t>(prompt.size());
    Append(std::span(&length, 1), ids);
    Append(prompt, ids);
  }
  return {.model = HashOfFolder(loaded.options.model, look),
          .heads = HashOfFolder(loaded.options.draft, look),
          .prompts = HashOf(ids),
          .settings = base::DumpJson(SettingsOf(loaded, complete))};
}

void WriteRecording(const std::string& path, const RecordingKey& key, const Recording& recording) {
  Bytes bytes;
  for (const RecordedReply& reply : recording.replies) {
    for (const auto* tokens : {&reply.prompt_ids, &reply.token_ids, &reply.past_end}) Append(*tokens, bytes);
  }
  for (const Bytes& ranks : recording.ranks.replies) bytes.insert(bytes.end(), ranks.begin(), ranks.end());
  const std::string header = base::DumpJson(HeaderOf(key, recording, bytes)) + "\n";
  base::AtomicFile file(path);
  file.Write(header.data(), header.size());
  file.Write(bytes.data(), bytes.size());
  file.Keep();
}

Recording ReadRecording(const std::string& path, const RecordingKey& key) {
  const auto file = base::MappedFile::Open(path);
  const std::span<const uint8_t> all = file->bytes();
  const std::span<const uint8_t> front = all.first(std::min(all.size(), kLongestHeader));
  const auto end = std::ranges::find(front, uint8_t{'\n'});
  if (end == front.end()) throw FileError(path, "is no recording: its first line does not end");
  const auto length = static_cast<size_t>(end - front.begin());
  const Json json = base::ParseJson({reinterpret_cast<const char*>(all.data()), length}, path);
  const JsonView header(json, path);
  if (!header.is_object() || !header.Has("format") || header.At("format").raw() != kFormat) {
    throw FileError(path, "is no recording: its first line does not say so");
  }
  if (header.At("version").raw() != kVersion) {
    header.At("version").Fail(std::to_string(kVersion), "remove it to record anew");
  }
  CheckKey(header, key);
  Recording recording = Parse(header, all.subspan(length + 1));
  const std::string problem = tree::ProblemIn(recording.ranks);
  if (!problem.empty()) throw FileError(path, problem);
  return recording;
}

}  // namespace hydrant::eval
