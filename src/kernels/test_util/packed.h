// SPDX-License-Identifier: Apache-2.0
// What the tests of low-bit matmuls share: packed weights and activation codes for any kernel table, in memory that
// ends where a page that cannot be read begins, so that a kernel that reads past its arguments dies.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu_features.h"
#include "kernels/kernels.h"
#include "kernels/packed.h"
#include "kernels/targets.h"
#include "kernels/test_util/row_block.h"

namespace hydrant::kernels {

// `size` values whose end is a page's end. Aligned to 64 bytes where their bytes are a multiple of 64.
template <typename T>
class GuardedArray {
 public:
  explicit GuardedArray(int64_t size) : size_(size) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t bytes = static_cast<size_t>(size) * sizeof(T);
    pages_ = (bytes + page - 1) / page * page;
    memory_ = mmap(nullptr, pages_ + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED) throw std::bad_alloc();
    mapped_ = pages_ + page;
    if (mprotect(static_cast<char*>(memory_) + pages_, page, PROT_NONE) != 0) throw std::bad_alloc();
    data_ = reinterpret_cast<T*>(static_cast<char*>(memory_) + (pages_ - bytes));
  }
  ~GuardedArray() { munmap(memory_, mapped_); }
  GuardedArray(const GuardedArray&) = delete;
  GuardedArray& operator=(const GuardedArray&) = delete;

  T* data() { return data_; }
  const T* data() const { return data_; }
  int64_t size() const { return size_; }
  T& operator[](int64_t i) { return data_[i]; }
  const T& operator[](int64_t i) const { return data_[i]; }

 private:
  int64_t size_;
  size_t pages_ = 0, mapped_ = 0;
  void* memory_ = nullptr;
  T* data_ = nullptr;
};

// AvailableKernels, and also the forms of avx2's and avx512's packed matmul that this machine would not choose.
inline std::vector<const KernelTable*> PackedKernels() {
  std::vector<const KernelTable*> tables = AvailableKernels();
#if defined(__x86_64__)
  const CpuFeatures& cpu = DetectCpuFeatures();
  const auto named = [](KernelTable table, const char* name) {
    table.name = name;
    return table;
  };
  if (cpu.avx2) {
    static const KernelTable table = named(kAvx2[!cpu.reads_in_turns], "avx2, the other way");
    tables.push_back(&table);
  }
  if (cpu.avx512) {
    static const KernelTable table = named(kAvx512[!cpu.reads_in_turns][cpu.slow_bf16_dots], "avx512, the other way");
    tables.push_back(&table);
  }
#endif
  return tables;
}

// kExtreme: at random, the largest magnitude of either sign. kLargest: values whose sum is largest: 127, or -128 in low
// planes.
enum class Values : uint8_t { kRandom, kExtreme, kLargest };

// One of lowest .. 127.
inline int32_t DrawValue(std::mt19937& random, Values values, int32_t lowest) {
  if (values == Values::kLargest) return lowest == -128 ? lowest : 127;
  if (values == Values::kExtreme) return random() % 2 == 0 ? lowest : 127;
  return lowest + static_cast<int32_t>(random() % static_cast<uint32_t>(128 - lowest));
}

// A packed matrix of random weights, padding included: padded inputs meet codes of 0, padded outputs are dropped. Two
// outputs have the same tables.
class TestPackedMatrix {
 public:
  TestPackedMatrix(PackedType type, int64_t outputs, int64_t inputs, uint32_t seed, Values values = Values::kRandom)
      : matrix_{.type = type, .outputs = outputs, .inputs = inputs},
        row_scales_(matrix_.num_panels() * kPanelOutputs),
        panels_(matrix_.num_panels() * matrix_.panel_bytes()),
        dictionary_(kNumTables * kTableEntries) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> scale(1e-3F, 1e-2F);
    for (int64_t o = 0; o < row_scales_.size(); ++o) row_scales_[o] = o < outputs ? scale(random) : 0.0F;
    const auto weight = [&] { return static_cast<uint8_t>(DrawValue(random, values, -127) + 128); };
    for (int64_t i = 0; i < dictionary_.size(); ++i) dictionary_[i] = weight();
    for (int64_t i = 0; i < panels_.size(); ++i)
      panels_[i] = matrix_.is_4_bit() ? static_cast<uint8_t>(random()) : weight();
    if (type == PackedType::kW4) ShareTables();
    matrix_.row_scales = row_scales_.data();
    matrix_.panels = panels_.data();
    matrix_.dictionary = matrix_.is_4_bit() ? dictionary_.data() : nullptr;
  }

  const PackedMatrix& matrix() const { return matrix_; }
  float row_scale(int64_t output) const { return row_scales_[output]; }

  // A weight as packed.h describes it.
  int32_t At(int64_t output, int64_t input) const {
    const uint8_t* panel = matrix_.panels + output / kPanelOutputs * matrix_.panel_bytes();
    const uint8_t* codes = panel + matrix_.code_offset();
    const int64_t o = output % kPanelOutputs, step = input / kStepInputs, half = input % kStepInputs / kGroupInputs;
    const int64_t place = input % kGroupInputs;
    if (matrix_.type == PackedType::kW8)
      return codes[((step * 2 + half) * kPanelOutputs + o) * kLineBytes + place] - 128;
    if (matrix_.type == PackedType::kQuads) return codes[(input / 4 * kPanelOutputs + o) * 4 + input % 4] - 128;
    if (matrix_.type == PackedType::kOctets) {
      const uint8_t table = panel[(2 * step + half) * 8 + o / 2];
      const uint8_t byte = codes[(input / 16 * kPanelOutputs + o) * 8 + input % 8];
      return dictionary_[table * kTableEntries + (input % 16 < 8 ? byte & 15 : byte >> 4)] - 128;
    }
    const uint8_t* two_steps = panel + step / 2 * 33 * kLineBytes;
    const uint8_t line = two_steps[(1 + step % 2 * kPanelOutputs + o) * kLineBytes + place];
    const uint8_t table = two_steps[(step % 2 * kPanelOutputs + o) * 2 + half];
    return dictionary_[table * kTableEntries + (half == 0 ? line & 15 : line >> 4)] - 128;
  }

 private:
  void ShareTables() {
    for (int64_t p = 0; p < matrix_.num_panels(); ++p) {
      for (int64_t step = 0; step < matrix_.steps(); ++step) {
        const int64_t tables = p * matrix_.panel_bytes() + step / 2 * 33 * kLineBytes + step % 2 * 2 * kPanelOutputs;
        for (int64_t i = tables; i < tables + 2 * kPanelOutputs; i += 4) {
          panels_[i + 2] = panels_[i];
          panels_[i + 3] = panels_[i + 1];
        }
      }
    }
  }

  PackedMatrix matrix_;
  GuardedArray<float> row_scales_;
  GuardedArray<uint8_t> panels_, dictionary_;
};

