// SPDX-License-Identifier: Apache-2.0
// `hydrant train distill-data`: the base's own replies, which heads learn to guess better than anyone else's text
// (the Medusa paper, section 2.3.2). Needs no libtorch.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/atomic_file.h"
#include "base/json.h"
#include "base/json_difference.h"
#include "base/paths.h"
#include "base/text_parts.h"
#include "checkpoint/content_hash.h"
#include "checkpoint/tensor_source.h"
#include "cli/flags/drafting_flags.h"
#include "cli/flags/engine_flags.h"
#include "cli/flags/flags.h"
#include "cli/flags/sampling_settings.h"
#include "cli/flags/values.h"
#include "cli/run/prompt.h"
#include "cli/terminal/errors.h"
#include "cli/terminal/escape.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/terminal.h"
#include "cli/train/train.h"
#include "hydrant/error.h"
#include "parallel/launch.h"
#include "traffic/suite.h"

namespace hydrant::cli {
namespace {

using base::Json;

constexpr const char* kDescription =
    "Let the base model answer prompts, and write its replies as ShareGPT conversations for 'hydrant train heads'.\n"
    "Heads learn to guess what the base writes, so its own replies teach them best. Of a conversation every text of\n"
    "the user is answered in turn, and the replies that stand there are left out. Without a chat template the first\n"
    "text is continued, and the line has \"text\".\n"
    "A reply that is cut, by --max-tokens or the model's last position, is the last of its conversation. Its line has\n"
    "\"finish_reason\", and training does not learn that it ends.\n"
    "A reply depends on its prompt, the seed and the settings alone; --draft makes it faster, not different.";

constexpr const char* kExamples =
    "Examples:\n"
    "  hydrant train distill-data --model vicuna-7b --data prompts.jsonl --out replies.jsonl\n"
    "  hydrant train distill-data --model vicuna-7b --data sharegpt.json --temperature 0.7 --sequences 16 \\\n"
    "      --out replies.jsonl --resume\n"
    "  hydrant train heads --arch hydra++ --base vicuna-7b --data replies.jsonl --out my-heads\n";

struct Wanted {
  RunOptions run;
  std::string data, out;
  int32_t sequences = 8;
  bool resume = false, replace = false;
};

bool ParseFlags(const std::vector<std::string>& args, Wanted& wanted) {
  RunOptions& run = wanted.run;
  run.request.stop.max_tokens = 512;
  run.request.sampling.temperature = 0.3F;  // as the Medusa paper's self-distillation
  FlagSet flags("hydrant train distill-data", kDescription, kExamples);
  AddModelFlags(flags, run.engine);
  flags.Text("--data", "FILE", &wanted.data,
             "Prompts: conversations (ShareGPT, messages, MT-bench's turns), Alpaca, or a prompt a line");
  flags.Text("--out", "FILE", &wanted.out, "Conversations, a line of JSON each");
  flags.Switch("--resume", &wanted.resume, "Go on behind the last line of --out");
  flags.Switch("--force", &wanted.replace, "Begin anew where --out is there");
  AddTemplateFlag(flags, run);
  flags.Value(
      "--sequences", "N",
      [&wanted](const std::string& value) {
        wanted.sequences = static_cast<int32_t>(ParseInteger("--sequences", value, 1, 4096));
      },
      "Prompts that are answered together (default 8)");
  const auto setting = [&](const Setting& one) {
    const std::string flag = "--" + std::string(one.name);
    flags.Value(
        flag, std::string(one.kind),
        [flag, &one, &run](const std::string& value) { one.set(flag, value, run.request); },
        // The help names the default of 'run'.
        std::string(one.help.substr(0, one.help.find(" (default"))) + " (default " + one.get(run.request) + ")");
  };
  setting(MaxTokensSetting());
  for (const Setting& one : SamplingSettings()) setting(one);
  flags.Switch("--json", &run.json, "Print one JSON object");
  flags.Group("Machine");
  AddMachineFlags(flags, run.engine);
  AddKvMemoryFlag(flags, run.engine);
  if (!flags.Parse(args)) return false;
  for (const char* flag : {"--model", "--data", "--out"}) {
    if (!flags.Given(flag)) {
      throw UserError(fmt::format("{} is missing", flag), "'hydrant train distill-data --help' explains");
    }
  }
  CheckFolders(run.engine);
  return true;
}

// Each process would write the same lines over those of the others.
void RefuseSeveralProcesses() {
  const parallel::Launch launch = parallel::FindLaunch();
  if (launch.size == 1) return;
  throw UserError(fmt::format("a launcher has started {} processes ({}), and 'hydrant train distill-data' runs in one",
                              launch.size, launch.variable),
                  "start it without mpirun; --sequences answers several prompts together");
}

void RefuseTheSameFile(const Wanted& wanted) {
  std::error_code error;  // also where --out is not there
  if (!std::filesystem::equivalent(wanted.data, wanted.out, error) || error) return;
  throw FileError(wanted.out,
                  "is the file of --data, expected another one: replies would take the place of the prompts",
                  "name a file that is not there with --out");
}

// What replies depend on, beside their prompts.
Json SettingsOf(const Wanted& wanted) {
  const EngineOptions& engine = wanted.run.engine;
  const auto look = [] {
    if (Interrupted()) throw Interruption();
  };
  Json settings = {{"model", checkpoint::HashOfFiles(checkpoint::OpenModelFolder(engine.model)->files(), look)},
                   {"weights", engine.weights},
                   {"kv_type", engine.kv_type},
                   {"template", ResolveTemplate(engine.model, wanted.run.template_name)}};
  const auto add = [&](const Setting& one) {
    std::string key(one.name);
    std::ranges::replace(key, '-', '_');
    settings[key] = base::ParseJson(one.get(wanted.run.request), key);
  };
  add(MaxTokensSetting());
  for (const Setting& one : SamplingSettings()) add(one);
  return settings;
}

// The file of conversations: lines in the order of the prompts, of which a killed run leaves the first ones. The first
// line has the run's settings, too.
class OutputFile {
 public:
  OutputFile(const Wanted& wanted, const traffic::Suite& suite) : path_(wanted.out), settings_(SettingsOf(wanted)) {
    if (wanted.resume) {
      KeepWholeLines(suite);
    } else if (base::IsThere(path_) && !wanted.replace) {
      throw FileError(path_, "is there already", "--resume goes on behind its last line, --force begins anew");
    }
    file_ = std::fopen(path_.c_str(), wanted.resume ? "ab" : "wb");
    if (file_ == nullptr) Fail();
  }
  ~OutputFile() { std::fclose(file_); }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  size_t num_done() const { return next_; }             // prompts whose lines are there
  int64_t num_written() const { return num_written_; }  // lines of this run
  int64_t num_cut() const { return num_cut_; }          // of those, ones whose last reply has no end
  // The line of a prompt; null: it has none. Written once those before it are.
  void Add(size_t prompt, Json line) {
    waiting_.emplace(prompt, std::move(line));
    for (; !waiting_.empty() && waiting_.begin()->first == next_; ++next_) {
      Json& next = waiting_.begin()->second;
      if (!next.is_null() && !has_lines_) next["settings"] = settings_;
      has_lines_ = has_lines_ || !next.is_null();
      num_written_ += next.is_null() ? 0 : 1;
      num_cut_ += next.contains("finish_reason") ? 1 : 0;
      const std::string text = next.is_null() ? "" : base::DumpJson(next) + "\n";
      if (std::fwrite(text.data(), 1, text.size(), file_) != text.size() || std::fflush(file_) != 0) Fail();
      waiting_.erase(waiting_.begin());
    }
  }

