// SPDX-License-Identifier: Apache-2.0
#include "train/recipe.h"

#include <algorithm>

#include "base/nearest.h"
#include "hydrant/error.h"

namespace hydrant::train {
namespace {

// Medusa-1 in the Medusa paper, section 3 and appendix: hard labels, 0.8^i.
Recipe Medusa() {
  Recipe recipe;
  recipe.name = "medusa-1";
  recipe.head_decay = 0.8;
  return recipe;
}

// The Hydra paper, section 5 and appendix A: hard labels, all heads alike, one epoch.
Recipe Hydra() {
  Recipe recipe;
  recipe.name = "hydra";
  return recipe;
}

// The same for Hydra++: the base's distribution as the only target, ten epochs.
Recipe HydraPlusPlus() {
  Recipe recipe;
  recipe.name = "hydra++";
  recipe.label_weight = 0;
  recipe.teacher_weight = 1;
  recipe.dropout = 0.2;
  recipe.weight_decay = 0.1;
  recipe.final_factor = 0.33;
  recipe.epochs = 10;
  return recipe;
}

// As the repository's scripts run it.
Recipe HydraPlusPlusRepo() {
  Recipe recipe = HydraPlusPlus();
  recipe.name = "hydra++-repo";
  recipe.peak_rate = 5e-4;
  return recipe;
}

struct Entry {
  std::string_view name;
  Recipe (*make)();
};
constexpr Entry kRecipes[] = {
    {"medusa-1", Medusa}, {"hydra", Hydra}, {"hydra++", HydraPlusPlus}, {"hydra++-repo", HydraPlusPlusRepo}};

}  // namespace

std::vector<std::string_view> RecipeNames() {
  std::vector<std::string_view> names;
  for (const Entry& entry : kRecipes) names.push_back(entry.name);
  return names;
}

Recipe RecipeNamed(std::string_view name) {
  const auto* found = std::ranges::find(kRecipes, name, &Entry::name);
  if (found != std::end(kRecipes)) return found->make();
  const std::string nearest = base::Nearest(name, RecipeNames());
  throw UserError(
      "there is no recipe '" + std::string(name) + "'",
      nearest.empty() ? "recipes: medusa-1, hydra, hydra++, hydra++-repo" : "did you mean '" + nearest + "'?");
}

Recipe UsualRecipe(std::string_view arch) { return RecipeNamed(arch == "medusa" ? "medusa-1" : arch); }

}  // namespace hydrant::train
