// SPDX-License-Identifier: Apache-2.0
#include "cli/flags/default_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "hydrant/error.h"
#include "tests/test_data.h"

namespace hydrant::cli::default_model_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// For a program in `bin`, of models in `place`.
void ExpectFound(const std::string& bin, const std::string& place) {
  const test::TempDir dir;
  const fs::path root(dir.path()), models = root / place;
  fs::create_directories(root / bin);
  fs::create_directories(models / "tale-14m");
  dir.Write(place + "/tale-14m/config.json", "{}");
  const DefaultModel found = FindDefaultModel((root / bin).string());
  EXPECT_EQ(fs::weakly_canonical(found.model), fs::weakly_canonical(models / "tale-14m")) << place;
  EXPECT_EQ(fs::path(found.draft).filename(), "tale-14m-hydra-pp");
}

TEST(DefaultModelTest, TheEmbeddedModelIsFoundWhereAProgramAndItsModelsMayLie) {
  ExpectFound("build", "models");
  ExpectFound("build/release", "models");
  ExpectFound("usr/bin", "usr/share/hydrant/models");
  ExpectFound("x", "x/share/hydrant/models");
  ExpectFound("x", "x/models");
  ExpectFound("x", "x");
}

TEST(DefaultModelTest, WhereItIsNotThePlacesAreNamed) {
  const test::TempDir dir;
  try {
    FindDefaultModel(dir.path());
    ADD_FAILURE();
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr(dir.path() + "/models"));
    EXPECT_THAT(error.what(), HasSubstr("share/hydrant/models"));
  }
}

}  // namespace
}  // namespace hydrant::cli::default_model_test
