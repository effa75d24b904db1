// SPDX-License-Identifier: Apache-2.0
#include "quant/pack.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/mapped_file.h"
#include "hydrant/error.h"
#include "quant/dictionary.h"
#include "quant/encode_row.h"
#include "quant/weight_memory.h"

namespace hydrant::quant {
namespace {

using kernels::CodesAtW4;
using kernels::kGroupInputs;
using kernels::kLineBytes;
using kernels::kPanelOutputs;
using kernels::kPanelPairs;
using kernels::kStepInputs;
using kernels::PackedMatrix;
using kernels::PackedType;
using kernels::TablesAtW4;

// One row as floats; every value is finite or refused.
void ReadRow(const FloatMatrix& matrix, int64_t row, std::vector<float>& out) {
  const int64_t stride = matrix.weight.shape[1];
  const auto count = static_cast<size_t>(matrix.inputs());
  out.resize(count);
  const uint8_t* from =
      matrix.weight.data + static_cast<size_t>(row * stride + matrix.first_input) * SizeOf(matrix.weight.dtype);
  if (matrix.weight.dtype == DType::kF32) {
    std::memcpy(out.data(), from, count * sizeof(float));
  } else {
    for (size_t i = 0; i < count; ++i) {
      uint16_t bits = 0;
      std::memcpy(&bits, from + 2 * i, 2);
      out[i] = matrix.weight.dtype == DType::kBF16 ? BFloat16ToFloat(bits) : Float16ToFloat(bits);
    }
  }
  bool finite = true;
  for (const float w : out) finite = finite && std::fabs(w) <= std::numeric_limits<float>::max();
  if (finite) return;
  const auto bad = std::find_if(out.begin(), out.end(), [](float w) { return !std::isfinite(w); });
  throw FileError(matrix.file, "tensor '" + matrix.name + "' has " + (std::isnan(*bad) ? "NaN" : "infinity") +
                                   " in row " + std::to_string(row) + ", column " +
                                   std::to_string(matrix.first_input + (bad - out.begin())) +
                                   ", expected finite weights");
}

// What one thread needs to pack panels.
class PanelPacker {
 public:
  PanelPacker(const FloatMatrix& source, const PackedMatrix& shape, uint8_t* panels, float* scales)
      : source_(&source), shape_(&shape), panels_(panels), scales_(scales) {}

  void Pack(int64_t panel) {
    std::memset(panels_ + panel * shape_->panel_bytes(), 0, static_cast<size_t>(shape_->panel_bytes()));
    for (int64_t o = panel * kPanelOutputs; o < (panel + 1) * kPanelOutputs; o += 2) {
      shape_->type == PackedType::kW8 ? PackPairW8(o) : PackPairW4(o);
    }
  }

 private:
  void ReadPair(int64_t output) {
    for (int64_t r = 0; r < 2; ++r) {
      std::vector<float>& row = rows_[static_cast<size_t>(r)];
      row.assign(static_cast<size_t>(shape_->inputs), 0.0F);  // past O: a row of zeros
      if (output + r < shape_->outputs) ReadRow(*source_, output + r, row);
    }
  }

  void PackPairW8(int64_t output) {
    ReadPair(output);
    for (const std::vector<float>& row : rows_) {
      codes_.resize(row.size());
      scales_[output] = EncodeRowW8(row, codes_.data());
      PlaceRowW8(*shape_, output++, codes_, panels_);
    }
  }

  void PackPairW4(int64_t output) {
    ReadPair(output);
    DefaultEncoderW4().Encode({rows_[0], rows_[1]}, pair_);
    for (size_t r = 0; r < rows_.size(); ++r, ++output) {
      scales_[output] = pair_.scales[r];
      PlaceRowW4(*shape_, output, pair_.tables, pair_.codes[r], panels_);
    }
  }