// Codes of activation rows as plain rows, and packed for one table.
class TestCodes {
 public:
  TestCodes(int64_t code_rows, int64_t inputs, bool two_planes, uint32_t seed, Values values = Values::kRandom)
      : code_rows_(code_rows),
        padded_((inputs + kStepInputs - 1) / kStepInputs * kStepInputs),
        two_planes_(two_planes),
        codes_(static_cast<size_t>(code_rows * padded_)) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> scale(1e-3F, 1e-2F);
    for (int64_t r = 0; r < code_rows; ++r) {
      const int32_t lowest = two_planes && r % 2 == 1 ? -128 : -127;
      for (int64_t i = 0; i < inputs; ++i) {
        codes_[static_cast<size_t>(r * padded_ + i)] = static_cast<int8_t>(DrawValue(random, values, lowest));
      }
    }
    std::mt19937 other(seed + 1);  // the first rows are the same for any number of rows
    for (int64_t r = 0; r < rows(); ++r) scales_.push_back(scale(other));
  }

  int64_t code_rows() const { return code_rows_; }
  int64_t rows() const { return two_planes_ ? code_rows_ / 2 : code_rows_; }
  bool two_planes() const { return two_planes_; }
  int8_t At(int64_t code_row, int64_t input) const { return codes_[static_cast<size_t>(code_row * padded_ + input)]; }
  float scale(int64_t row) const { return scales_[static_cast<size_t>(row)]; }

  // The blocks that `table` plans. Quads past a block's rows hold rubbish, as the contract allows.
  void PackFor(const KernelTable& table) {
    int64_t sizes[kMaxCodeRows] = {};
    const int64_t num_blocks = table.plan_row_blocks(code_rows_, sizes);
    blocks_.clear();
    memory_.clear();
    excess_.clear();
    int64_t first = 0;
    for (int64_t b = 0; b < num_blocks; ++b) {
      const int64_t rows = sizes[b];
      RowBlock block{first, rows, nullptr};
      memory_.push_back(std::make_unique<GuardedArray<int8_t>>(padded_ / kGroupInputs * table.BlockBytes(block)));
      int8_t* to = memory_.back()->data();
      std::memset(to, 0x5a, static_cast<size_t>(memory_.back()->size()));
      for (int64_t r = 0; r < rows; ++r) {
        uint32_t excess = 0;
        for (int64_t i = 0; i < padded_; ++i) {
          SetCode(table, block, r, i, At(first + r, i), to);
          excess += ExcessOf(table, At(first + r, i));
        }
        excess_.push_back(static_cast<int32_t>(excess));
      }
      block.codes = to;
      blocks_.push_back(block);
      first += rows;
    }
    ASSERT_EQ(first, code_rows_) << table.name << ": plan_row_blocks loses rows";
  }

  // Arguments for the table of the last PackFor. Bias, out, out_stride and add are left to the caller.
  PackedMatmulArgs Args(const PackedMatrix& matrix) const {
    PackedMatmulArgs args;
    args.type = matrix.type;
    args.panels = matrix.panels;
    args.panel_bytes = matrix.panel_bytes();
    args.code_offset = matrix.code_offset();
    args.steps = matrix.steps();
    args.outputs = matrix.outputs;
    args.row_scales = matrix.row_scales;
    args.dictionary = matrix.dictionary;
    args.blocks = blocks_.data();
    args.num_blocks = static_cast<int64_t>(blocks_.size());
    args.code_rows = code_rows_;
    args.two_planes = two_planes_;
    args.scales = scales_.data();
    args.excess = excess_.data();
    return args;
  }

 private:
  int64_t code_rows_, padded_;
  bool two_planes_;
  std::vector<int8_t> codes_;  // [code_rows][padded]
  std::vector<float> scales_;
  std::vector<int32_t> excess_;
  std::vector<RowBlock> blocks_;
  std::vector<std::unique_ptr<GuardedArray<int8_t>>> memory_;
};

}  // namespace hydrant::kernels
