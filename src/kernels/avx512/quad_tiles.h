// SPDX-License-Identifier: Apache-2.0
// Register tiles of quads (packed.h) with AVX-512 VNNI: the sums of a panel's 16 outputs by up to 10 code rows over all
// steps. A vector of weights is 16 outputs x 4 inputs, and four inputs of a row are broadcast to all lanes, so nothing
// is left to add up at the end. Included by avx512/matmul_packed.cc inside its unnamed namespace.

constexpr int64_t kQuadStepBytes = kStepInputs * kPanelOutputs;

// Fetches lines beside line i of 16: see kWholeStream in avx512/matmul_packed.cc. between: in turns, the bytes from
// panel to panel.
template <int kRows, int kFetch>
[[gnu::always_inline]] inline void FetchQuads(const uint8_t* line, const uint8_t* ahead, int64_t between, int i) {
  const char* at = reinterpret_cast<const char*>(line);
  if (kFetch == kInTurns) {
    _mm_prefetch(reinterpret_cast<const char*>(ahead + i / kTurnPanels * kLineBytes + i % kTurnPanels * between),
                 _MM_HINT_T0);
  } else if (kFetch == kWholeStream) {
    _mm_prefetch(at + 4096, _MM_HINT_NTA);
    _mm_prefetch(at + 8192, _MM_HINT_T1);
    _mm_prefetch(at + 16384, _MM_HINT_T1);
    _mm_prefetch(at + 32768, _MM_HINT_T1);
    if (kRows <= 4) _mm_prefetch(at + 65536, _MM_HINT_T1);
  } else if (i % 8 < kFetch) {
    _mm_prefetch(reinterpret_cast<const char*>(ahead + (i / 8 * kFetch + i % 8) * kLineBytes), _MM_HINT_T1);
  }
}

// Adds the products to sums [kRows]. Those of a row go to one of kChains sums in turn: a product takes 4 cycles and one
// can begin in every cycle, so few rows need several sums.
template <int kRows, int kFetch>
inline void AddQuads(int64_t steps, const uint8_t* panel, const int8_t* codes, const uint8_t* ahead, int64_t between,
                     __m512i* sums) {
  constexpr int kLineQuads = static_cast<int>(kLineBytes / 4);
  constexpr int kChains = kRows == 1 ? 4 : kRows <= 4 ? 2 : 1;
  __m512i chains[kChains][kRows];
#pragma GCC unroll 10
  for (int c = 0; c < kChains; ++c) {
#pragma GCC unroll 10
    for (int r = 0; r < kRows; ++r) chains[c][r] = c == 0 ? sums[r] : _mm512_setzero_si512();
  }
  for (int64_t line = steps * (kStepInputs / kLineBytes); line > 0; --line) {
#pragma GCC unroll 16
    for (int q = 0; q < kLineQuads; ++q) {
      const __m512i weights = _mm512_load_si512(panel + kLineBytes * q);
      FetchQuads<kRows, kFetch>(panel + kLineBytes * q, ahead, between, q);
#pragma GCC unroll 10
      for (int r = 0; r < kRows; ++r) {
        int32_t four;
        __builtin_memcpy(&four, codes + kLineBytes * r + 4 * q, sizeof(four));
        __m512i& sum = chains[q % kChains][r];
        sum = _mm512_dpbusd_epi32(sum, weights, _mm512_set1_epi32(four));
      }
    }
    panel += kLineQuads * kLineBytes;
    codes += kLineBytes * kRows;
    ahead += (kFetch == kInTurns ? kLineQuads / kTurnPanels : 2 * kFetch) * kLineBytes;
  }
#pragma GCC unroll 10
  for (int r = 0; r < kRows; ++r) {
    sums[r] = chains[0][r];
#pragma GCC unroll 10
    for (int c = 1; c < kChains; ++c) sums[r] = _mm512_add_epi32(sums[r], chains[c][r]);
  }
}
