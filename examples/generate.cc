// SPDX-License-Identifier: Apache-2.0
// Generates text twice with the public API, plainly and with draft heads, and shows that both are the same.
// Usage: generate MODEL_DIR DRAFT_DIR [PROMPT]
#include <cstdio>
#include <exception>
#include <string>

#include "hydrant/engine.h"

namespace {

int Run(const std::string& model, const std::string& draft, const std::string& prompt) {
  hydrant::EngineOptions options;
  options.model = model;
  options.draft = draft;
  hydrant::Engine engine(options);

  hydrant::GenerationRequest request;
  request.prompt_ids = engine.Tokenize(prompt, /*parse_special=*/false, /*add_bos=*/true);
  request.stop.max_tokens = 64;

  request.use_drafter = false;
  const hydrant::GenerationResult plain = engine.Generate(request);
  request.use_drafter = true;
  const hydrant::GenerationResult drafted = engine.Generate(request, [](const hydrant::Emission& emission) {
    std::printf("%.*s", static_cast<int>(emission.text.size()), emission.text.data());
    return true;  // go on
  });

  const bool equal = plain.token_ids == drafted.token_ids;
  std::printf("\n\n%s, %s, tree %s on %s\n", engine.info().model_family.c_str(), engine.info().drafter.c_str(),
              drafted.tree.is_auto ? "auto" : drafted.tree.chosen.name.c_str(), engine.info().cpu_target.c_str());
  std::printf("%zu tokens, %.2f tokens per step (plain %.2f), text %s\n", drafted.token_ids.size(),
              drafted.tokens_per_step(), plain.tokens_per_step(), equal ? "equal" : "DIFFERENT");
  return equal ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) {
    std::fprintf(stderr, "usage: %s MODEL_DIR DRAFT_DIR [PROMPT]\n", argv[0]);
    return 2;
  }
  try {
    return Run(argv[1], argv[2], argc == 4 ? argv[3] : "Once upon a time there was a little hen who");
  } catch (const hydrant::UserError& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    if (!error.hint().empty()) std::fprintf(stderr, "hint:  %s\n", error.hint().c_str());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "internal error: %s\n", error.what());
    return 1;
  }
}
