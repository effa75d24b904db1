// SPDX-License-Identifier: Apache-2.0
#include "train/recipe.h"

#include <algorithm>
#include <utility>

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

// The base's distribution as the only target, in place of the text.
Recipe TaughtBy(Recipe recipe, std::string name) {
  recipe.name = std::move(name);
  recipe.label_weight = 0;
  recipe.teacher_weight = 1;
  return recipe;
}

Recipe MedusaTeacher() { return TaughtBy(Medusa(), "medusa-teacher"); }
Recipe HydraTeacher() { return TaughtBy(Hydra(), "hydra-teacher"); }

// The same for Hydra++: the base's distribution as the only target, ten epochs.
Recipe HydraPlusPlus() {
  Recipe recipe = TaughtBy(Hydra(), "hydra++");
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

// SafeAILab/EAGLE, train/main.py: the base's distribution a tenth as much as the distance to its hidden states, and
// noise on those that are read ("std"). The schedule there is linear, and its clipping is by value.
Recipe EagleOne() {
  Recipe recipe;
  recipe.name = "eagle-1";
  recipe.label_weight = 0;
  recipe.teacher_weight = 0.1;
  recipe.reconstruction_weight = 1;
  recipe.text_noise = 0.2;
  recipe.peak_rate = 3e-5;
  recipe.warmup_steps = 2000;
  recipe.beta2 = 0.95;
  recipe.clip = 0.5;
  recipe.epochs = 20;
  recipe.num_passes = 1;
  return recipe;
}

// SafeAILab/EAGLE, traineagle3: seven passes over the layer's own outputs, 0.8^i, the base's distribution alone.
Recipe EagleThree() {
  Recipe recipe;
  recipe.name = "eagle-3";
  recipe.label_weight = 0;
  recipe.teacher_weight = 1;
  recipe.head_decay = 0.8;
  recipe.peak_rate = 5e-5;
  recipe.warmup_steps = 2000;
  recipe.beta2 = 0.95;
  recipe.clip = 0.5;
  recipe.epochs = 40;
  recipe.num_passes = 7;
  return recipe;
}

// apple/ml-recurrent-drafter, cmd/train.py: hard labels of five tokens.
Recipe Redrafter() {
  Recipe recipe;
  recipe.name = "redrafter";
  recipe.num_passes = 5;
  return recipe;
}

struct Entry {
  std::string_view name;
  Recipe (*make)();
};
constexpr Entry kRecipes[] = {{"medusa-1", Medusa},       {"medusa-teacher", MedusaTeacher},
                              {"hydra", Hydra},           {"hydra-teacher", HydraTeacher},
                              {"hydra++", HydraPlusPlus}, {"hydra++-repo", HydraPlusPlusRepo},
                              {"eagle-1", EagleOne},      {"eagle-3", EagleThree},
                              {"redrafter", Redrafter}};

}  // namespace

std::string Listed(const std::vector<std::string_view>& names) {
  std::string list;
  for (const std::string_view name : names) list += (list.empty() ? "" : ", ") + std::string(name);
  return list;
}

std::vector<std::string_view> RecipeNames() {
  std::vector<std::string_view> names;
  for (const Entry& entry : kRecipes) names.push_back(entry.name);
  return names;
}

Recipe RecipeNamed(std::string_view name) {
  const auto* found = std::ranges::find(kRecipes, name, &Entry::name);
  if (found != std::end(kRecipes)) return found->make();
  const std::string nearest = base::Nearest(name, RecipeNames());
  throw UserError("there is no recipe '" + std::string(name) + "'",
                  nearest.empty() ? "recipes: " + Listed(RecipeNames()) : "did you mean '" + nearest + "'?");
}

Recipe UsualRecipe(std::string_view arch) {
  if (arch == "medusa") return MedusaTeacher();
  if (arch == "hydra") return HydraTeacher();
  if (arch == "eagle") return EagleOne();
  if (arch == "eagle3") return EagleThree();
  return RecipeNamed(arch);
}

OptimizerRecipe JointRecipe() {
  OptimizerRecipe recipe;
  recipe.peak_rate = 5e-5;
  return recipe;
}

OptimizerRecipe BaseRecipe() {
  OptimizerRecipe recipe;
  recipe.peak_rate = 2e-3;
  recipe.warmup_steps = 100;
  recipe.final_factor = 0.1;
  recipe.beta2 = 0.95;
  recipe.weight_decay = 0.1;
  return recipe;
}

}  // namespace hydrant::train
