// SPDX-License-Identifier: Apache-2.0
#include "load/memory_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hydrant::load::memory_words_test {
namespace {

using testing::HasSubstr;

constexpr uint64_t kGb = 1'000'000'000;

std::string Words(const FileError& error) { return std::string(error.what()) + "\n" + error.hint(); }

TEST(MemoryWordsTest, ARefusalSaysWhatIsNeededWhatIsFreeAndWhatToDo) {
  const Packing packing{.what = "vicuna",
                        .format = "w8a8",
                        .command = "hydrant convert ConvertOptions::weights FORMAT vicuna OUT",
                        .stays = 3 * kGb / 10};
  const model::PackNeed need{.bytes = 97 * kGb / 10, .settled_bytes = 93 * kGb / 10, .bytes_in_4_bits = 34 * kGb / 10};
  const base::FreeMemory little{.own = 71 * kGb / 10, .pages = 71 * kGb / 10, .limit = " (the cgroup's limit)"};
  EXPECT_EQ(Words(MemoryRefusal(packing, need, little)),
            "vicuna: needs 9.7 GB of memory in w8a8, and 7.1 GB are free (the cgroup's limit)\n"
            "'hydrant convert ConvertOptions::weights w4a8 vicuna OUT' once, then 3.7 GB");
  // It fits but for the matrix that is changed, or but for a ulimit, which files do not count in.
  const base::FreeMemory nearly{.own = 71 * kGb / 10, .pages = 20 * kGb, .limit = " (ulimit -v)"};
  EXPECT_THAT(Words(MemoryRefusal(packing, need, nearly)),
              HasSubstr("'hydrant convert ConvertOptions::weights w8a8 vicuna OUT' once, then 9.6 GB"));
  const base::FreeMemory nothing{.own = kGb, .pages = kGb, .limit = ""};
  EXPECT_THAT(Words(MemoryRefusal(packing, need, nothing)), HasSubstr("then 3.7 GB, which is more than is free too"));
}

TEST(MemoryWordsTest, WeightsInFilesGetAWarning) {
  EXPECT_THAT(PagingWarning("vicuna", 135 * kGb / 10, 71 * kGb / 10),
              HasSubstr("vicuna: the weights take 13.5 GB, and 7.1 GB of memory are free"));
}

}  // namespace
}  // namespace hydrant::load::memory_words_test
