// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/tree.h"

#include <fmt/core.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "base/atomic_file.h"
#include "base/json.h"
#include "base/paths.h"
#include "cli/command.h"
#include "cli/flags/flags.h"
#include "cli/flags/values.h"
#include "cli/terminal/errors.h"
#include "cli/terminal/escape.h"
#include "cli/terminal/terminal.h"
#include "hydrant/error.h"
#include "tree/draw.h"
#include "tree/parse.h"

namespace hydrant::cli {
namespace {

using base::Json;
using tree::Topology;

constexpr const char* kTreeHelp = "Preset name, JSON file, or literal list such as '[[0],[0,0],[1]]'";

constexpr const char* kShowExamples =
    "Examples:\n"
    "  hydrant tree show mc_sim_7b_63\n"
    "  hydrant tree show '[[0,0,0,0],[0,1,0],[1,0]]'        paths only: prefixes are implied\n"
    "  hydrant tree show trees.json --json\n";

constexpr const char* kConvertDescription =
    "Read a tree in any accepted spelling and write it in another one:\n"
    "  choices  [[0],[1],[0,0]]: every node, as published with Medusa and Hydra\n"
    "  paths    [[0,0],[1]]: paths to the leaves only, prefixes are implied\n"
    "  named    {\"name\":..,\"choices\":[..]}: the preset's or the file's name\n"
    "  parents  {\"parent\":[..],\"depth\":[..],\"child_rank\":[..]}, the root being node 0; not read again";

constexpr const char* kConvertExamples =
    "Examples:\n"
    "  hydrant tree convert mc_sim_7b_63 --to paths\n"
    "  hydrant tree convert '[[0,0,0],[1,0]]' --out my_tree.json\n";

constexpr std::array<std::string_view, 4> kForms = {"choices", "paths", "named", "parents"};

std::vector<std::vector<int32_t>> LeafPaths(const Topology& topology) {
  const std::vector<std::vector<int32_t>> paths = topology.Paths();  // of node i + 1
  std::vector<std::vector<int32_t>> leaves;
  for (size_t i = 0; i < paths.size(); ++i) {
    if (topology.num_children()[i + 1] == 0) leaves.push_back(paths[i]);
  }
  return leaves;
}

template <typename T>
std::vector<T> Copied(std::span<const T> values) {
  return {values.begin(), values.end()};
}

Json ParentsJson(const Topology& topology) {
  return {{"parent", Copied(topology.parent())},
          {"depth", Copied(topology.depth())},
          {"child_rank", Copied(topology.child_rank())}};
}

Json ShowJson(const tree::NamedTopology& named) {
  const Topology& topology = named.topology;
  std::vector<int32_t> per_depth, max_children;
  for (int32_t d = 1; d <= topology.max_depth(); ++d) per_depth.push_back(topology.width_at(d));
  for (int32_t d = 0; d < topology.max_depth(); ++d) max_children.push_back(topology.max_children_at(d));
  return {
      {"name", named.name},           {"nodes", topology.num_nodes() - 1},      {"depth", topology.max_depth()},
      {"nodes_per_depth", per_depth}, {"max_children_per_depth", max_children}, {"leaves", LeafPaths(topology).size()},
      {"choices", topology.Paths()}};
}

int Show(const std::vector<std::string>& args) {
  std::string text;
  bool json = false;
  FlagSet flags("hydrant tree show", "Draw a draft tree and count its nodes, the root left out.", kShowExamples);
  flags.Positional("TREE", &text, true, kTreeHelp);
  flags.Switch("--json", &json, "Print one JSON object: name, nodes, depth, nodes_per_depth, leaves, choices");
  if (!flags.Parse(args)) return kExitOk;
  const tree::NamedTopology named = tree::ParseTree(text, "TREE");
  Print(json ? base::DumpJson(ShowJson(named)) + "\n" : EscapedName(named.name) + "\n" + tree::Draw(named.topology));
  return kExitOk;
}

void WriteFile(const std::string& path, const std::string& content) {
  std::error_code error;
  if (!base::IsThere(path) || std::filesystem::is_regular_file(path, error)) {
    base::AtomicFile file(path);
    file.Write(content.data(), content.size());
    return file.Keep();
  }
  std::ofstream file(path, std::ios::binary);  // a device or pipe
  if (file) file << content << std::flush;
  if (!file) throw FileError(path, std::string("cannot be written: ") + std::strerror(errno));
}

int Convert(const std::vector<std::string>& args) {
  std::string text, out, form = "choices";
  FlagSet flags("hydrant tree convert", kConvertDescription, kConvertExamples);
  flags.Positional("TREE", &text, true, kTreeHelp);
  flags.Text("--out", "FILE", &out, "Write to this file (default: stdout)");
  flags.Value(
      "--to", "FORM", [&form](const std::string& value) { form = ParseChoice("--to", value, kForms); },
      "choices, paths, named or parents (default choices)");
  if (!flags.Parse(args)) return kExitOk;
  if (flags.Given("--out") && out.empty()) throw UserError("--out is empty, expected a file name");
  const tree::NamedTopology named = tree::ParseTree(text, "TREE");
  Json json;
  if (form == "choices") json = named.topology.Paths();
  if (form == "paths") json = LeafPaths(named.topology);
  if (form == "named") json = {{"name", named.name}, {"choices", named.topology.Paths()}};
  if (form == "parents") json = ParentsJson(named.topology);
  const std::string content = base::DumpJson(json) + "\n";
  if (out.empty()) {
    Print(content);
  } else {
    WriteFile(out, content);
  }
  return kExitOk;
}

int List(const std::vector<std::string>& args) {
  bool json = false;
  FlagSet flags("hydrant tree list", "List the presets: name, nodes without the root, nodes per depth.",
                "Examples:\n  hydrant tree list\n");
  flags.Switch("--json", &json, "Print one JSON array");
  if (!flags.Parse(args)) return kExitOk;
  Json list = Json::array();
  std::string text;
  for (const std::string_view name : tree::PresetNames()) {
    const tree::NamedTopology named = {std::string(name), tree::Preset(name)};
    list.push_back(ShowJson(named));
    std::string widths;
    for (int32_t d = 1; d <= named.topology.max_depth(); ++d) {
      widths += fmt::format("{}{}", d == 1 ? "" : "/", named.topology.width_at(d));
    }
    text += fmt::format("{:26} {:3} nodes  {}\n", name, named.topology.num_nodes() - 1, widths);
  }
  Print(json ? base::DumpJson(list) + "\n" : text);
  return kExitOk;
}

constexpr std::array<Command, 3> kCommands = {{
    {"show", "draw a tree and count its nodes", Show},
    {"convert", "write a tree in another spelling", Convert},
    {"list", "list the presets", List},
}};

}  // namespace

int Tree(const std::vector<std::string>& args) {
  return Dispatch("hydrant tree", kCommands, args, "Draft trees: presets, JSON files, literal lists.\n");
}

}  // namespace hydrant::cli