  const FloatMatrix* source_;
  const PackedMatrix* shape_;
  uint8_t* panels_;
  float* scales_;
  std::array<std::vector<float>, 2> rows_;
  std::vector<int8_t> codes_;
  RowPairW4 pair_;
};

int WeightW8(const uint8_t* panel, int64_t o, int64_t i) {
  const uint8_t* line = panel + (i / kLineBytes * kPanelOutputs + o) * kLineBytes;
  return line[i % kLineBytes] - 128;
}

int WeightW4(const PackedMatrix& m, const uint8_t* panel, int64_t o, int64_t i) {
  const int64_t step = i / kStepInputs, half = i % kStepInputs / kGroupInputs;
  const uint8_t pair = panel[CodesAtW4(step) + o * kLineBytes + i % kGroupInputs];
  const int code = half == 0 ? pair & 15 : pair >> 4;
  return m.dictionary[panel[TablesAtW4(step) + 2 * o + half] * kernels::kTableEntries + code] - 128;
}

int WeightQuads(const uint8_t* panel, int64_t o, int64_t i) {
  return panel[(i / 4 * kPanelOutputs + o) * 4 + i % 4] - 128;
}

// Where a weight's table number and code are in a panel of octets.
struct OctetPlace {
  int64_t table, code;
  int shift;
};

OctetPlace PlaceInOctets(const PackedMatrix& m, int64_t o, int64_t i) {
  return {.table = i / kGroupInputs * kPanelPairs + o / 2,
          .code = m.code_offset() + (i / 16 * kPanelOutputs + o) * 8 + i % 8,
          .shift = i % 16 < 8 ? 0 : 4};
}

int WeightOctets(const PackedMatrix& m, const uint8_t* panel, int64_t o, int64_t i) {
  const OctetPlace place = PlaceInOctets(m, o, i);
  return m.dictionary[panel[place.table] * kernels::kTableEntries + ((panel[place.code] >> place.shift) & 15)] - 128;
}

int WeightAt(const PackedMatrix& m, const uint8_t* panel, int64_t o, int64_t i) {
  switch (m.type) {
    case PackedType::kW8: return WeightW8(panel, o, i);
    case PackedType::kW4: return WeightW4(m, panel, o, i);
    case PackedType::kQuads: return WeightQuads(panel, o, i);
    case PackedType::kOctets: return WeightOctets(m, panel, o, i);
  }
  return 0;
}

// 16 lines of 64 inputs are 16 x 16 words of four bytes by output and quad, quads the same by quad and output: one
// transposes to the other.
void CopyPanelW8(const PackedMatrix& shape, const uint8_t* source, uint8_t* target) {
  static_assert(kLineBytes / 4 == kPanelOutputs);
  for (int64_t line = 0; line < shape.padded_inputs() / kLineBytes; ++line) {
    for (int64_t o = 0; o < kPanelOutputs; ++o) {
      for (int64_t quad = 0; quad < kPanelOutputs; ++quad, target += 4) {
        std::memcpy(target, source + (quad * kPanelOutputs + o) * 4, 4);
      }
    }
    source += kPanelOutputs * kLineBytes;
  }
}

// Regroups two words of eight nibble pairs: one word gets the lower nibbles of both, the other the upper ones. A line
// of w4 holds one output's codes of two groups, those of the first group in its lower nibbles: eight words of eight
// inputs each. A word of octets holds eight inputs in its lower nibbles and the next eight in its upper ones. So the
// same step turns either form into the other.
struct Words {
  uint64_t first, second;
};
Words SwapNibbles(Words words) {
  constexpr uint64_t kLower = 0x0f0f0f0f0f0f0f0f;
  return {(words.first & kLower) | (words.second & kLower) << 4,
          (words.first >> 4 & kLower) | (words.second & ~kLower)};
}

void CopyWords(const uint8_t* source, const std::array<int64_t, 2>& from, uint8_t* target,
               const std::array<int64_t, 2>& to) {
  Words words;
  std::memcpy(&words.first, source + from[0], sizeof(uint64_t));
  std::memcpy(&words.second, source + from[1], sizeof(uint64_t));
  words = SwapNibbles(words);
  std::memcpy(target + to[0], &words.first, sizeof(uint64_t));
  std::memcpy(target + to[1], &words.second, sizeof(uint64_t));
}

// Refuses w4 whose outputs in a pair have different tables: octets store one table number where lines store two.
void CheckPairs(const PackedWeight& weight, int64_t panel) {
  const PackedMatrix& m = weight.matrix;
  const uint8_t* lines = m.panels + panel * m.panel_bytes();
  for (int64_t step = 0; step < m.steps(); ++step) {
    for (int64_t o = 0; o < kPanelOutputs; o += 2) {
      const uint8_t* tables = lines + TablesAtW4(step) + 2 * o;
      if (std::equal(tables, tables + 2, tables + 2)) continue;
      const int64_t output = panel * kPanelOutputs + o;
      throw FileError(weight.file,
                      "tensor '" + weight.name + "' has different tables for rows " + std::to_string(output) + " and " +
                          std::to_string(output + 1) + ", expected the same (step " + std::to_string(step) + ")",
                      "convert the model again with 'hydrant convert'");
    }
  }
}

void CopyPanelW4(const PackedMatrix& lines, const PackedMatrix& octets, bool to_octets, const uint8_t* source,
                 uint8_t* target) {
  // Zeroes everything, also the table numbers of the padding behind the last step.
  std::memset(target, 0, static_cast<size_t>((to_octets ? octets : lines).panel_bytes()));
  for (int64_t line = 0; line < lines.steps() * kPanelOutputs; ++line) {
    const int64_t o = line % kPanelOutputs, step = line / kPanelOutputs, input = step * kStepInputs;
    const int64_t tables = TablesAtW4(step) + 2 * o, codes = CodesAtW4(step) + o * kLineBytes;
    const OctetPlace groups[] = {PlaceInOctets(octets, o, input), PlaceInOctets(octets, o, input + kGroupInputs)};
    for (int64_t g = 0; g < 2; ++g) {
      target[to_octets ? groups[g].table : tables + g] = source[to_octets ? tables + g : groups[g].table];
    }
    for (int64_t i = 0; i < 4; ++i) {
      const std::array<int64_t, 2> in_line = {codes + 16 * i, codes + 16 * i + 8};
      const std::array<int64_t, 2> in_octets = {groups[0].code + 8 * kPanelOutputs * i,
                                                groups[1].code + 8 * kPanelOutputs * i};
      to_octets ? CopyWords(source, in_line, target, in_octets) : CopyWords(source, in_octets, target, in_line);
    }
  }
}

}  // namespace

WeightFormat FormatFor(WeightFormat format, int64_t inputs) {
  if (inputs >= kStepInputs) return format;
  if (format == WeightFormat::kW4A8) return WeightFormat::kW8A8;
  return format == WeightFormat::kW4A16 ? WeightFormat::kW8A16 : format;
}

void PlaceRowW8(const PackedMatrix& shape, int64_t output, std::span<const int8_t> codes, uint8_t* panels) {
  uint8_t* panel = panels + output / kPanelOutputs * shape.panel_bytes();
  for (int64_t i = 0; i < shape.padded_inputs(); ++i) {
    const int code = i < shape.inputs ? codes[static_cast<size_t>(i)] : 0;
    panel[(i / kLineBytes * kPanelOutputs + output % kPanelOutputs) * kLineBytes + i % kLineBytes] =
        static_cast<uint8_t>(code + 128);
  }
}

void PlaceRowW4(const PackedMatrix& shape, int64_t output, std::span<const uint8_t> tables,
                std::span<const uint8_t> codes, uint8_t* panels) {
  uint8_t* panel = panels + output / kPanelOutputs * shape.panel_bytes();
  const int64_t row = output % kPanelOutputs;
  for (size_t g = 0; g < tables.size(); ++g) {
    const auto group = static_cast<int64_t>(g);
    panel[TablesAtW4(group / 2) + 2 * row + group % 2] = tables[g];
    uint8_t* line = panel + CodesAtW4(group / 2) + row * kLineBytes;
    const int64_t count = std::min(kGroupInputs, shape.inputs - group * kGroupInputs);
    for (int64_t i = 0; i < count; ++i) {
      const int code = codes[static_cast<size_t>(group * kGroupInputs + i)];
      line[i] = static_cast<uint8_t>(line[i] | (group % 2 == 0 ? code : code << 4));
    }
  }
}

std::shared_ptr<const PackedWeight> Pack(const FloatMatrix& matrix, WeightFormat format, base::ThreadPool& pool) {
  HYDRANT_CHECK(IsPacked(format) && matrix.weight.shape.size() == 2 && IsFloat(matrix.weight.dtype));
  if (matrix.inputs() > kernels::kMaxPackedInputs) {
    throw FileError(matrix.file,
                    "tensor '" + matrix.name + "' has " + std::to_string(matrix.inputs()) + " inputs, at most " +
                        std::to_string(kernels::kMaxPackedInputs) + " fit the 32-bit sums of " + NameOf(format),
                    "keep it in floats: EngineOptions::weights stored");
  }
  auto packed = std::make_shared<PackedWeight>();
  packed->format = FormatFor(format, matrix.inputs());
  PackedMatrix& shape = packed->matrix;
  shape.type = Is4Bit(packed->format) ? PackedType::kW4 : PackedType::kW8;
  shape.outputs = matrix.weight.shape[0];
  shape.inputs = matrix.inputs();
  const auto panel_bytes = static_cast<size_t>(shape.num_panels() * shape.panel_bytes());
  const std::shared_ptr<uint8_t> memory = AllocateWeights(static_cast<size_t>(shape.bytes()));
  auto* scales = reinterpret_cast<float*>(memory.get() + panel_bytes);
  shape.panels = memory.get();
  shape.row_scales = scales;
  if (shape.type == PackedType::kW4) shape.dictionary = DefaultDictionary();
  packed->owner = memory;
  pool.ParallelFor(shape.num_panels(), 1, [&](int64_t begin, int64_t end) {
    PanelPacker packer(matrix, shape, memory.get(), scales);
    for (int64_t panel = begin; panel < end; ++panel) packer.Pack(panel);
  });
  return packed;
}

std::shared_ptr<const PackedWeight> InLayout(const PackedWeight& weight, kernels::PackedLayout layout,
                                             base::ThreadPool& pool) {
  const PackedMatrix& from = weight.matrix;
  HYDRANT_CHECK(LayoutOf(from.type) != layout);
  auto moved = std::make_shared<PackedWeight>(weight);
  PackedMatrix& to = moved->matrix;
  to.type = TypeIn(layout, from.is_4_bit());
  const bool interleaves = layout == kernels::PackedLayout::kInterleaved;
  const auto panel_bytes = static_cast<size_t>(to.num_panels() * to.panel_bytes());
  const std::shared_ptr<uint8_t> memory = AllocateWeights(static_cast<size_t>(to.bytes()));
  pool.ParallelFor(to.num_panels(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const uint8_t* source = from.panels + p * from.panel_bytes();
      uint8_t* target = memory.get() + p * to.panel_bytes();
      if (from.type == PackedType::kW4) CheckPairs(weight, p);
      if (from.is_4_bit()) {
        CopyPanelW4(interleaves ? from : to, interleaves ? to : from, interleaves, source, target);
      } else {
        CopyPanelW8(to, source, target);
      }
    }
  });
  base::MappedFile::Release({from.panels, static_cast<size_t>(from.num_panels() * from.panel_bytes())});
  std::memcpy(memory.get() + panel_bytes, from.row_scales, static_cast<size_t>(to.num_panels() * kPanelOutputs) * 4);
  to.panels = memory.get();
  to.row_scales = reinterpret_cast<const float*>(memory.get() + panel_bytes);
  moved->owner = memory;
  if (to.is_4_bit() && from.dictionary != DefaultDictionary()) {  // the dictionary of a mapped file
    using Owners = std::pair<std::shared_ptr<const void>, std::shared_ptr<const void>>;
    moved->owner = std::make_shared<Owners>(memory, weight.owner);
  }
  return moved;
}

