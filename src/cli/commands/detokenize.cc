// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/detokenize.h"

#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/json.h"
#include "base/paths.h"
#include "cli/flags/flags.h"
#include "cli/flags/values.h"
#include "cli/terminal/errors.h"
#include "cli/terminal/terminal.h"
#include "hydrant/error.h"
#include "load/other_kinds.h"
#include "model/model_config.h"
#include "tokenizer/tokenizer.h"

namespace hydrant::cli {
namespace {

constexpr const char* kDescription =
    "Print the text of token ids as {\"text\":..}, one ASCII-escaped JSON object a line. Bytes that are not UTF-8 "
    "become U+FFFD.";

constexpr const char* kExamples =
    "Examples:\n"
    "  hydrant detokenize --model models/tale-14m --ids '[1, 572, 1066]'\n"
    "  hydrant detokenize --model tokenizer.json --ids ids.json --skip-special\n";

// Models pad their vocabularies, and may print ids beyond the tokenizer's last one: these have no text, as in `run`.
void DropPadding(const std::string& model, int32_t vocab_size, std::vector<int32_t>& ids) {
  if (std::ranges::none_of(ids, [vocab_size](int32_t id) { return id >= vocab_size; })) return;
  const std::filesystem::path path(model);
  const std::string folder = base::IsFolder(path) ? model : path.parent_path().string();
  const int64_t model_vocab = model::VocabSizeOf(folder.empty() ? "." : folder);
  std::erase_if(ids, [&](int32_t id) { return id >= vocab_size && id < model_vocab; });
}

}  // namespace

int Detokenize(const std::vector<std::string>& args) {
  std::string model;
  std::vector<int32_t> ids;
  bool skip_special = false;
  FlagSet flags("hydrant detokenize", kDescription, kExamples);
  flags.Text("--model", "DIR|FILE", &model, "Model folder, tokenizer.json or tokenizer.model");
  flags.Value(
      "--ids", "LIST|FILE", [&ids](const std::string& value) { ids = ParseIdList("--ids", value, true); },
      "Token ids such as 1,2 or [1, 2], or a file holding them");
  flags.Switch("--skip-special", &skip_special, "Leave out special tokens");
  if (!flags.Parse(args)) return kExitOk;
  if (model.empty()) throw UserError("--model is missing", "give a model folder or a tokenizer file");
  if (!flags.Given("--ids")) throw UserError("--ids is missing", "give token ids such as --ids '[1, 2]'");
  const std::unique_ptr<tokenizer::Tokenizer> tokenizer =
      load::ReadAs(load::Role::kEither, model, [&] { return tokenizer::LoadTokenizer(model); });
  PrintWarnings(tokenizer->warnings());
  DropPadding(model, tokenizer->vocab_size(), ids);
  base::Json json;
  json["text"] = tokenizer->Decode(ids, skip_special);
  Print(base::DumpJson(json) + "\n");
  return kExitOk;
}

}  // namespace hydrant::cli
