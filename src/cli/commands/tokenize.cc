// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/tokenize.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/paths.h"
#include "cli/flags/flags.h"
#include "cli/flags/values.h"
#include "cli/terminal/errors.h"
#include "cli/terminal/standard_input.h"
#include "cli/terminal/terminal.h"
#include "hydrant/error.h"
#include "load/other_kinds.h"
#include "tokenizer/chat/chat_family.h"
#include "tokenizer/chat/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace hydrant::cli {
namespace {

constexpr const char* kDescription =
    "Print the token ids of a text as {\"ids\":[..]}, one ASCII-escaped JSON object a line. The text comes from "
    "--text, from\n"
    "--jsonl (one JSON string a line), from --chat, or from stdin, to the byte.";

constexpr const char* kExamples =
    "Examples:\n"
    "  hydrant tokenize --model models/tale-14m --text 'Once upon a time'\n"
    "  hydrant tokenize --model tokenizer.json --jsonl texts.jsonl --no-bos\n"
    "  hydrant tokenize --model llama-3 --chat messages.json --template llama-3\n"
    "                                       messages.json: [{\"role\":\"user\",\"content\":\"Hello\"}]\n";

struct TokenizeOptions {
  std::string model, text, jsonl, chat;
  std::string template_name = "auto";
  bool has_text = false;
  bool no_special = false, add_bos = false, no_bos = false, no_generation_prompt = false;
};

bool ParseFlags(const std::vector<std::string>& args, TokenizeOptions& options) {
  FlagSet flags("hydrant tokenize", kDescription, kExamples);
  flags.Text("--model", "DIR|FILE", &options.model, "Model folder, tokenizer.json or tokenizer.model");
  flags.Text("--text", "TEXT", &options.text, "The text");
  flags.Text("--jsonl", "FILE", &options.jsonl, "File with one JSON string a line; one line of output for each");
  flags.Text("--chat", "FILE", &options.chat, "Conversation: a JSON list of {role, content}; also prints \"prompt\"");
  flags.Value(
      "--template", "NAME",
      [&options](const std::string& value) {
        const auto names = tokenizer::TemplateNames();
        std::vector<std::string_view> choices(names.begin(), names.end());
        choices.emplace_back("auto");
        options.template_name = ParseChoice("--template", value, choices);
      },
      "Chat template by name, or auto, the model's own (default auto)");
  flags.Switch("--no-generation-prompt", &options.no_generation_prompt, "End after the last message");
  flags.Switch("--no-special", &options.no_special, "Special-token text in the input is ordinary text");
  flags.Switch("--add-bos", &options.add_bos,
               "Begin with BOS (default: as the tokenizer files say; with --chat: never)");
  flags.Switch("--no-bos", &options.no_bos, "Do not add BOS");
  if (!flags.Parse(args)) return false;
  if (options.model.empty()) throw UserError("--model is missing", "give a model folder or a tokenizer file");
  const char* given = nullptr;
  for (const char* flag : {"--text", "--jsonl", "--chat"}) {
    if (!flags.Given(flag)) continue;
    if (given != nullptr) throw UserError(fmt::format("{} and {} are both given, expected one input", given, flag));
    given = flag;
  }
  options.has_text = flags.Given("--text");
  if (options.add_bos && options.no_bos) throw UserError("--add-bos and --no-bos contradict each other");
  if (flags.Given("--chat")) {
    if (options.chat.empty()) throw UserError("--chat is empty, expected a file");
    if (options.no_special)
      throw UserError("--no-special cannot be used with --chat: a template consists of special tokens");
  } else if (flags.Given("--template") || options.no_generation_prompt) {
    throw UserError("--template and --no-generation-prompt are for --chat only");
  }
  if (flags.Given("--jsonl") && options.jsonl.empty()) throw UserError("--jsonl is empty, expected a file");
  return true;
}

std::vector<tokenizer::Message> ReadMessages(const std::string& file) {
  const base::Json json = base::ParseJson(base::ReadTextFile(file, kMaxInputBytes), file);
  const base::JsonView list(json, file);
  std::vector<tokenizer::Message> messages;
  for (size_t i = 0; i < list.Size(); ++i) {
    messages.push_back({list.At(i).At("role").String(), list.At(i).At("content").String()});
  }
  return messages;
}

std::string RenderChat(const TokenizeOptions& options) {
  // A tokenizer file has its template, if any, in the tokenizer_config.json beside it.
  std::filesystem::path folder(options.model);
  if (!base::IsFolder(folder)) folder = folder.parent_path();
  if (folder.empty()) folder = ".";
  std::string name = options.template_name;
  tokenizer::TemplateTokens tokens;
  if (name == "auto") {
    const tokenizer::FolderTemplate found = tokenizer::ReadFolderTemplate(folder.string());
    if (found.name.empty()) {
      const std::optional<tokenizer::ChatFamily> family = tokenizer::FamilyOfFolders(folder.string(), "");
      throw FileError(folder.string(), "has no chat template in tokenizer_config.json",
                      !family ? "name one with --template"
                              : fmt::format("{}, and {} expects --template {}", family->said_by, family->name,
                                            family->template_name));
    }
    name = found.name;
    tokens = found.tokens;
  } else {
    tokens = tokenizer::ReadTemplateTokens(folder.string(), name);
  }
  return tokenizer::RenderTemplate(name, ReadMessages(options.chat), tokens, !options.no_generation_prompt);
}

// Calls `use` with every line's string.
void ForEachJsonLine(const std::string& file, const std::function<void(const std::string&)>& use) {
  const std::string content = base::ReadTextFile(file, kMaxInputBytes);
  size_t line_number = 0;
  for (size_t begin = 0; begin < content.size();) {
    const size_t end = std::min(content.find('\n', begin), content.size());
    const std::string where = fmt::format("{}:{}", file, ++line_number);
    const base::Json json = base::ParseJson(std::string_view(content).substr(begin, end - begin), where);
    use(base::JsonView(json, where).String());
    begin = end + 1;
  }
}

}  // namespace

int Tokenize(const std::vector<std::string>& args) {
  TokenizeOptions options;
  if (!ParseFlags(args, options)) return kExitOk;
  const std::unique_ptr<tokenizer::Tokenizer> tokenizer =
      load::ReadAs(load::Role::kEither, options.model, [&] { return tokenizer::LoadTokenizer(options.model); });
  PrintWarnings(tokenizer->warnings());
  if (options.add_bos && tokenizer->bos_id() < 0) {
    throw FileError(options.model, "the tokenizer has no BOS token, and --add-bos asks for one");
  }
  const bool chat = !options.chat.empty();
  const bool by_file = !chat && tokenizer->adds_bos();
  const tokenizer::EncodeOptions encode = {.parse_special = !options.no_special,
                                           .add_bos = options.add_bos || (by_file && !options.no_bos)};
  const auto print = [&](const std::string& text) {
    base::Json json;
    json["ids"] = tokenizer->Encode(text, encode);
    if (chat) json["prompt"] = text;
    Print(base::DumpJson(json) + "\n");
  };
  if (chat) {
    print(RenderChat(options));
  } else if (!options.jsonl.empty()) {
    ForEachJsonLine(options.jsonl, print);
  } else {
    print(options.has_text ? options.text : ReadStdin());
  }
  return kExitOk;
}

}  // namespace hydrant::cli
