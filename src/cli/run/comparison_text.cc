// SPDX-License-Identifier: Apache-2.0
// The table of `run --compare-plain`.
#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/json.h"
#include "cli/flags/values.h"
#include "cli/run/comparison_text.h"

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
    const base::Json paths = base::ParseJson(way.choices, "the tree");
    const size_t nodes = paths.size();
    if (nodes == 0) return way.name;  // auto, dynamic, beam: another tree in each step
    std::string& name = names_[way.choices];
    if (!name.empty()) return name;
    bool is_chain = true;
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

// The rows of the table's end: what is compared.
std::vector<Row> ComparedRows(const EngineInfo& info, const Comparison& comparison) {
  const std::string heads = "with " + info.drafter;
  const char* const lookup = comparison.drafted.lookup > 0 ? " and lookup" : "";
  std::vector<Row> rows = {{info.drafter == "none" ? "with lookup" : heads + lookup, comparison.drafted.figures}};
  if (comparison.heads_alone) rows.push_back({heads + " alone", comparison.heads_alone->figures});
  rows.push_back({"plain decoding", comparison.plain});
  return rows;
}

std::string SpeedupRows(const Comparison& comparison, size_t width) {
  if (comparison.plain.tokens_per_second <= 0) return {};
  const auto row = [&](const char* name, double value, const SpeedFigures& figures) {
    return fmt::format("{:{}} {:>11} {:>12} {:>9.2f}x  ({:.2f}x by forward and draft alone)\n", name, width, "", "",
                       value, SpeedupOfSteps(figures, comparison.plain));
  };
  std::string text = row("speedup", comparison.speedup, comparison.drafted.figures);
  if (!comparison.heads_alone) return text;
  return text + row("speedup of heads alone", comparison.heads_alone_speedup, comparison.heads_alone->figures);
}

std::string LeftOut(const Comparison& comparison, size_t tried, size_t again) {
  if (tried == comparison.tried.size() && again == comparison.tried_again.size()) return {};
  std::string text = fmt::format("The fastest {} of {} ways are shown", tried, comparison.tried.size());
  if (again < comparison.tried_again.size()) {
    text += fmt::format(", and {} of {} tried again", again, comparison.tried_again.size());
  }
  const size_t slower = comparison.tried.size() - tried;
  return text + fmt::format("; {} {} slower (all with --json).\n", slower, slower == 1 ? "was" : "were");
}

// Trees that were not chosen by the user are left out where they do not pay; weak heads may then do nothing at all.
std::string WhyNothing(const EngineInfo& info, const Comparison& comparison) {
  if (info.drafter == "none" || comparison.drafted.figures.drafted_per_step >= 0.05) return {};
  return "Drafting does not pay here, so hardly anything was drafted; --tree mc_sim_7b_63 drafts at every step.\n";
}

}  // namespace

std::string ComparisonText(const EngineInfo& info, const Comparison& comparison, size_t num_tokens) {
  TreeNames names(info.drafter != "none");
  const std::vector<Row> compared = ComparedRows(info, comparison);
  const size_t speedups = comparison.plain.tokens_per_second > 0 ? compared.size() - 1 : 0;
  const std::vector<TreeSpeed> again = Fastest(comparison.tried_again, kMostAgain);
  const std::vector<TreeSpeed> tried = Fastest(comparison.tried, kMostRows - compared.size() - speedups - again.size());
  std::vector<Row> rows;
  for (const TreeSpeed& way : tried) rows.push_back({"trying " + names.Of(way), way.figures});
  for (const TreeSpeed& way : again) rows.push_back({"again " + names.Of(way), way.figures});
  rows.insert(rows.end(), compared.begin(), compared.end());
  const std::string used = names.Of(comparison.drafted);
  size_t width = 22;  // of "speedup of heads alone"
  for (const Row& row : rows) width = std::max(width, row.name.size());
  return Table(rows, width) + SpeedupRows(comparison, width) + LeftOut(comparison, tried.size(), again.size()) +
         names.key() +
         fmt::format("All {} tokens are equal. Medians of {} runs each, in turn; {} threads, {}; used: {}.\n",
                     num_tokens, comparison.rounds, info.threads, info.cpu_target, used) +
         WhyNothing(info, comparison);
}

}  // namespace hydrant::cli
