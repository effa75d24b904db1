// SPDX-License-Identifier: Apache-2.0
#include "eval/plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace hydrant::eval {
namespace {

constexpr double kWidth = 800, kPanelHeight = 260;
constexpr double kLeft = 64, kRight = 130, kTop = 34, kBottom = 44;  // margins of a panel
constexpr std::array<const char*, 6> kColors = {"#1f6fd0", "#c4501b", "#2a8a4a", "#8a4fbf", "#b08900", "#5f6b76"};
constexpr std::array<const char*, 6> kDashes = {"", "7 4", "2 3", "10 3 2 3", "5 2", "1 4"};

struct Range {
  double low = 0, high = 0;

  void Widen() {
    if (low < high) return;
    const double by = low == 0 ? 1 : std::abs(low) / 10;
    low -= by;
    high += by;
  }
  double Share(double value) const { return (value - low) / (high - low); }
};

bool IsFinite(const std::pair<double, double>& point) {
  return std::isfinite(point.first) && std::isfinite(point.second);
}

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4g", value);
  return text;
}

std::string Place(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f", value);
  return text;
}

std::string Escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '&') {
      out += "&amp;";
    } else {
      out += c;
    }
  }
  return out;
}

class PanelDrawer {
 public:
  PanelDrawer(const Panel& panel, double top) : panel_(panel), top_(top) {
    bool is_first = true;
    for (const Curve& curve : panel.curves) {
      for (const auto& point : curve.points) {
        if (!IsFinite(point)) continue;
        if (is_first) {
          x_ = {point.first, point.first};
          y_ = {point.second, point.second};
          is_first = false;
        }
        x_ = {std::min(x_.low, point.first), std::max(x_.high, point.first)};
        y_ = {std::min(y_.low, point.second), std::max(y_.high, point.second)};
      }
    }
    is_empty_ = is_first;
    x_.Widen();
    y_.Widen();
  }

  bool is_empty() const { return is_empty_; }

  std::string Draw() const {
    std::string svg = Text(kLeft, top_ + 20, "start", panel_.title, "title");
    DrawTicks(svg);
    svg += Text((kLeft + kWidth - kRight) / 2, top_ + kPanelHeight - 8, "middle", panel_.x_label, "");
    for (size_t i = 0; i < panel_.curves.size(); ++i) DrawCurve(i, svg);
    return svg;
  }

 private:
  double PlaceX(double x) const { return kLeft + x_.Share(x) * (kWidth - kLeft - kRight); }
  double PlaceY(double y) const {
    return top_ + kPanelHeight - kBottom - y_.Share(y) * (kPanelHeight - kTop - kBottom);
  }

  static std::string Text(double x, double y, const char* anchor, const std::string& text, const std::string& kind) {
    return "<text x=\"" + Place(x) + "\" y=\"" + Place(y) + "\" text-anchor=\"" + anchor + "\" class=\"" + kind +
           "\">" + Escaped(text) + "</text>\n";
  }

  void DrawTicks(std::string& svg) const {
    constexpr int kTicksX = 7, kTicksY = 5;
    for (const double y : RoundTicks(y_.low, y_.high, kTicksY)) {
      svg += "<path class=\"grid\" d=\"M" + Place(kLeft) + " " + Place(PlaceY(y)) + "H" + Place(kWidth - kRight) +
             "\"/>\n" + Text(kLeft - 8, PlaceY(y) + 4, "end", Number(y), "");
    }
    for (const double x : RoundTicks(x_.low, x_.high, kTicksX)) {
      svg += Text(PlaceX(x), top_ + kPanelHeight - kBottom + 18, "middle", Number(x), "");
    }
  }

  void DrawCurve(size_t index, std::string& svg) const {
    const Curve& curve = panel_.curves[index];
    std::string path;
    double last_x = 0, last_y = 0;
    for (const auto& point : curve.points) {
      if (!IsFinite(point)) continue;
      last_x = PlaceX(point.first);
      last_y = PlaceY(point.second);
      path += (path.empty() ? "M" : "L") + Place(last_x) + " " + Place(last_y);
    }
    if (path.empty()) return;
    const size_t style = index % kColors.size();
    if (path.find('L') == std::string::npos) {
      svg += "<circle r=\"2.5\" fill=\"" + std::string(kColors[style]) + "\" cx=\"" + Place(last_x) + "\" cy=\"" +
             Place(last_y) + "\"/>\n";
    }
    svg += "<path fill=\"none\" stroke-width=\"1.8\" stroke=\"" + std::string(kColors[style]) +
           "\" stroke-dasharray=\"" + kDashes[style] + "\" d=\"" + path + "\"/>\n";
    svg += Text(last_x + 6, last_y + 4, "start", curve.name, "");
  }

  const Panel& panel_;
  double top_;
  Range x_, y_;
  bool is_empty_ = true;
};

}  // namespace

std::vector<double> RoundTicks(double low, double high, int count) {
  const double raw = (high - low) / std::max(1, count);
  const double power = std::pow(10, std::floor(std::log10(raw)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0}) {
    if (factor * power >= raw) step = factor * power;
  }
  std::vector<double> ticks;
  for (double i = std::ceil(low / step); i * step <= high; ++i) ticks.push_back(i * step);
  return ticks;
}

std::string SvgOf(std::span<const Panel> panels) {
  std::string body;
  double top = 0;
  for (const Panel& panel : panels) {
    const PanelDrawer drawer(panel, top);
    if (drawer.is_empty()) continue;
    body += drawer.Draw();
    top += kPanelHeight;
  }
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + Place(kWidth) + " " + Place(std::max(top, 1.0)) +
         "\" font-family=\"sans-serif\" font-size=\"12\">\n<style>text{fill:#222}.title{font-weight:bold}"
         ".grid{stroke:#ccc;stroke-width:.6}svg{background:#fff}"
         "@media(prefers-color-scheme:dark){text{fill:#ddd}.grid{stroke:#444}svg{background:#15181c}}</style>\n" +
         body + "</svg>\n";
}

}  // namespace hydrant::eval
