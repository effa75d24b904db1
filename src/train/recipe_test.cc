// SPDX-License-Identifier: Apache-2.0
#include "train/recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hydrant/error.h"

namespace hydrant::train::recipe_test {
namespace {

TEST(RecipeTest, EveryNameIsThatOfARecipe) {
  for (const std::string_view name : RecipeNames()) EXPECT_EQ(RecipeNamed(name).name, name);
  EXPECT_THROW(RecipeNamed("hydra+"), UserError);
}

TEST(RecipeTest, HeadsLearnFromTheBaseUnlessTheirAuthorsRecipeIsNamed) {
  for (const char* arch : {"medusa", "hydra", "hydra++"}) {
    EXPECT_EQ(UsualRecipe(arch).label_weight, 0) << arch;
    EXPECT_EQ(UsualRecipe(arch).teacher_weight, 1) << arch;
  }
  for (const char* name : {"medusa-1", "hydra"}) {
    EXPECT_EQ(RecipeNamed(name).label_weight, 1) << name;
    EXPECT_EQ(RecipeNamed(name).teacher_weight, 0) << name;
  }
  EXPECT_EQ(UsualRecipe("medusa").head_decay, RecipeNamed("medusa-1").head_decay);
}

}  // namespace
}  // namespace hydrant::train::recipe_test
