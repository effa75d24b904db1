// SPDX-License-Identifier: Apache-2.0
// The table of `run --compare-plain`.
#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/json.h"
#include "cli/report.h"
#include "cli/values.h"

namespace hydrant::cli {
namespace {

constexpr size_t kMostRows = 12, kMostAgain = 4;

// Trees by what they are called in the table: their own names, "chain of 2", or "tree A" with its paths below.
class TreeNames {
 public:
  explicit TreeNames(bool has_heads) : has_heads_(has_heads) {}

  // Of a way of drafting.
  std::string Of(const TreeSpeed& way) {
    std::string text = has_heads_ ? OfTree(way) : "";
    if (has_heads_ && way.p_min > 0) text += fmt::format(", p-min {}", ShortestDouble(way.p_min));
    if (way.lookup > 0 || !has_heads_) text += fmt::format("{}lookup {}", has_heads_ ? ", " : "", way.lookup);
    return text;
  }
  // What names stand for where they do not say it; empty, or lines.
  const std::string& key() const { return key_; }

 private:
  std::string OfTree(const TreeSpeed& way) {
    std::string& name = names_[way.choices];
    if (!name.empty()) return name;
    const base::Json paths = base::ParseJson(way.choices, "the tree");
    const size_t nodes = paths.size();
    bool is_chain = nodes > 0;
    for (const base::Json& path : paths) {
      is_chain = is_chain && std::ranges::all_of(path, [](const base::Json& rank) { return rank == 0; });
    }
    if (is_chain) return name = fmt::format("chain of {}", nodes);
    const size_t slash = way.name.find_last_of('/');
    const std::string file = slash == std::string::npos ? way.name : way.name.substr(slash + 1);
    if (way.name != "custom" && !file.empty()) {
      const bool taken = std::ranges::any_of(names_, [&](const auto& other) { return other.second == file; });
      name = taken ? way.name : file;
      key_ += fmt::format("{}: {} nodes\n", name, nodes);
      return name;
    }
    name = fmt::format("tree {}", static_cast<char>('A' + num_letters_++ % 26));
    if (num_letters_ > 26) name += std::to_string(num_letters_ / 26 + 1);
    constexpr size_t kMostPaths = 70;  // bytes
    const std::string shown = way.choices.size() > kMostPaths ? way.choices.substr(0, kMostPaths) + "..." : way.choices;
    key_ += fmt::format("{}: {} nodes, {}\n", name, nodes, shown);
    return name;
  }

  bool has_heads_;
  size_t num_letters_ = 0;
  std::map<std::string, std::string> names_;  // by the paths
  std::string key_;
};

struct Row {
  std::string name;
  SpeedFigures figures;
};

// The fastest `most` of them, the fastest first.
std::vector<TreeSpeed> Fastest(std::vector<TreeSpeed> ways, size_t most) {
  std::ranges::stable_sort(ways, [](const TreeSpeed& a, const TreeSpeed& b) {
    return a.figures.tokens_per_second > b.figures.tokens_per_second;
  });
  if (ways.size() > most) ways.erase(ways.begin() + static_cast<std::ptrdiff_t>(most), ways.end());
  return ways;
}

std::string Table(const std::vector<Row>& rows, size_t width) {
  std::string text = fmt::format("{:{}} {:>11} {:>12} {:>10} {:>12} {:>9}\n", "", width, "nodes/step", "tokens/step",
                                 "tokens/s", "forward, ms", "draft, ms");
  for (const Row& row : rows) {
    text += fmt::format("{:{}} {:11.2f} {:12.2f} {:10.1f} {:12.3f} {:9.3f}\n", row.name, width,
                        row.figures.drafted_per_step, row.figures.tokens_per_step, row.figures.tokens_per_second,
                        row.figures.forward_ms, row.figures.draft_ms);
  }
  return text;
}

}  // namespace

std::string ComparisonText(const EngineInfo& info, const Comparison& comparison, size_t num_tokens) {
  const bool has_heads = info.drafter != "none";
  const TreeSpeed& tree = comparison.drafted;
  const std::string heads = "with " + info.drafter;
  TreeNames names(has_heads);
  std::vector<Row> last = {{!has_heads        ? "with lookup"
                            : tree.lookup > 0 ? heads + " and lookup"
                                              : heads,
                            tree.figures}};
  if (comparison.heads_alone) last.push_back({heads + " alone", comparison.heads_alone->figures});
  last.push_back({"plain decoding", comparison.plain});
  const bool has_speedups = comparison.plain.tokens_per_second > 0;
  const size_t num_speedups = has_speedups ? last.size() - 1 : 0;

  const std::vector<TreeSpeed> again = Fastest(comparison.tried_again, kMostAgain);
  const std::vector<TreeSpeed> tried = Fastest(comparison.tried, kMostRows - last.size() - num_speedups - again.size());
  std::vector<Row> rows;
  for (const TreeSpeed& way : tried) rows.push_back({"trying " + names.Of(way), way.figures});
  for (const TreeSpeed& way : again) rows.push_back({"again " + names.Of(way), way.figures});
  rows.insert(rows.end(), last.begin(), last.end());
  const std::string used = names.Of(tree);
  size_t width = 22;  // of "speedup of heads alone"
  for (const Row& row : rows) width = std::max(width, row.name.size());

  std::string text = Table(rows, width);
  const auto speedup = [&](const char* name, double value, const SpeedFigures& figures) {
    text += fmt::format("{:{}} {:>11} {:>12} {:>9.2f}x  ({:.2f}x by forward and draft alone)\n", name, width, "", "",
                        value, SpeedupOfSteps(figures, comparison.plain));
  };
  if (has_speedups) speedup("speedup", comparison.speedup, tree.figures);
  if (has_speedups && comparison.heads_alone) {
    speedup("speedup of heads alone", comparison.heads_alone_speedup, comparison.heads_alone->figures);
  }
  const size_t left_out = comparison.tried.size() - tried.size();
  const size_t again_left_out = comparison.tried_again.size() - again.size();
  if (left_out > 0) {
    text += fmt::format("The fastest {} of {} ways are shown", tried.size(), comparison.tried.size());
    if (again_left_out > 0)
      text += fmt::format(", and {} of {} tried again", again.size(), comparison.tried_again.size());
    text += fmt::format("; {} were slower (all with --json).\n", left_out);
  }
  text += names.key();
  return text + fmt::format("All {} tokens are equal. Medians of {} runs each, in turn; {} threads, {}; used: {}.\n",
                            num_tokens, comparison.rounds, info.threads, info.cpu_target, used);
}

}  // namespace hydrant::cli
