// SPDX-License-Identifier: Apache-2.0
// Low-bit weights in memory and in converted files, in one of two layouts: lines, which most targets read, or
// interleaved. A mapped file in the layout of the machine's kernels is used as it lies. The reasons are in
// docs/algorithms/low_bit_weights.md.
//
// A matrix [O, I] is cut into panels of 16 outputs; O is padded to 16 and I to 128 with zeros. A *step* is 128 inputs
// of a panel, a *line* 64 bytes of one output, so that one vector register holds inputs of one output only.
//   w8 panel: codes [I / 128][2][16][64], a byte = weight + 128; weights -127 .. 127.
//   w4 panel: two steps after two: a line of tables [2][16][2], one byte for each output and group of 64 inputs, and
//             codes [2][16][64]: low nibbles = inputs 0 .. 63 of a step, high nibbles = 64 .. 127. An odd last step has
//             its tables, zeros and its codes. weight = dictionary[table][code] - 128; dictionary entries 1 .. 255.
// Interleaved, for targets whose table says so (KernelTable::reads_interleaved):
// Interleaved, for targets whose table says so (KernelTable::reads_interleaved):
//   quads panel, of w8: codes [I / 4][16][4], a byte = weight + 128. One vector instruction multiplies 16 outputs by
//             four inputs each, and nothing is left to add up at the end.
//   octets panel, of w4: tables [I / 64][8], zero-padded to whole lines; codes [I / 16][16][8]: low nibbles = inputs
//             0 .. 7 of 16, high = 8 .. 15. So a line is two matrices of 8 outputs by 8 inputs.
// Outputs 2 k and 2 k + 1 have the same tables: their codes are 16 bytes of a line of octets, which one vpshufb looks
// up in one table. Lines store each table number twice.
// The value of a weight is row_scales[o] * weight, for all.
#pragma once

#include <cstdint>

namespace hydrant::kernels {

inline constexpr int64_t kPanelOutputs = 16;
inline constexpr int64_t kStepInputs = 128;
inline constexpr int64_t kGroupInputs = 64;
inline constexpr int64_t kPanelPairs = kPanelOutputs / 2;  // of outputs that share their tables
inline constexpr int64_t kNumTables = 256;
inline constexpr int64_t kTableEntries = 16;
inline constexpr int64_t kLineBytes = 64;
// |sum| <= 127 * 127 * I must fit 32 bits, for the low plane of 16-bit activations 127 * 128 * I: refuse more at load.
inline constexpr int64_t kMaxPackedInputs = 131072;

// Rows of weights or of activations whose largest magnitude is below this are zero.
inline constexpr float kZeroRow = 1e-30F;

enum class PackedType : uint8_t { kW8, kW4, kQuads, kOctets };

enum class PackedLayout : uint8_t { kLines, kInterleaved };

// As `convert --layout` takes it.
inline constexpr const char* NameOf(PackedLayout layout) {
  return layout == PackedLayout::kLines ? "lines" : "interleaved";
}
inline constexpr PackedLayout LayoutOf(PackedType type) {
  return type >= PackedType::kQuads ? PackedLayout::kInterleaved : PackedLayout::kLines;
}
inline constexpr PackedType TypeIn(PackedLayout layout, bool is_4_bit) {
  if (layout == PackedLayout::kLines) return is_4_bit ? PackedType::kW4 : PackedType::kW8;
  return is_4_bit ? PackedType::kOctets : PackedType::kQuads;
}

// Where in a w4 panel the table numbers and the codes of a step begin. Always inlined: a copy in a target's object file
// could serve others.
inline constexpr int64_t kTwoStepsBytesW4 = (1 + 2 * kPanelOutputs) * kLineBytes;
[[gnu::always_inline]] inline constexpr int64_t TablesAtW4(int64_t step) {
  return step / 2 * kTwoStepsBytesW4 + step % 2 * 2 * kPanelOutputs;
}
[[gnu::always_inline]] inline constexpr int64_t CodesAtW4(int64_t step) {
  return step / 2 * kTwoStepsBytesW4 + kLineBytes + step % 2 * kPanelOutputs * kLineBytes;
}

struct PackedMatrix {
  PackedType type = PackedType::kW8;
  int64_t outputs = 0, inputs = 0;      // O, I: without padding
  const float* row_scales = nullptr;    // [num_panels * 16], 0 past O
  const uint8_t* panels = nullptr;      // [num_panels][panel_bytes], aligned to 64 bytes
  const uint8_t* dictionary = nullptr;  // w4: [256][16], aligned to 64 bytes

  int64_t num_panels() const { return (outputs + kPanelOutputs - 1) / kPanelOutputs; }
  int64_t steps() const { return (inputs + kStepInputs - 1) / kStepInputs; }
  int64_t padded_inputs() const { return steps() * kStepInputs; }
  bool is_4_bit() const { return type == PackedType::kW4 || type == PackedType::kOctets; }
  // Where an octets panel's codes begin: behind its table numbers.
  int64_t code_offset() const { return type == PackedType::kOctets ? table_lines() * kLineBytes : 0; }
  int64_t table_lines() const {
    if (type == PackedType::kOctets) return (steps() + 3) / 4;
    return type == PackedType::kW4 ? (steps() + 1) / 2 : 0;
  }
  int64_t panel_bytes() const { return (table_lines() + steps() * kPanelOutputs * (is_4_bit() ? 1 : 2)) * kLineBytes; }
  int64_t bytes() const { return num_panels() * (panel_bytes() + kPanelOutputs * 4); }
};

}  // namespace hydrant::kernels
