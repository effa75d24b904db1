// SPDX-License-Identifier: Apache-2.0
#include "tree/parse.h"

#include <algorithm>
#include <filesystem>
#include <limits>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/nearest.h"
#include "hydrant/error.h"

namespace hydrant::tree {
namespace {

using base::Json;
using base::JsonView;

// trees.json with its statistics stays far below; JSON costs some 16 bytes of memory per byte of "0,0,0".
constexpr size_t kMaxFileBytes = size_t{4} << 20;

std::string Shown(const Json& value) {
  std::string text = base::DumpJson(value);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

std::vector<int32_t> ReadPath(const JsonView& view) {
  if (!view.is_array()) view.Fail("a path: a list of child ranks such as [0,1]");
  if (view.Size() > static_cast<size_t>(Topology::kMaxDepth)) {
    throw FileError(view.file(), "path " + Shown(view.raw()) + " is " + std::to_string(view.Size()) +
                                     " deep, at most " + std::to_string(Topology::kMaxDepth) + " is possible");
  }
  std::vector<int32_t> path;
  for (const Json& rank : view.raw()) {
    const bool fits = rank.is_number_unsigned() && rank.get<uint64_t>() < static_cast<uint64_t>(Topology::kMaxNodes);
    if (!fits) {
      throw FileError(view.file(), "path " + Shown(view.raw()) + " has the rank " + Shown(rank) +
                                       ", expected an integer from 0 to " + std::to_string(Topology::kMaxNodes - 1));
    }
    path.push_back(rank.get<int32_t>());
  }
  return path;
}

Topology ReadList(const JsonView& list) {
  if (!list.is_array()) list.Fail("a list of paths such as [[0],[0,0],[1]]");
  if (list.Size() == 0) {
    throw FileError(list.file(), "the tree is empty, expected a list of paths such as [[0],[0,0],[1]]",
                    "for plain decoding leave out the draft");
  }
  if (list.Size() >= static_cast<size_t>(Topology::kMaxNodes)) {
    throw FileError(list.file(), "the tree lists " + std::to_string(list.Size()) + " paths, at most " +
                                     std::to_string(Topology::kMaxNodes - 1) + " are possible");
  }
  std::vector<std::vector<int32_t>> paths;
  paths.reserve(list.Size());
  for (size_t i = 0; i < list.Size(); ++i) paths.push_back(ReadPath(list.At(i)));
  return Topology::FromPaths(paths, list.file());
}

// trees.json: several trees and the index of the one to use.
Topology ReadTrees(const JsonView& object) {
  const JsonView trees = object.At("trees");
  if (!trees.is_array() || trees.Size() == 0) trees.Fail("a list of trees");
  if (!object.Has("default") && trees.Size() > 1) {
    throw FileError(object.file(), "holds " + std::to_string(trees.Size()) + " trees and no 'default'",
                    "add \"default\": the index of the tree to use, counted from 0");
  }
  const int64_t last = static_cast<int64_t>(trees.Size()) - 1;
  const int64_t index = object.Has("default") ? object.At("default").Int(0, last) : 0;
  return ReadList(trees.At(static_cast<size_t>(index)).At("choices"));
}

bool LooksLikeJson(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && (text[first] == '[' || text[first] == '{');
}

}  // namespace

Topology ParseTreeJson(std::string_view text, const std::string& where) {
  const Json json = base::ParseJson(text, where);
  const JsonView view(json, where);
  if (view.is_array()) return ReadList(view);
  if (view.is_object()) {
    for (const char* key : {"tree", "choices"}) {
      if (view.Has(key)) return ReadList(view.At(key));
    }
    if (view.Has("trees")) return ReadTrees(view);
  }
  view.Fail("a list of paths, or an object with 'tree', 'choices' or 'trees'");
}

NamedTopology ReadTreeFile(const std::string& path) {
  return {path, ParseTreeJson(base::ReadTextFile(path, kMaxFileBytes), path)};
}

std::vector<NamedTopology> ReadAllTrees(const std::string& path) {
  const std::string text = base::ReadTextFile(path, kMaxFileBytes);
  const Json json = base::ParseJson(text, path);
  const JsonView view(json, path);
  if (!view.is_object() || view.Has("tree") || view.Has("choices") || !view.Has("trees")) {
    return {{path, ParseTreeJson(text, path)}};
  }
  const JsonView trees = view.At("trees");
  if (!trees.is_array() || trees.Size() == 0 || trees.Size() > kMostTrees) {
    trees.Fail("a list of 1 to " + std::to_string(kMostTrees) + " trees");
  }
  std::vector<NamedTopology> all;
  for (size_t i = 0; i < trees.Size(); ++i) {
    const std::string name = trees.Size() == 1 ? path : path + "[" + std::to_string(i) + "]";
    all.push_back({name, ReadList(trees.At(i).At("choices"))});
  }
  return all;
}

NamedTopology ParseTree(const std::string& text, const std::string& where) {
  if (LooksLikeJson(text)) return {"custom", ParseTreeJson(text, where)};
  if (text == "auto") {
    throw UserError(where + ": \"auto\" is no tree of its own: it is chosen while text is generated",
                    "name a preset, a file or a list");
  }
  if (IsPreset(text)) return {text, Preset(text)};
  std::error_code unreadable;
  if (!text.empty() && std::filesystem::exists(text, unreadable)) return ReadTreeFile(text);
  const std::string nearest = base::Nearest(text, PresetNames());
  std::string hint;
  if (!nearest.empty()) hint.append("did you mean '").append(nearest).append("'? ");
  hint += where == kTreeOption ? "a tree is auto, a JSON file," : "a tree is a JSON file,";
  hint += " a list such as [[0],[0,0],[1]], or one of:";
  for (const std::string_view name : PresetNames()) hint.append(" ").append(name);
  const std::string shown = base::DumpJson(Json(text.substr(0, 100)));
  throw UserError(where + ": " + shown + " is neither a preset nor a file", hint);
}

Topology ForHeads(const NamedTopology& tree, int32_t num_heads) {
  if (tree.name != "blockwise") return tree.topology;
  return tree.topology.CutToDepth(std::min(num_heads, tree.topology.max_depth()));
}

std::string ToJson(const Topology& topology) {
  std::string text = "[";
  for (const std::vector<int32_t>& path : topology.Paths()) {
    if (text.size() > 1) text += ',';
    text += '[';
    for (size_t i = 0; i < path.size(); ++i) {
      if (i > 0) text += ',';
      text += std::to_string(path[i]);
    }
    text += ']';
  }
  return text + "]";
}

}  // namespace hydrant::tree