 private:
  [[noreturn]] void Fail() const { throw FileError(path_, std::string("cannot be written: ") + std::strerror(errno)); }

  // A line without its end was being written. The others say which prompts they answer.
  void KeepWholeLines(const traffic::Suite& suite) {
    std::ifstream file(path_, std::ios::binary);
    if (!file) throw FileError(path_, "cannot be read, so there is nothing to go on with");
    std::string kept;
    size_t number = 0;
    for (std::string line; std::getline(file, line) && !file.eof();) {
      ++number;
      if (base::Trimmed(line).empty()) continue;
      CheckLine(line, base::AtLine(path_, number), suite);
      kept += line + "\n";
    }
    base::AtomicFile whole(path_);
    whole.Write(kept.data(), kept.size());
    whole.Keep();
  }

  void CheckLine(const std::string& line, const std::string& where, const traffic::Suite& suite) {
    constexpr const char* kHint = "name the file of that run, or begin anew with --force";
    const Json parsed = base::ParseJson(line, where);
    const base::JsonView value(parsed, where);
    if (!has_lines_) CheckSettings(value, where);
    has_lines_ = true;
    const auto prompt = static_cast<size_t>(value.At("prompt").Int(0, INT32_MAX));
    if (prompt >= suite.prompts.size() || suite.prompts[prompt].turns.front() != value.At("asked").String()) {
      throw FileError(where, fmt::format("answers another prompt than number {} of --data", prompt), kHint);
    }
    if (prompt < next_)
      throw FileError(where, fmt::format("answers prompt {}, as a line before it does", prompt), kHint);
    next_ = prompt + 1;
  }