void ShareTables(const PackedMatrix& shape, uint8_t* panels) {
  if (shape.type != PackedType::kW4) return;
  for (int64_t p = 0; p < shape.num_panels(); ++p, panels += shape.panel_bytes()) {
    for (int64_t step = 0; step < shape.steps(); ++step) {
      uint8_t* tables = panels + TablesAtW4(step);
      for (int64_t o = 0; o < kPanelOutputs; o += 2) std::memcpy(tables + 2 * o + 2, tables + 2 * o, 2);
    }
  }
}

std::vector<int8_t> UnpackRow(const PackedMatrix& matrix, int64_t output) {
  const uint8_t* panel = matrix.panels + output / kPanelOutputs * matrix.panel_bytes();
  std::vector<int8_t> row(static_cast<size_t>(matrix.inputs));
  for (size_t i = 0; i < row.size(); ++i) {
    row[i] = static_cast<int8_t>(WeightAt(matrix, panel, output % kPanelOutputs, static_cast<int64_t>(i)));
  }
  return row;
}

std::vector<float> Unpack(const PackedMatrix& matrix) {
  std::vector<float> weights;
  weights.reserve(static_cast<size_t>(matrix.outputs * matrix.inputs));
  for (int64_t o = 0; o < matrix.outputs; ++o) {
    for (const int8_t q : UnpackRow(matrix, o)) weights.push_back(matrix.row_scales[o] * static_cast<float>(q));
  }
  return weights;
}

}  // namespace hydrant::quant
