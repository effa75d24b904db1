// SPDX-License-Identifier: Apache-2.0
#include "tree/draw.h"

#include <gtest/gtest.h>

#include "tree/parse.h"

namespace hydrant::tree::draw_test {
namespace {

TEST(DrawTest, ShowsCountsAndShape) {
  EXPECT_EQ(Draw(ParseTree("[[0,0,0],[0,1],[0,2],[1],[2],[3,0]]").topology),
            "9 drafted nodes and the root, depth 3, 6 leaves, at most 4 children per node\n"
            "depth            0     1     2     3\n"
            "nodes            1     4     4     1\n"
            "max children     4     3     1     0\n"
            "root\n"
            "├─ 0\n"
            "│  ├─ 0\n"
            "│  │  └─ 0\n"
            "│  └─ 1..2\n"
            "├─ 1..2\n"
            "└─ 3\n"
            "   └─ 0\n");
}

TEST(DrawTest, RootAlone) {
  EXPECT_EQ(Draw(Topology()),
            "0 drafted nodes and the root, depth 0, 0 leaves, at most 0 children per node\n"
            "depth            0\n"
            "nodes            1\n"
            "max children     0\n"
            "root\n");
}

}  // namespace
}  // namespace hydrant::tree::draw_test
