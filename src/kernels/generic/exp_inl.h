// SPDX-License-Identifier: Apache-2.0
// exp in f32 for every target: the same operations on each lane, so the same bits. Included after <target>/lanes.h,
// inside the unnamed namespace of a target file.

// exp(x) of x <= 88 as 2^k * p(r), |r| <= ln2 / 2; the error is below 2 units in the last place (tested). Below -87.3
// the result is 0; NaN stays NaN. Softmax and SiLU take no exp of anything above kMaxAbove
// (generic/attention_weigh_inl.h), so 2^k is a single power of two. Inlined, because two registers of lanes would be
// passed to a function through memory (AVX2, 64 rows of attention: 367 -> 333 ms).
[[gnu::always_inline]] inline Lanes Exp(Lanes x) {
  const Lanes magic = Set(12582912.0F);  // 1.5 * 2^23: adding it rounds to an integer
  const Lanes shifted = Fma(x, Set(1.44269504F), magic);
  const Lanes k = Sub(shifted, magic);
  Lanes r = Fma(k, Set(-0.693359375F), x);  // ln 2 to 9 bits, so that the product is exact
  r = Fma(k, Set(2.12194440e-4F), r);
  Lanes p = Set(1.9875691500e-4F);
  p = Fma(p, r, Set(1.3981999507e-3F));
  p = Fma(p, r, Set(8.3334519073e-3F));
  p = Fma(p, r, Set(4.1665795894e-2F));
  p = Fma(p, r, Set(1.6666665459e-1F));
  p = Fma(p, r, Set(5.0000001201e-1F));
  p = Add(Fma(p, Mul(r, r), r), Set(1.0F));
  return ScaleUnlessLess(x, Set(-87.3F), p, k, shifted);  // whatever the rest came to
}
