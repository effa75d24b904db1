// SPDX-License-Identifier: Apache-2.0
#include "eval/plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace hydrant::eval::plot_test {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST(Plot, TicksAreRoundNumbersInTheRange) {
  EXPECT_THAT(RoundTicks(0, 1000, 5), ElementsAre(0, 200, 400, 600, 800, 1000));
  EXPECT_THAT(RoundTicks(2.3, 4.1, 4),
              ElementsAre(DoubleNear(2.5, 1e-9), DoubleNear(3, 1e-9), DoubleNear(3.5, 1e-9), DoubleNear(4, 1e-9)));
  EXPECT_THAT(RoundTicks(-0.01, 0.01, 2),
              ElementsAre(DoubleNear(-0.01, 1e-9), DoubleNear(0, 1e-9), DoubleNear(0.01, 1e-9)));
}

TEST(Plot, CurvesGoFromCornerToCorner) {
  const Panel panel{.title = "loss <1>", .x_label = "step", .curves = {{"a & b", {{0, 0}, {10, 5}}}}};
  const std::string svg = SvgOf(std::span(&panel, 1));
  EXPECT_THAT(svg, HasSubstr("M64.0 216.0L670.0 34.0"));
  EXPECT_THAT(svg, HasSubstr("loss &lt;1>"));
  EXPECT_THAT(svg, HasSubstr("a &amp; b"));
}

TEST(Plot, AFirstPointIsSeen) {
  const Panel panel{.title = "t", .x_label = "step", .curves = {{"one", {{5, 2}}}, {"two", {{5, 1}, {6, 3}}}}};
  const std::string svg = SvgOf(std::span(&panel, 1));
  EXPECT_THAT(svg, HasSubstr("<circle r=\"2.5\""));
  EXPECT_EQ(svg.find("<circle"), svg.rfind("<circle"));
}

TEST(Plot, WhatIsNoNumberIsLeftOut) {
  const Panel panels[] = {{.title = "nothing", .x_label = "", .curves = {{"a", {{0, NAN}}}, {"b", {}}}},
                          {.title = "one", .x_label = "", .curves = {{"a", {{1, 2}, {2, INFINITY}}}}}};
  const std::string svg = SvgOf(panels);
  EXPECT_THAT(svg, Not(HasSubstr("nothing")));
  EXPECT_THAT(svg, HasSubstr("one"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
}

}  // namespace
}  // namespace hydrant::eval::plot_test
