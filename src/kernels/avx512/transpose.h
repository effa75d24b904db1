// SPDX-License-Identifier: Apache-2.0
// A transpose of 16 x 16 dwords in registers. Included inside an unnamed namespace, after <immintrin.h>.
#pragma once

// fn(column, what was in dword `column` of m[0 .. 15]) for each of the sixteen, four at a time, so that they need no
// more registers than there are.
template <typename Fn>
[[gnu::always_inline]] inline void ForColumns(const __m512i* m, const Fn& fn) {
  __m512i a[16], b[16];
  // 4 x 4 blocks inside each 128 bits, then the blocks.
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    const __m512i low01 = _mm512_unpacklo_epi32(m[i], m[i + 1]), high01 = _mm512_unpackhi_epi32(m[i], m[i + 1]);
    const __m512i low23 = _mm512_unpacklo_epi32(m[i + 2], m[i + 3]);
    const __m512i high23 = _mm512_unpackhi_epi32(m[i + 2], m[i + 3]);
    a[i] = _mm512_unpacklo_epi64(low01, low23);
    a[i + 1] = _mm512_unpackhi_epi64(low01, low23);
    a[i + 2] = _mm512_unpacklo_epi64(high01, high23);
    a[i + 3] = _mm512_unpackhi_epi64(high01, high23);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    b[j] = _mm512_shuffle_i32x4(a[j], a[j + 4], 0x88);
    b[j + 4] = _mm512_shuffle_i32x4(a[j], a[j + 4], 0xDD);
    b[j + 8] = _mm512_shuffle_i32x4(a[j + 8], a[j + 12], 0x88);
    b[j + 12] = _mm512_shuffle_i32x4(a[j + 8], a[j + 12], 0xDD);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    fn(j, _mm512_shuffle_i32x4(b[j], b[j + 8], 0x88));
    fn(j + 8, _mm512_shuffle_i32x4(b[j], b[j + 8], 0xDD));
    fn(j + 4, _mm512_shuffle_i32x4(b[j + 4], b[j + 12], 0x88));
    fn(j + 12, _mm512_shuffle_i32x4(b[j + 4], b[j + 12], 0xDD));
  }
}

inline void TransposeDwords(__m512i* m) {
  __m512i columns[16];
  ForColumns(m, [&](int column, __m512i values) { columns[column] = values; });
  for (int i = 0; i < 16; ++i) m[i] = columns[i];
}
