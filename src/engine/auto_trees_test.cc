// SPDX-License-Identifier: Apache-2.0
#include "engine/auto_trees.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/json.h"
#include "base/mapped_file.h"
#include "tests/test_data.h"

namespace hydrant::engine::auto_trees_test {
namespace {

using testing::HasSubstr;

constexpr tree::Limits kLimits{.num_heads = 4, .vocab_size = 1000, .max_nodes = 512};

// Steps of that kind in which every first candidate is accepted, and a level costs a tenth of a plain step.
void TakeSteps(AutoTrees& trees, const StepKind& kind, int count) {
  tree::TreeChooser& chooser = trees.For(kind);
  for (int i = 0; i < count; ++i) {
    const tree::Topology& topology = trees.family()[static_cast<size_t>(chooser.Next())].topology;
    std::vector<std::vector<tree::VisitedNode>> walks(1);
    for (int32_t node = 0;; node = topology.first_child()[static_cast<size_t>(node)]) {
      walks[0].push_back({.num_children = topology.num_children()[static_cast<size_t>(node)]});
      if (walks[0].back().num_children == 0) break;
      walks[0].back().accepted = 0;
    }
    chooser.Observe({.milliseconds = 10.0 + topology.max_depth() + topology.num_nodes(), .walks = walks});
  }
}

TEST(AutoTreesTest, KindsAreByNumberOfSequencesAndWayOfDrafting) {
  EXPECT_EQ(KindOfStep(1, false, false), StepKind());
  EXPECT_EQ(KindOfStep(3, false, false).sequences, 3);
  EXPECT_EQ(KindOfStep(5, false, false).sequences, 8);
  EXPECT_EQ(KindOfStep(8, true, false), (StepKind{.sequences = 8, .sampled = true, .pruned = false}));
}

TEST(AutoTreesTest, WhatWasLearnedServesTheNextOneWithTheSameKey) {
  const test::TempDir dir;
  const std::string file = dir.path() + "/new/folder/x.json";
  AutoTrees first(tree::TreeFamily({}, kLimits), file, "key");
  TakeSteps(first, {}, 60);
  first.Save();
  EXPECT_EQ(first.problem(), "");
  AutoTrees same(tree::TreeFamily({}, kLimits), file, "key"), other(tree::TreeFamily({}, kLimits), file, "another");
  EXPECT_EQ(same.For({}).Best(), first.For({}).Best());
  EXPECT_GT(same.For({}).Best(), 0);
  EXPECT_EQ(same.For({}).Next(), same.For({}).Best());
  EXPECT_EQ(other.For({}).Next(), 0) << "it begins anew, with a plain step";
  EXPECT_EQ(same.For({.sequences = 2}).Next(), 0);
  // What other kinds of steps had learned stays in the file.
  AutoTrees second(tree::TreeFamily({}, kLimits), file, "key");
  TakeSteps(second, {.sequences = 2}, 20);
  second.Save();
  EXPECT_EQ(AutoTrees(tree::TreeFamily({}, kLimits), file, "key").For({}).Best(), first.For({}).Best());
}

TEST(AutoTreesTest, TheReportSaysWhatWasTriedAndWhy) {
  AutoTrees trees(tree::TreeFamily({}, kLimits), "", "");
  const StepKind kind;
  EXPECT_EQ(trees.Report(kind, {}).why, "no step was taken");
  TakeSteps(trees, kind, 60);
  std::vector<int64_t> steps(trees.family().size(), 0);
  steps[2] = 7;
  const TreeReport report = trees.Report(kind, steps);
  EXPECT_TRUE(report.is_auto);
  EXPECT_EQ(report.chosen.name, "chain of 4");
  EXPECT_THAT(report.why, HasSubstr("chain of 4 gives "));
  EXPECT_EQ(report.tried[0].name, "nothing");
  EXPECT_DOUBLE_EQ(report.tried[0].tokens_per_step, 1);
  const auto chain = std::ranges::find(report.tried, "chain of 2", &TreeUse::name);
  ASSERT_NE(chain, report.tried.end());
  EXPECT_EQ(chain->steps, 7);
}

TEST(AutoTreesTest, AReportWithoutAStepHasNoNumbersThatAreNone) {
  const test::TempDir dir;
  const std::string file = dir.path() + "/x.json";
  AutoTrees first(tree::TreeFamily({}, kLimits), file, "key");
  TakeSteps(first, {}, 60);
  first.Save();
  AutoTrees second(tree::TreeFamily({}, kLimits), file, "key");
  second.For({});
  const TreeReport report = second.Report({}, {});
  EXPECT_THAT(report.why, testing::Not(HasSubstr("nan")));
  EXPECT_GT(report.chosen.milliseconds, 0);
}

TEST(AutoTreesTest, DamagedFilesAreToldAndReplaced) {
  const test::TempDir dir;
  const std::string file = dir.path() + "/x.json";
  AutoTrees good(tree::TreeFamily({}, kLimits), file, "key");
  TakeSteps(good, {}, 60);
  good.Save();
  const std::string text = base::ReadTextFile(file);
  const auto with = [&](const char* pointer, const base::Json& value) {
    base::Json json = base::ParseJson(text, file);
    json[base::Json::json_pointer(pointer)] = value;
    return base::DumpJson(json);
  };
  const std::string tree = "/kinds/0/learned/trees/1", node = "/kinds/0/learned/nodes/0";
  for (const std::string& bad :
       {text.substr(0, text.size() / 2), with("/kinds", 1), with("/kinds/0/sequences", 0), with("/kinds/0/learned", 1),
        with((tree + "/milliseconds").c_str(), -1), with((tree + "/milliseconds").c_str(), "x"),
        with((tree + "/steps").c_str(), 0), with((node + "/accepted").c_str(), 1e9),
        with((node + "/path").c_str(), {-1}), with("/kinds/0/learned/pause", 0)}) {
    dir.Write("x.json", bad);
    AutoTrees trees(tree::TreeFamily({}, kLimits), file, "key");
    EXPECT_THAT(trees.problem(), HasSubstr("learned before is not used: " + file)) << bad;
    EXPECT_EQ(trees.For({}).Next(), 0);
    TakeSteps(trees, {}, 60);
    trees.Save();
    EXPECT_EQ(AutoTrees(tree::TreeFamily({}, kLimits), file, "key").problem(), "");
  }
}

}  // namespace
}  // namespace hydrant::engine::auto_trees_test
