// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "hydrant/error.h"
#include "kernels/cpu_features.h"
#include "kernels/kernels.h"

namespace hydrant::kernels::dispatch_test {
namespace {

using testing::HasSubstr;

class DispatchTest : public testing::Test {
 protected:
  // The variable must not leak into other tests of this process.
  void SetUp() override {
    const char* value = std::getenv("HYDRANT_CPU_TARGET");
    if (value != nullptr) before_ = value;
    unsetenv("HYDRANT_CPU_TARGET");
  }
  void TearDown() override {
    if (before_.empty()) {
      unsetenv("HYDRANT_CPU_TARGET");
    } else {
      setenv("HYDRANT_CPU_TARGET", before_.c_str(), 1);
    }
  }

 private:
  std::string before_;
};

template <typename Fn>
UserError Caught(const Fn& fn) {
  try {
    fn();
  } catch (const UserError& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return UserError("");
}

TEST_F(DispatchTest, PortableIsAlwaysThereAndAutoIsTheBest) {
  const std::vector<const KernelTable*> tables = AvailableKernels();
  ASSERT_FALSE(tables.empty());
  EXPECT_EQ(tables.front(), &PortableKernels());
  const KernelTable* best = nullptr;
  for (const KernelTable* table : tables) {
    if (table->name != std::string("amx-twin")) best = table;
  }
  EXPECT_EQ(&KernelsFor("auto"), best);
  for (const KernelTable* table : tables) EXPECT_EQ(&KernelsFor(table->name), table);
  EXPECT_THAT(CpuTargetNames(),
              testing::ElementsAre("auto", "portable", "avx2", "avx-vnni", "avx512", "amx", "amx-twin"));
}

TEST_F(DispatchTest, AutoTakesTilesOfQuadsForSmallModels) {
  const KernelTable& best = KernelsFor("auto");
  const bool tiles = best.name == std::string("amx");
  EXPECT_STREQ(KernelsForModel("auto", 256).name, tiles ? "amx-quads" : best.name);
  EXPECT_STREQ(KernelsForModel("auto", 256).target, best.name) << "users do not see the difference";
  EXPECT_EQ(&KernelsForModel("auto", 4096), &best);
  for (const KernelTable* table : AvailableKernels()) {
    EXPECT_EQ(&KernelsForModel(table->name, 256), table);
    setenv("HYDRANT_CPU_TARGET", table->name, 1);
    EXPECT_EQ(&KernelsForModel("auto", 256), table);
    unsetenv("HYDRANT_CPU_TARGET");
  }
}

TEST_F(DispatchTest, TheVariableDecidesForAutoOnly) {
  setenv("HYDRANT_CPU_TARGET", "portable", 1);
  EXPECT_EQ(&KernelsFor("auto"), &PortableKernels());
  EXPECT_EQ(&KernelsFor(AvailableKernels().back()->name), AvailableKernels().back());
  setenv("HYDRANT_CPU_TARGET", "avx1024", 1);
  EXPECT_THAT(Caught([] { KernelsFor("auto"); }).what(), HasSubstr("HYDRANT_CPU_TARGET 'avx1024' is unknown"));
}

TEST_F(DispatchTest, UnknownNamesAreRefusedWithTheNearest) {
  const UserError error = Caught([] { KernelsFor("avx-512"); });
  EXPECT_THAT(error.what(), HasSubstr("EngineOptions::cpu_target 'avx-512' is unknown"));
  for (const std::string_view name : CpuTargetNames()) EXPECT_THAT(error.what(), HasSubstr(std::string(name)));
  EXPECT_THAT(error.hint(), HasSubstr("avx512"));
}

void ExpectPresentOrRefused(const char* name, bool present) {
  if (present) {
    EXPECT_STREQ(KernelsFor(name).name, name);
  } else {
    EXPECT_THAT(Caught([&] { KernelsFor(name); }).what(),
                testing::AnyOf(HasSubstr("not supported by this machine"), HasSubstr("not compiled into")));
  }
}

TEST_F(DispatchTest, TargetsThatTheMachineLacksAreRefusedAsSuch) {
  ExpectPresentOrRefused("avx2", DetectCpuFeatures().avx2);
  ExpectPresentOrRefused("avx-vnni", DetectCpuFeatures().avx_vnni);
  ExpectPresentOrRefused("avx512", DetectCpuFeatures().avx512);
  ExpectPresentOrRefused("amx-quads", DetectCpuFeatures().amx);
  ExpectPresentOrRefused("amx", DetectCpuFeatures().amx);
}

TEST_F(DispatchTest, TheAmxTwinRunsEverywhereButIsNeverChosen) {
  EXPECT_STREQ(KernelsFor("amx-twin").name, "amx-twin");
  EXPECT_STRNE(KernelsFor("auto").name, "amx-twin");
  EXPECT_TRUE(KernelsFor("amx-twin").quad_codes);
  EXPECT_TRUE(KernelsFor("amx-twin").multiplies_by_tiles);
}

}  // namespace
}  // namespace hydrant::kernels::dispatch_test
