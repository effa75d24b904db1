// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <string_view>

#include "base/json.h"
#include "cli/bench/bench.h"
#include "cli/bench/flags.h"
#include "cli/terminal/errors.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/terminal.h"
#include "eval/roofline.h"

namespace hydrant::cli {
namespace {

using base::Json;

constexpr const char* kDescription =
    "Measure what this machine reads from memory (GB/s, one thread and all, 4 KB and 2 MB pages) and multiplies "
    "(GMAC/s\n"
    "of each CPU target, one thread and all), in turn for some seconds: median, least and most. Every loop's count is\n"
    "checked.";

constexpr const char* kExamples =
    "Examples:\n"
    "  hydrant bench roofline\n"
    "  hydrant bench roofline --threads 2 --cpu-target avx512 --seconds 20 --json\n";

const char* NameOf(base::PageSize pages) { return pages == base::PageSize::kHuge ? "2 MB" : "4 KB"; }

Json RooflineJson(const eval::Roofline& roofline, int threads) {
  Json json = {{"threads", threads},
               {"buffer_bytes", roofline.buffer_bytes},
               {"huge_page_share", roofline.huge_share},
               {"rounds", roofline.rounds},
               {"read", Json::array()},
               {"multiply", Json::array()}};
  for (const eval::ReadRate& read : roofline.reads) {
    Json row = {{"threads", read.threads}, {"page_bytes", read.pages == base::PageSize::kHuge ? 2 << 20 : 4096}};
    PutSpread(row, "gb_s", read.gb_s);
    json["read"].push_back(std::move(row));
  }
  for (const eval::MultiplyRate& rate : roofline.multiplies) {
    Json row = {{"target", rate.table->name},
                {"type", eval::NameOf(rate.loop->type)},
                {"instruction", rate.loop->instruction},
                {"threads", rate.threads}};
    PutSpread(row, "gmac_s", rate.gmac_s);
    json["multiply"].push_back(std::move(row));
  }
  json["version"] = HYDRANT_VERSION;
  return json;
}

std::string RooflineText(const eval::Roofline& roofline) {
  std::string text = fmt::format("read GB/s{:24} threads   median      min      max\n", "");
  const auto numbers = [](int threads, const eval::Spread& spread) {
    return fmt::format("{:7} {:8.1f} {:8.1f} {:8.1f}\n", threads, spread.median, spread.min, spread.max);
  };
  for (const eval::ReadRate& read : roofline.reads) {
    text += fmt::format("  {:31} ", fmt::format("{} pages", NameOf(read.pages))) + numbers(read.threads, read.gb_s);
  }
  text += "multiply GMAC/s\n";
  for (const eval::MultiplyRate& rate : roofline.multiplies) {
    text += fmt::format("  {:9} {:5} {:15} ", rate.table->name, eval::NameOf(rate.loop->type), rate.loop->instruction) +
            numbers(rate.threads, rate.gmac_s);
  }
  return text + fmt::format("{} rounds over {} MB; {:.0f} % of the buffer for 2 MB pages lies in such pages.\n",
                            roofline.rounds, roofline.buffer_bytes >> 20, 100 * roofline.huge_share);
}

}  // namespace

int BenchRoofline(const std::vector<std::string>& args) {
  BenchOptions options{.seconds = 5};
  FlagSet flags("hydrant bench roofline", kDescription, kExamples);
  AddBenchFlags(flags, options, "the rounds");
  if (!flags.Parse(args)) return kExitOk;
  eval::RooflineOptions measure{.seconds = options.seconds};
  if (options.cpu_target == "auto") {
    for (const kernels::KernelTable* table : kernels::AvailableKernels()) {
      const std::string_view name = table->name;  // these have avx512's loops again, and amx's
      if (name != "amx-twin" && name != "amx-quads") measure.tables.push_back(table);
    }
  } else {
    measure.tables = {&kernels::KernelsFor(options.cpu_target)};
  }
  const std::unique_ptr<base::ThreadPool> pool = BenchPool(options);
  measure.pool = pool.get();
  Progress progress("measuring");
  measure.on_progress = [&progress](double share) {
    progress.Update(share);
    return !Interrupted();
  };
  const eval::Roofline roofline = eval::MeasureRoofline(measure);
  progress.Clear();
  if (roofline.rounds == 0) return InterruptedExit();
  Print(options.json ? base::DumpJson(RooflineJson(roofline, pool->num_threads())) + "\n" : RooflineText(roofline));
  return Interrupted() ? InterruptedExit() : kExitOk;
}

}  // namespace hydrant::cli
