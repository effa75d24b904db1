// SPDX-License-Identifier: Apache-2.0
#include "train/fit/metrics.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

#include "base/atomic_file.h"
#include "base/json.h"
#include "eval/plot.h"
#include "hydrant/error.h"

namespace hydrant::train {
namespace {

using base::Json;

// The lines of the file that belong to steps up to `kept_steps`. A last line without its end was being written.
std::string KeptLines(const std::string& path, int64_t kept_steps) {
  std::ifstream file(path);
  std::string kept;
  for (std::string line; std::getline(file, line) && !file.eof();) {
    const Json parsed = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!parsed.is_object() || !parsed.contains("step") || !parsed["step"].is_number_integer()) continue;
    if (parsed["step"].get<int64_t>() <= kept_steps) kept += line + "\n";
  }
  return kept;
}

// Null for a line that is not one of a kind of heads.
Json LineOf(const std::string& line) {
  Json parsed = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object() || !parsed.contains("step") || !parsed.contains("arch")) return nullptr;
  return parsed;
}

// A line of held-out texts, not of a step.
bool IsMeasured(const Json& line) { return line.contains("tokens_per_step") && !line.contains("heads"); }

std::string Share(double value) {
  char text[16];
  std::snprintf(text, sizeof(text), "%.3f", value);
  return value < 1 ? std::string(text).substr(1) : text;
}

}  // namespace

Json MetricsOf(const StepFigures& figures) {
  Json heads = Json::array();
  for (const HeadSums& sums : figures.heads) {
    const double count = sums.count > 0 ? sums.count : 1;
    Json head = {{"labels", sums.count},
                 {"label_loss", sums.label_loss / count},
                 {"teacher_loss", sums.teacher_loss / count},
                 {"label_top", Json::array()},
                 {"base_top", Json::array()}};
    for (size_t k = 0; k < kTopRanks; ++k) {
      head["label_top"].push_back(sums.in_label[k] / count);
      head["base_top"].push_back(sums.in_teacher[k] / count);
    }
    heads.push_back(std::move(head));
  }
  return {{"loss", figures.loss},
          {"learning_rate", figures.rate},
          {"gradient_norm", figures.gradient_norm},
          {"heads", std::move(heads)}};
}

std::string WordsOf(const StepFigures& figures) {
  char loss[32];
  std::snprintf(loss, sizeof(loss), "loss %.3f, agreement", figures.loss);
  std::string words = loss;
  for (const HeadSums& sums : figures.heads) words += " " + Share(sums.count > 0 ? sums.in_teacher[0] / sums.count : 0);
  return words;
}

std::string PlotOf(const std::string& metrics_file) {
  std::vector<eval::Panel> panels;
  for (const char* title :
       {"loss", "agreement of head 1 with the base", "tokens per step, held-out text", "perplexity, held-out text"}) {
    panels.push_back({.title = title, .x_label = "step", .curves = {}});
  }
  const auto add = [](eval::Panel& panel, const std::string& name, double x, double y) {
    auto curve = std::ranges::find(panel.curves, name, &eval::Curve::name);
    if (curve == panel.curves.end()) curve = panel.curves.insert(curve, {.name = name, .points = {}});
    curve->points.emplace_back(x, y);
  };
  std::ifstream file(metrics_file);
  for (std::string line; std::getline(file, line);) {
    const Json parsed = LineOf(line);
    if (parsed.is_null()) continue;
    const auto step = parsed["step"].get<double>();
    const auto arch = parsed["arch"].get<std::string>();
    if (parsed.contains("loss")) add(panels[0], arch, step, parsed["loss"].get<double>());
    if (parsed.contains("heads")) add(panels[1], arch, step, parsed["heads"][0]["base_top"][0].get<double>());
    if (IsMeasured(parsed)) {
      add(panels[2], arch, step, parsed["tokens_per_step"].get<double>());
    }
    if (parsed.contains("perplexity")) add(panels[3], arch, step, parsed["perplexity"].get<double>());
  }
  std::erase_if(panels, [](const eval::Panel& panel) { return panel.curves.empty(); });
  return eval::SvgOf(panels);
}

Json BestOf(const std::string& metrics_file, const std::string& arch) {
  Json best;
  std::ifstream file(metrics_file);
  for (std::string line; std::getline(file, line);) {
    const Json parsed = LineOf(line);
    if (parsed.is_null() || !IsMeasured(parsed) || parsed["arch"] != arch) continue;
    if (best.is_null() || parsed["tokens_per_step"].get<double>() > best["tokens_per_step"].get<double>())
      best = parsed;
  }
  return best;
}

bool WasMeasured(const std::string& metrics_file, int64_t steps) {
  std::ifstream file(metrics_file);
  for (std::string line; std::getline(file, line);) {
    const Json parsed = LineOf(line);
    if (parsed.is_null() || parsed["step"] != steps || parsed.contains("loss")) continue;
    if (parsed.contains("tokens_per_step") || parsed.contains("perplexity")) return true;
  }
  return false;
}

MetricsFile::MetricsFile(const std::string& path, int64_t kept_steps) : path_(path) {
  const std::string kept = KeptLines(path, kept_steps);
  base::AtomicFile file(path);
  file.Write(kept.data(), kept.size());
  file.Keep();
  file_ = std::fopen(path.c_str(), "ab");
  if (file_ == nullptr) throw FileError(path, std::string("cannot be written: ") + std::strerror(errno));
}

MetricsFile::~MetricsFile() {
  if (file_ != nullptr) std::fclose(file_);
}

void MetricsFile::Add(const Json& line) {
  const std::string text = base::DumpJson(line) + "\n";
  if (std::fwrite(text.data(), 1, text.size(), file_) != text.size() || std::fflush(file_) != 0) {
    throw FileError(path_, std::string("cannot be written: ") + std::strerror(errno));
  }
}

}  // namespace hydrant::train
