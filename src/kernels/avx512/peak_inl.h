// SPDX-License-Identifier: Apache-2.0
// The loops of AVX-512, which amx has too but for products of bytes. Included inside an unnamed namespace.

uint64_t ReadLines(const uint8_t* data, int64_t bytes) {
  __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
  int64_t i = 0;
  for (; i + 256 <= bytes; i += 256) {
#pragma GCC unroll 4
    for (int64_t line = 0; line < 4; ++line) {
      _mm_prefetch(reinterpret_cast<const char*>(data + i + kPeakPrefetchBytes + 64 * line), _MM_HINT_T1);
    }
    a = _mm512_add_epi64(a, _mm512_load_si512(data + i));
    b = _mm512_add_epi64(b, _mm512_load_si512(data + i + 64));
    c = _mm512_add_epi64(c, _mm512_load_si512(data + i + 128));
    d = _mm512_add_epi64(d, _mm512_load_si512(data + i + 192));
  }
  for (; i < bytes; i += 64) a = _mm512_add_epi64(a, _mm512_load_si512(data + i));
  const __m512i sum = _mm512_add_epi64(_mm512_add_epi64(a, b), _mm512_add_epi64(c, d));
  // By hand: the sum wraps, and GCC's reduction adds signed numbers.
  alignas(64) uint64_t lanes[8];
  _mm512_store_si512(lanes, sum);
  uint64_t total = 0;
  for (const uint64_t lane : lanes) total += lane;
  return total;
}

// Each is one instruction of assembler: with intrinsics GCC 12 moves sums between registers, more often than it
// multiplies.
struct F32 {
  static constexpr int64_t kProducts = 16;
  static __m512i Ones() { return _mm512_castps_si512(_mm512_set1_ps(1.0F)); }
  static void Add(__m512i& sum, __m512i ones) { __asm__("vfmadd231ps %1, %1, %0" : "+v"(sum) : "v"(ones)); }
  static __m512i Count(__m512i sum) { return _mm512_cvtps_epi32(_mm512_castsi512_ps(sum)); }
};
struct BF16 {
  static constexpr int64_t kProducts = 32;
  static __m512i Ones() { return _mm512_set1_epi16(0x3f80); }
  static void Add(__m512i& sum, __m512i ones) { __asm__("vdpbf16ps %1, %1, %0" : "+v"(sum) : "v"(ones)); }
  static __m512i Count(__m512i sum) { return _mm512_cvtps_epi32(_mm512_castsi512_ps(sum)); }
};
struct Int8 {
  static constexpr int64_t kProducts = 64;
  static __m512i Ones() { return _mm512_set1_epi8(1); }
  static void Add(__m512i& sum, __m512i ones) { __asm__("vpdpbusd %1, %1, %0" : "+v"(sum) : "v"(ones)); }
  static __m512i Count(__m512i sum) { return sum; }
};

template <typename Type>
int64_t Total(__m512i sum) {
  alignas(64) int32_t lanes[16];
  _mm512_store_si512(lanes, Type::Count(sum));
  int64_t total = 0;
  for (const int32_t lane : lanes) total += lane;
  return total;
}

// 8 to 12 sums keep two ports of latency 4 to 6 busy. They are variables, because GCC 12 stores an array in every
// round.
template <typename Type>
PeakResult Multiply(int64_t rounds) {
  const __m512i ones = Type::Ones();
  __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a, e = a, f = a, g = a, h = a, i = a, j = a, k = a, l = a;
  for (int64_t n = 0; n < rounds; ++n) {
    Type::Add(a, ones), Type::Add(b, ones), Type::Add(c, ones), Type::Add(d, ones);
    Type::Add(e, ones), Type::Add(f, ones), Type::Add(g, ones), Type::Add(h, ones);
    Type::Add(i, ones), Type::Add(j, ones), Type::Add(k, ones), Type::Add(l, ones);
  }
  const int64_t sum = Total<Type>(a) + Total<Type>(b) + Total<Type>(c) + Total<Type>(d) + Total<Type>(e) +
                      Total<Type>(f) + Total<Type>(g) + Total<Type>(h) + Total<Type>(i) + Total<Type>(j) +
                      Total<Type>(k) + Total<Type>(l);
  return {12 * Type::kProducts * rounds, sum};
}
