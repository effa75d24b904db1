// SPDX-License-Identifier: Apache-2.0
// The tile matmul in all its forms against the portable kernel, and the order of its buffer's stores and loads. What
// the tables offer is tested in matmul_packed_test.cc besides.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/amx/tiles_software.h"
#include "kernels/test_util/amx_matmul.h"
#if defined(__x86_64__)
#include "kernels/amx/entries.h"
#include "kernels/avx512/entries.h"
#include "kernels/test_util/amx_trap.h"
#endif
#include "kernels/cpu_features.h"
#include "kernels/portable/entries.h"
#include "kernels/test_util/packed.h"
#include "kernels/test_util/test_util.h"

namespace hydrant::kernels::amx_matmul_test {
namespace {

#include "kernels/amx/matmul_packed_stream_inl.h"
#include "kernels/amx/matmul_packed_sums_inl.h"

#include "kernels/amx/matmul_packed_inl.h"
#include "kernels/amx/matmul_packed_vectors_plain.h"
#include "kernels/amx/peak_inl.h"

std::vector<Form> Forms() {
  std::vector<Form> forms = {{"plain", PackedMatmulAmxTwin}};
#if defined(__x86_64__)
  if (DetectCpuFeatures().avx512) forms.push_back({"AVX-512 with tiles in software", PackedMatmulAmxTwinAvx512});
  if (DetectCpuFeatures().amx) forms.push_back({"AMX", PackedMatmulAmx});
#endif
  return forms;
}

void Check(PackedType type, int64_t code_rows, int64_t outputs, int64_t inputs, bool two_planes,
           const Options& options = {}, const std::vector<Form>& forms = Forms()) {
  CheckForms(KernelsFor("amx-twin"), forms, type, code_rows, outputs, inputs, two_planes, options);
}

TEST(AmxMatmulTest, EveryNumberOfRowsGivesThePortableBits) {
  for (const PackedType type : {PackedType::kW8, PackedType::kW4}) {
    for (int64_t rows = 1; rows <= kMaxCodeRows; ++rows) {
      Check(type, rows, 50, 192, false);
      if (rows % 2 == 0) Check(type, rows, 33, 129, true);
      if (HasFatalFailure()) return;
    }
  }
}

// 1 to 9 panels: ends of every length; 1 to 9 steps: buffers shorter and longer than what is expanded ahead; ranges of
// 1 to 6 panels.
TEST(AmxMatmulTest, EveryShapeGivesThePortableBits) {
  for (const PackedType type : {PackedType::kW8, PackedType::kW4}) {
    for (const int64_t outputs : {1, 15, 17, 32, 33, 64, 65, 80, 97, 112, 143}) {
      for (const int64_t inputs : {1, 64, 128, 129, 384, 385, 1100}) {
        for (const int64_t rows : {1, 2, 16, 17, 40}) {
          Check(type, rows, outputs, inputs, rows % 2 == 0, {rows == 17, rows != 16, 1 + inputs % 6});
          Check(type, rows, outputs, inputs, false);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// A panel that is longer than the prefetch distance, and one whose pair is not spread over the passes.
TEST(AmxMatmulTest, LongPanelsGiveThePortableBits) {
  for (const PackedType type : {PackedType::kW8, PackedType::kW4}) {
    for (const int64_t rows : {3, 70}) Check(type, rows, 70, 2000, false);
    Check(type, 35, 35, 40000, false);
  }
}

// Steps expanded in a ring: chunks with and without a short one at the end, one that a group of panels begins and
// another ends, two to four pairs of row blocks, the last of one block or two.
TEST(AmxMatmulTest, LongChunksGiveThePortableBits) {
  for (const int64_t rows : {33, 49, 65, 96, 100, 128}) {
    for (const int64_t steps : {4, 5, 7, 8, 11, 14}) {
      for (const int64_t outputs : {7, 32, 90}) {
        Check(PackedType::kW4, rows, outputs, steps * 128 - 5, false, {false, true, 3});
        if (HasFatalFailure()) return;
      }
    }
  }
}

// More panels than become outputs at once, with even and odd ends.
TEST(AmxMatmulTest, SeveralBatchesOfPanelsGiveThePortableBits) {
  for (const PackedType type : {PackedType::kW8, PackedType::kW4}) {
    for (const int64_t rows : {1, 20, 40, 70}) {
      const int64_t batch = (rows <= 64 && type == PackedType::kW4 ? 4 : 2) * kBatchGroups * kPanelOutputs;
      for (const int64_t outputs : {batch, batch + 1, 2 * batch + 40}) {
        Check(type, rows, outputs, 200, false, {false, rows != 20});
      }
      if (HasFatalFailure()) return;
    }
  }
}

// Of 5 panels of 600 inputs, in ranges of 4 and 1: four together, or two pairs, and a pair.
constexpr int64_t kCountedOutputs = 70, kCountedInputs = 600, kCountedSteps = 5;
Counts Planned(PackedType type, int64_t rows) {
  const int64_t blocks = (rows + 15) / 16;
  const bool four = type == PackedType::kW4 && blocks <= 4;
  const int64_t pairs = four ? 1 : 3;
  Counts counts{3 * kCountedSteps * 4 * blocks, 0};
  counts.loads = kCountedSteps * pairs * (blocks / 2 * 8 + blocks % 2 * 6);
  // A step's last row block is the next step's first.
  if (four) counts.loads += 10 * blocks * kCountedSteps + 4 * (blocks - 1) * (kCountedSteps - 1);
  if (blocks <= 2) return counts;
  const int64_t chunk_steps = type == PackedType::kW4 ? kLongChunkSteps : kChunkSteps;
  for (int64_t chunk = 1; chunk * chunk_steps < kCountedSteps; ++chunk) {
    const bool ended_with_one = chunk % 2 == 1 && blocks % 2 == 1;  // likewise of chunks and pairs of row blocks
    counts.loads += pairs * (2 * blocks - (ended_with_one ? 2 : 4));
  }
  return counts;
}

TEST(AmxMatmulTest, ProductsAndLoadsAreAsManyAsPlanned) {
  const std::vector<Form> forms = {{"counted tiles", TilePackedMatmul<CountedTiles, PlainVectors>}};
  for (const PackedType type : {PackedType::kW8, PackedType::kW4}) {
    for (const int64_t rows : {1, 16, 32, 40, 64, 80, 112, 128}) {
      counts_now = {};
      Check(type, rows, kCountedOutputs, kCountedInputs, false, {true, rows == 16, 4}, forms);
      if (HasFatalFailure()) return;
      EXPECT_EQ(counts_now.products, Planned(type, rows).products) << rows;
      EXPECT_EQ(counts_now.loads, Planned(type, rows).loads) << rows;
    }
  }
}

#if defined(__x86_64__)
TEST(AmxMatmulTest, TheTrappedInstructionsGiveThePortableBits) {
  if (DetectCpuFeatures().amx) GTEST_SKIP() << "this machine has AMX: nothing to trap";
  if (!DetectCpuFeatures().avx512) GTEST_SKIP() << "this machine has no AVX-512";
  const std::vector<Form> forms = {{"AMX, trapped", PackedMatmulAmx}};
  for (const PackedType type : {PackedType::kW8, PackedType::kW4}) {
    for (const int64_t rows : {1, 2, 15, 16, 18, 32, 40, 64, 128}) {
      const TileTrap trap;
      Check(type, rows, kCountedOutputs, kCountedInputs, rows == 18, {true, rows == 16, 4}, forms);
      if (HasFatalFailure()) return;
      EXPECT_EQ(trap.products(), Planned(type, rows).products) << rows;
      EXPECT_EQ(trap.loads(), Planned(type, rows).loads) << rows;
      EXPECT_FALSE(trap.configured());
    }
  }
  const TileTrap trap;
  const PeakResult result = kPeakAmx.loops[kPeakAmx.num_loops - 1].run(3);
  EXPECT_EQ(trap.products(), 12);
  EXPECT_EQ(result.sum, result.macs);
}
#endif

// Tiles that know when each line of the buffer was written: the time is the number of products and of expansions of
// four lines so far.
struct Clock {
  int64_t now = 0;
  int64_t first_step = 0;  // the call's first step has to wait
  const uint8_t* buffer = nullptr;
  std::vector<int64_t> written;
  int64_t loads = 0, nearest = 1 << 20;
};
Clock* clock_now = nullptr;

struct WatchedTiles : SoftwareTiles {
  template <int kTile>
  void LoadLines(const void* from, int64_t stride) {
    SoftwareTiles::LoadLines<kTile>(from, stride);
    const auto* first = static_cast<const uint8_t*>(from);
    if (clock_now->buffer == nullptr || first < clock_now->buffer ||
        first >= clock_now->buffer + clock_now->written.size()) {
      return;
    }
    ++clock_now->loads;
    for (int64_t line = 0; line < kTileRows; ++line) {
      const int64_t written = clock_now->written[static_cast<size_t>(first - clock_now->buffer + line * stride)];
      ASSERT_GE(written, 0) << "read before it was written";
      if (clock_now->now < clock_now->first_step) continue;
      clock_now->nearest = std::min(clock_now->nearest, clock_now->now - written);
    }
  }
  template <int kSum, int kA, int kB>
  void MultiplyU8S8() {
    SoftwareTiles::MultiplyU8S8<kSum, kA, kB>();
    ++clock_now->now;
  }
};

struct WatchedVectors : PlainVectors {
  template <int kLines>
  static void Expand(const uint8_t* lines, const uint8_t* tables, const uint8_t* dictionary, uint8_t* to) {
    PlainVectors::Expand<kLines>(lines, tables, dictionary, to);
    if (clock_now->buffer == nullptr) clock_now->buffer = to;  // the first line of all
    const int64_t now = clock_now->now++;
    for (int64_t line = 0; line < 2 * kLines; ++line) {
      clock_now->written[static_cast<size_t>(to - clock_now->buffer + line * kLineBytes)] = now;
    }
  }
};

// What waits for the first step's expansion is done after 24 of the clock.
TEST(AmxMatmulTest, TilesAreLoadedSomeTimeAfterTheyAreWritten) {
  for (const int64_t panels : {3, 7}) {  // go by two, by four
    for (const int64_t rows : {16, 32, 48, 64, 80}) {
      for (const int64_t inputs : {128, 384, 512, 1100}) {
        const TestPackedMatrix weight(PackedType::kW4, 16 * panels, inputs, 1);
        TestCodes codes(rows, inputs, false, 2);
        Clock clock;
        clock.first_step = 24;
        clock.written.assign(kRingSteps * 2 * kExpandedPanelBytes, -1);
        clock_now = &clock;
        const auto watched = [](const PackedMatmulArgs& args, int64_t begin, int64_t end) {
          TilePackedMatmul<WatchedTiles, WatchedVectors>(args, begin, end);
        };
        const std::vector<float> out = Product(KernelsFor("amx-twin"), watched, weight, codes, {});
        EXPECT_EQ(out, Product(PortableKernels(), PackedMatmulPortable, weight, codes, {}));
        EXPECT_GT(clock.loads, 0);
        // The last panel's lines, written last, are the nearest: a step begins with products by the first. By chunks
        // another step of the last pair of row blocks lies between, where there is one; by long chunks three of the
        // next first pair. Either may be one row block.
        const int64_t by_chunks = inputs >= 128 * kLongChunkSteps ? 27 : inputs == 384 ? 11 : 3;
        const int64_t by_two = rows == 16 ? 4 : rows == 32 ? 5 : by_chunks;
        EXPECT_GE(clock.nearest, panels < kFour || rows > 64 ? by_two : rows == 16 ? 10 : 7) << panels << " " << rows;
      }
    }
  }
}

TEST(AmxMatmulTest, CodesOfAnyNumberOfRowsBecomeQuads) {
  constexpr int64_t kStride = 192;
  std::vector<int8_t> lines(16 * kStride), tile(kTileBytes);
  for (size_t i = 0; i < lines.size(); ++i) lines[i] = static_cast<int8_t>(i * 37 % 255 - 127);
  for (const KernelTable* table : AvailableKernels()) {
    EXPECT_EQ(table->pack_quads != nullptr, table->quad_codes) << table->name;
    if (table->pack_quads == nullptr) continue;
    for (int64_t rows = 1; rows <= 16; ++rows) {
      GuardedArray<int8_t> own((rows - 1) * kStride + kLineBytes);
      std::copy_n(lines.begin(), own.size(), own.data());
      table->pack_quads(own.data(), kStride, rows, tile.data());
      for (int64_t i = 0; i < kLineBytes; ++i) {
        for (int64_t r = 0; r < rows; ++r) {
          ASSERT_EQ(tile[static_cast<size_t>(i / 4 * 64 + r * 4 + i % 4)], lines[static_cast<size_t>(r * kStride + i)])
              << table->name << " code " << i << " of row " << r << " of " << rows;
        }
      }
    }
  }
}

TEST(AmxMatmulTest, ThePeakLoopCountsItsProducts) {
  for (const int64_t rounds : {0, 1, 7}) {
    const PeakResult result = MultiplyTiles<SoftwareTiles>(rounds);
    EXPECT_EQ(result.macs, rounds * 4 * 16384);
    EXPECT_EQ(result.sum, result.macs);
  }
}

}  // namespace
}  // namespace hydrant::kernels::amx_matmul_test
