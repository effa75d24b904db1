// SPDX-License-Identifier: Apache-2.0
#include "cli/terminal/stream.h"

#include <string>
#include <string_view>

#include "cli/terminal/escape.h"
#include "cli/terminal/terminal.h"

namespace hydrant::cli {

bool UseColor(const RunOptions& options) {
  if (!options.show_drafts || options.color == ColorMode::kNever) return false;
  return options.color == ColorMode::kAlways || StdoutIsTerminal();
}

namespace {

// A model may write what a terminal would obey. Files and pipes get the text as it is.
std::string Shown(std::string_view text) { return StdoutIsTerminal() ? Escaped(text, "\n\t\r") : std::string(text); }

}  // namespace

GenerationResult StreamReply(Engine& engine, const GenerationRequest& request, bool color) {
  size_t printed = 0;  // bytes of the text
  GenerationResult result = engine.Generate(request, [&](const Emission& emission) {
    printed += emission.text.size();
    if (!color) {
      if (!emission.text.empty()) Print(Shown(emission.text));
    } else {
      std::string line;
      for (size_t i = 0; i < emission.token_text.size(); ++i) {
        const int32_t depth = i < emission.token_depth.size() ? emission.token_depth[i] : 0;
        line += ColoredByDepth(Shown(emission.token_text[i]), depth);
      }
      if (!line.empty()) Print(line);
    }
    return !Interrupted();
  });
  if (printed < result.text.size()) Print(Shown(result.text.substr(printed)));  // held back when Ctrl-C came
  if (!result.tree.problem.empty()) PrintWarnings({result.tree.problem});
  return result;
}

GenerationResult GenerateSilently(Engine& engine, const GenerationRequest& request) {
  GenerationResult result = engine.Generate(request, [](const Emission&) { return !Interrupted(); });
  if (!result.tree.problem.empty()) PrintWarnings({result.tree.problem});
  return result;
}

}  // namespace hydrant::cli
