// SPDX-License-Identifier: Apache-2.0
// `hydrant train distill-data`: the base's own replies, which heads learn to guess better than anyone else's text
// (the Medusa paper, section 2.3.2). Needs no libtorch.
#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/atomic_file.h"
#include "base/json.h"
#include "base/paths.h"
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
#include "traffic/suite.h"

namespace hydrant::cli {
namespace {

using base::Json;

constexpr const char* kDescription =
    "Let the base model answer prompts, and write its replies as ShareGPT conversations for 'hydrant train heads'.\n"
    "Heads learn to guess what the base writes, so its own replies teach them best. Of prompts with several turns "
    "each\n"
    "is answered in turn. Without a chat template a prompt is continued, and the line has \"text\".\n"
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
             "Prompts, in the forms of 'bench serve': ShareGPT, messages, Alpaca, lines");
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

// The file of conversations: lines in the order of the prompts, of which a killed run leaves the first ones.
class OutputFile {
 public:
  OutputFile(const Wanted& wanted, const traffic::Suite& suite) : path_(wanted.out) {
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

  size_t num_done() const { return next_; }  // prompts whose lines are there
  // The line of a prompt; empty: it has none. Written once those before it are.
  void Add(size_t prompt, std::string line) {
    waiting_.emplace(prompt, std::move(line));
    for (; !waiting_.empty() && waiting_.begin()->first == next_; ++next_) {
      const std::string& text = waiting_.begin()->second;
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
    for (std::string line; std::getline(file, line) && !file.eof();) {
      const Json parsed = base::ParseJson(line, path_);
      const auto prompt = static_cast<size_t>(base::JsonView(parsed, path_).At("prompt").Int(0, INT32_MAX));
      const std::string asked = base::JsonView(parsed, path_).At("asked").String();
      if (prompt >= suite.prompts.size() || suite.prompts[prompt].turns.front() != asked) {
        throw FileError(path_,
                        fmt::format("line {} answers another prompt than number {} of --data", next_ + 1, prompt),
                        "name the file of that run, or begin anew with --force");
      }
      next_ = prompt + 1;
      kept += line + "\n";
    }
    base::AtomicFile whole(path_);
    whole.Write(kept.data(), kept.size());
    whole.Keep();
  }

  std::string path_;
  std::FILE* file_ = nullptr;
  size_t next_ = 0;
  std::map<size_t, std::string> waiting_;  // of later prompts than the next
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
  int64_t num_answered() const { return num_answered_; }
  int64_t num_refused() const { return num_refused_; }

 private:
  // A prompt whose turns are answered one after another.
  struct Conversation {
    size_t prompt = 0, turn = 0;
    std::vector<ChatMessage> messages;
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

  void Answered(const std::shared_ptr<Conversation>& conversation, const GenerationResult& result) {
    try {
      if (result.finish_reason == FinishReason::kCancelled) return;
      num_tokens_ += static_cast<int64_t>(result.token_ids.size());
      conversation->messages.push_back({"assistant", AsMessage(result.text)});
      const bool has_more = ++conversation->turn < suite_.prompts[conversation->prompt].turns.size();
      if (has_more && template_ != "none" && Ask(conversation)) return;
      if (!has_more || template_ == "none") Finish(*conversation, "");
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
    if (has_reply) ++num_answered_;
    out_.Add(conversation.prompt, has_reply ? LineOf(conversation) : "");
  }

  std::string LineOf(const Conversation& conversation) const {
    const std::string& asked = suite_.prompts[conversation.prompt].turns.front();
    Json line = {
        {"id", fmt::format("distilled_{}", conversation.prompt)}, {"prompt", conversation.prompt}, {"asked", asked}};
    if (template_ == "none") {
      line["text"] = asked + conversation.messages.back().content;
      return base::DumpJson(line) + "\n";
    }
    Json turns = Json::array();
    for (const ChatMessage& message : conversation.messages) {
      const char* from = message.role == "user" ? "human" : message.role == "assistant" ? "gpt" : "system";
      turns.push_back({{"from", from}, {"value", message.content}});
    }
    line["conversations"] = std::move(turns);
    return base::DumpJson(line) + "\n";
  }

  Engine& engine_;
  const Wanted& wanted_;
  const traffic::Suite& suite_;
  OutputFile& out_;
  std::string template_;
  size_t next_;  // prompt
  int64_t num_done_ = 0, num_answered_ = 0, num_refused_ = 0, num_tokens_ = 0;
  std::string failure_;  // of writing
};

}  // namespace

int DistillData(const std::vector<std::string>& args) {
  Wanted wanted;
  if (!ParseFlags(args, wanted)) return kExitOk;
  const traffic::Suite suite = traffic::ReadSuite(wanted.data);
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
                          {"answered", distiller.num_answered()},
                          {"refused", distiller.num_refused()},
                          {"tokens", distiller.num_tokens()},
                          {"stopped", Interrupted()}}) +
          "\n");
  } else {
    Print(fmt::format("{}: {} prompts answered, {} refused, {} tokens\n", EscapedName(wanted.out),
                      distiller.num_answered(), distiller.num_refused(), distiller.num_tokens()));
  }
  if (!Interrupted()) return kExitOk;
  PrintError("Stopped; --resume goes on.\n");
  return InterruptedExit();
}

}  // namespace hydrant::cli
