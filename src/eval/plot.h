// SPDX-License-Identifier: Apache-2.0
// Curves as one SVG file that needs nothing else: for browsers on light and dark backgrounds, and readable in grey,
// since each curve has its own dashes and its name at its end.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

namespace hydrant::eval {

struct Curve {
  std::string name;
  std::vector<std::pair<double, double>> points;  // by x
};

struct Panel {
  std::string title, x_label;
  std::vector<Curve> curves;
};

// Panels below one another. Points that are not finite are left out; so are panels without points.
std::string SvgOf(std::span<const Panel> panels);

// Tick marks at round numbers, about `count` of them, that lie in [low, high]. low < high.
std::vector<double> RoundTicks(double low, double high, int count);

}  // namespace hydrant::eval
