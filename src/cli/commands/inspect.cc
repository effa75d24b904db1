// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/inspect.h"

#include <fmt/core.h>

#include <filesystem>
#include <memory>
#include <vector>

#include "base/json.h"
#include "base/paths.h"
#include "cli/commands/inspect_sections.h"
#include "cli/flags/flags.h"
#include "cli/terminal/errors.h"
#include "cli/terminal/escape.h"
#include "cli/terminal/sections.h"
#include "cli/terminal/terminal.h"
#include "hydrant/error.h"
#include "load/folder_kind.h"
#include "load/other_kinds.h"

namespace hydrant::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDescription =
    "Say what PATH is: a base model folder, a heads folder, a whole model with heads, a tensor file (.safetensors, "
    ".pt,\n"
    ".bin, .index.json) or a tokenizer (folder, tokenizer.json, tokenizer.model). Everything is read and checked as "
    "`run`\n"
    "would; sizes are counted once for tied tensors.";

constexpr const char* kExamples =
    "Examples:\n"
    "  hydrant inspect models/tale-14m\n"
    "  hydrant inspect models/tale-14m-hydra-pp --json\n"
    "  hydrant inspect hydra_lm_head.pt --tensors\n";

struct Findings {
  std::string kind;
  std::vector<Section> sections;
  std::unique_ptr<checkpoint::TensorSource> tensors;  // of a tensor file; null: none
};

Findings InspectFolder(const std::string& folder) {
  Findings findings;
  const auto [base, heads, has_tokenizer] = load::KindOf(folder);
  if (!base && !heads && !has_tokenizer) {
    throw FileError(
        folder, "holds no model, draft heads or tokenizer that this version knows",
        "expected config.json with weights, hydra_lm_head.pt, medusa_lm_head.pt, tokenizer.json or tokenizer.model");
  }
  findings.kind = base && heads ? "whole model with heads" : base ? "base model" : heads ? "heads" : "tokenizer";
  if (base) findings.sections.push_back(BaseSection(folder));
  if (heads) findings.sections.push_back(HeadsSection(folder, base));
  if (has_tokenizer) findings.sections.push_back(TokenizerSection(folder));
  return findings;
}

Findings InspectFile(const std::string& path) {
  Findings findings;
  const std::string name = fs::path(path).filename().string();
  if (name.ends_with("config.json")) {
    throw FileError(path, "describes its folder, expected a file of weights or a tokenizer", "name the folder");
  }
  if (name.ends_with(".index.json")) {
    findings.kind = "sharded tensors";
    findings.tensors = checkpoint::OpenShardedCheckpoint(path);
  } else if (name.ends_with(".json") || name.ends_with(".model")) {
    findings.kind = "tokenizer";
    findings.sections.push_back(TokenizerSection(path));
    return findings;
  } else {
    findings.kind = "tensors";
    findings.tensors = checkpoint::OpenTensorFile(path);
  }
  findings.sections.push_back(TensorsSection(*findings.tensors));
  return findings;
}

// They go to stderr; the object of --json has them too.
std::vector<std::string> TakeWarnings(std::vector<Section>& sections, bool keep) {
  std::vector<std::string> warnings;
  for (Section& section : sections) {
    for (const auto& [key, value] : section.facts) {
      if (key == "warnings") warnings.insert(warnings.end(), value.begin(), value.end());
    }
    if (!keep) std::erase_if(section.facts, [](const auto& fact) { return fact.first == "warnings"; });
  }
  return warnings;
}

}  // namespace

int Inspect(const std::vector<std::string>& args) {
  std::string path;
  bool json = false, list_tensors = false;
  FlagSet flags("hydrant inspect", kDescription, kExamples);
  flags.Positional("PATH", &path, true, "Folder or file");
  flags.Switch("--json", &json, "Print one JSON object");
  flags.Switch("--tensors", &list_tensors, "Also list every tensor of a tensor file: name, dtype, shape");
  if (!flags.Parse(args)) return kExitOk;
  if (path.empty()) throw UserError("PATH is empty", "name a folder or a file");
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  load::RefuseOtherKind(path, load::Role::kEither);
  Findings findings = base::IsFolder(path) ? InspectFolder(path) : InspectFile(path);
  if (list_tensors && !findings.tensors) {
    throw UserError("--tensors is for tensor files only",
                    "name the .safetensors, .pt, .bin or .index.json file itself");
  }
  PrintWarnings(TakeWarnings(findings.sections, json));
  if (json) {
    base::Json object = SectionsJson(findings.sections);
    object["path"] = path;
    object["kind"] = findings.kind;
    if (list_tensors) object["tensor_list"] = TensorListJson(*findings.tensors);
    Print(base::DumpJson(object) + "\n");
    return kExitOk;
  }
  Print(fmt::format("{}: {}\n\n{}", EscapedName(path), findings.kind, SectionsText(findings.sections)));
  if (list_tensors) Print(fmt::format("\n{}", TensorListText(*findings.tensors)));
  return kExitOk;
}

}  // namespace hydrant::cli
