// SPDX-License-Identifier: Apache-2.0
// Rows of activations to int8 codes, for targets that give (inside their unnamed namespace, before including this):
//   uint32_t LargestBits(x, n)             the largest |x[i]| as its bits; bits order like magnitudes, NaN and infinity
//                                          come last
//   Line                                   64 codes
//   Line ZeroLine()
//   Line ToCodes(x, n, factor)             rint(x[i] * factor) of n <= 64 floats; 0 past n
//   Line ToPlanes(x, n, factor, low)       the same in two planes
//   void StoreLine(args, to, line)
//   Sums, Sums ZeroSums(), AddLine(sums, line)
//   uint32_t Excess(sums)                  of the lines that were added: what QuantizeArgs wants

inline float FromBits(uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, 4);
  return value;
}

inline void StoreZeros(const QuantizeArgs& args) {
  const int64_t chunks = args.padded_inputs / kGroupInputs;
  for (int64_t c = 0; c < chunks; ++c) {
    StoreLine(args, args.codes + c * args.chunk_stride, ZeroLine());
    if (args.low != nullptr) StoreLine(args, args.low + c * args.low_chunk_stride, ZeroLine());
  }
  *args.excess = 0;
  if (args.low != nullptr) *args.low_excess = 0;
}

inline void StoreCodes(const QuantizeArgs& call, float factor) {
  const QuantizeArgs args = call;  // a copy: for all that the compiler knows, a store of codes may change `call`
  const int64_t chunks = args.padded_inputs / kGroupInputs;
  Sums sums = ZeroSums(), low_sums = ZeroSums();
  for (int64_t c = 0; c < chunks; ++c) {
    const int64_t begin = c * kGroupInputs, left = args.inputs - begin;
    const int64_t n = left >= kGroupInputs ? kGroupInputs : left > 0 ? left : 0;
    Line line, low_line;
    if (args.low == nullptr) {
      line = ToCodes(args.x + begin, n, factor);
    } else {
      line = ToPlanes(args.x + begin, n, factor, low_line);
      StoreLine(args, args.low + c * args.low_chunk_stride, low_line);
      low_sums = AddLine(low_sums, low_line);
    }
    StoreLine(args, args.codes + c * args.chunk_stride, line);
    sums = AddLine(sums, line);
  }
  *args.excess = static_cast<int32_t>(Excess(sums));
  if (args.low != nullptr) *args.low_excess = static_cast<int32_t>(Excess(low_sums));
}

inline void QuantizeRow(const QuantizeArgs& args) {
  const uint32_t bits = LargestBits(args.x, args.inputs);
  const bool finite = bits < 0x7f800000U;
  const float largest = FromBits(bits), top = args.low == nullptr ? 127.0F : 32512.0F;
  if (!finite || largest < kZeroRow) {
    *args.scale = finite ? 0.0F : FromBits(0x7fc00000U);
    StoreZeros(args);
    return;
  }
  *args.scale = largest / top;
  StoreCodes(args, top / largest);
}