  void CheckSettings(const base::JsonView& line, const std::string& where) const {
    const std::optional<base::JsonDifference> difference = base::FirstDifference(line.At("settings").raw(), settings_);
    if (!difference) return;
    throw FileError(where,
                    fmt::format("was written by a run with '{}' {}, and this one has {}", difference->name,
                                base::DumpJson(difference->found), base::DumpJson(difference->expected)),
                    "repeat the settings of that run, or begin anew in another file");
  }

  std::string path_;
  Json settings_;
  bool has_lines_ = false;
  std::FILE* file_ = nullptr;
  size_t next_ = 0;
  int64_t num_written_ = 0, num_cut_ = 0;
  std::map<size_t, Json> waiting_;  // of later prompts than the next
};

// Answers prompts, so many at a time.
class Distiller {
 public:
  Distiller(Engine& engine, const Wanted& wanted, const traffic::Suite& suite, OutputFile& out)
      : engine_(engine),
        wanted_(wanted),
        suite_(suite),
        out_(out),
        template_(ResolveTemplate(wanted.run.engine.model, wanted.run.template_name)),
        next_(out.num_done()) {}

  void Run() {
    Progress progress("answering");
    for (int32_t i = 0; i < wanted_.sequences; ++i) Begin();
    while (engine_.Step()) {
      if (!failure_.empty()) throw UserError(failure_);
      if (Interrupted()) return;
      progress.Update(static_cast<double>(num_done_) / static_cast<double>(suite_.prompts.size()),
                      fmt::format("{} of {} prompts, {} tokens", num_done_, suite_.prompts.size(), num_tokens_));
    }
  }

  int64_t num_tokens() const { return num_tokens_; }
  int64_t num_refused() const { return num_refused_; }

 private:
  // A prompt whose turns are answered one after another.
  struct Conversation {
    size_t prompt = 0, turn = 0;
    std::vector<ChatMessage> messages;
    std::string cut;  // why the last reply has no end: "length", "context"
  };

  void Begin() {
    while (next_ < suite_.prompts.size()) {
      auto conversation = std::make_shared<Conversation>();
      conversation->prompt = next_++;
      for (const traffic::Message& message : suite_.prompts[conversation->prompt].before) {
        conversation->messages.push_back({message.role, message.content});
      }
      if (Ask(conversation)) return;
    }
  }

  // False where the prompt cannot be answered: then it has no line, and the next one is due.
  bool Ask(const std::shared_ptr<Conversation>& conversation) {
    GenerationRequest request = wanted_.run.request;
    request.sampling.seed += conversation->prompt;
    conversation->messages.push_back({"user", suite_.prompts[conversation->prompt].turns[conversation->turn]});
    try {
      request.prompt_ids = ConversationIds(engine_, conversation->messages, template_);
      request.stop.eos_token_ids = engine_.EndOfReply(template_);
      engine_.Submit(request, {.on_emit = {}, .on_done = [this, conversation](const GenerationResult& result) {
                                 Answered(conversation, result);
                               }});
      return true;
    } catch (const UserError& error) {
      conversation->messages.pop_back();
      Finish(*conversation, error.what());
      return false;
    }
  }

  // Templates that print a space before a reply leave it to the model when it is the reply's turn: " Paris" is the
  // message "Paris". A continued text keeps it.
  std::string AsMessage(const std::string& reply) const {
    return template_ == "none" ? reply : reply.substr(std::min(reply.find_first_not_of(' '), reply.size()));
  }

  // The last character may be there in part, of which a sign is made that the model did not write.
  static std::string WithoutHalfCharacter(std::string reply) {
    constexpr std::string_view kReplacement = "\xef\xbf\xbd";
    while (reply.ends_with(kReplacement)) reply.resize(reply.size() - kReplacement.size());
    return reply;
  }

  void Answered(const std::shared_ptr<Conversation>& conversation, const GenerationResult& result) {
    try {
      if (result.finish_reason == FinishReason::kCancelled) return;
      if (result.error) std::rethrow_exception(result.error);
      num_tokens_ += static_cast<int64_t>(result.token_ids.size());
      const FinishReason reason = result.finish_reason;
      const bool is_cut = reason == FinishReason::kLength || reason == FinishReason::kContext;
      if (is_cut) conversation->cut = NameOf(reason);
      conversation->messages.push_back(
          {"assistant", AsMessage(is_cut ? WithoutHalfCharacter(result.text) : result.text)});
      const bool has_more = ++conversation->turn < suite_.prompts[conversation->prompt].turns.size();
      const bool goes_on = has_more && !is_cut && template_ != "none";  // nobody answers half a reply
      if (goes_on && Ask(conversation)) return;
      if (!goes_on) Finish(*conversation, "");
      Begin();
    } catch (const std::exception& error) {
      failure_ = error.what();
    }
  }

  void Finish(const Conversation& conversation, const std::string& refusal) {
    ++num_done_;
    const bool has_reply = !conversation.messages.empty() && conversation.messages.back().role == "assistant";
    if (!refusal.empty()) {
      ++num_refused_;
      PrintWarnings({fmt::format("prompt {}: {}", conversation.prompt + 1, refusal)});
    }
    out_.Add(conversation.prompt, has_reply ? LineOf(conversation) : Json());
  }

  Json LineOf(const Conversation& conversation) const {
    const std::string& asked = suite_.prompts[conversation.prompt].turns.front();
    Json line = {
        {"id", fmt::format("distilled_{}", conversation.prompt)}, {"prompt", conversation.prompt}, {"asked", asked}};
    if (!conversation.cut.empty()) line["finish_reason"] = conversation.cut;
    if (template_ == "none") {
      line["text"] = asked + conversation.messages.back().content;
      return line;
    }
    Json turns = Json::array();
    for (const ChatMessage& message : conversation.messages) {
      const char* from = message.role == "user" ? "human" : message.role == "assistant" ? "gpt" : "system";
      turns.push_back({{"from", from}, {"value", message.content}});
    }
    line["conversations"] = std::move(turns);
    return line;
  }

  Engine& engine_;
  const Wanted& wanted_;
  const traffic::Suite& suite_;
  OutputFile& out_;
  std::string template_;
  size_t next_;  // prompt
  int64_t num_done_ = 0, num_refused_ = 0, num_tokens_ = 0;
  std::string failure_;  // of writing
};

}  // namespace

int DistillData(const std::vector<std::string>& args) {
  Wanted wanted;
  if (!ParseFlags(args, wanted)) return kExitOk;
  RefuseSeveralProcesses();
  RefuseTheSameFile(wanted);
  const traffic::Suite suite = traffic::ReadSuite(wanted.data, traffic::Asked::kEveryTurn);
  wanted.run.engine.stop = StopFlag();
  wanted.run.engine.max_running = wanted.sequences;
  wanted.run.engine.on_pack = PackProgress();
  Engine engine(wanted.run.engine);
  PrintWarnings(engine.info().warnings);
  OutputFile out(wanted, suite);
  const size_t before = out.num_done();
  Distiller distiller(engine, wanted, suite, out);
  distiller.Run();
  if (wanted.run.json) {
    Print(base::DumpJson({{"out", wanted.out},
                          {"prompts", suite.prompts.size()},
                          {"before", before},
                          {"answered", out.num_written()},
                          {"cut", out.num_cut()},
                          {"refused", distiller.num_refused()},
                          {"tokens", distiller.num_tokens()},
                          {"stopped", Interrupted()}}) +
          "\n");
  } else {
    Print(fmt::format("{}: {} prompts answered, {} with a cut reply, {} refused, {} tokens\n", EscapedName(wanted.out),
                      out.num_written(), out.num_cut(), distiller.num_refused(), distiller.num_tokens()));
  }
  if (!Interrupted()) return kExitOk;
  PrintError("Stopped; --resume goes on.\n");
  return InterruptedExit();
}

}  // namespace hydrant::cli
