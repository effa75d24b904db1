// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "kernels/avx2/entries.h"

namespace hydrant::kernels {
namespace {

inline __m256i LineHalf(const uint8_t* data, int64_t half) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(data) + half);
}

uint64_t ReadLines(const uint8_t* data, int64_t bytes) {
  __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
  int64_t i = 0;
  for (; i + 128 <= bytes; i += 128) {
    _mm_prefetch(reinterpret_cast<const char*>(data + i + kPeakPrefetchBytes), _MM_HINT_T1);
    _mm_prefetch(reinterpret_cast<const char*>(data + i + kPeakPrefetchBytes + 64), _MM_HINT_T1);
    a = _mm256_add_epi64(a, LineHalf(data + i, 0));
    b = _mm256_add_epi64(b, LineHalf(data + i, 1));
    c = _mm256_add_epi64(c, LineHalf(data + i, 2));
    d = _mm256_add_epi64(d, LineHalf(data + i, 3));
  }
  if (i < bytes) {
    a = _mm256_add_epi64(a, LineHalf(data + i, 0));
    b = _mm256_add_epi64(b, LineHalf(data + i, 1));
  }
  const __m256i sum = _mm256_add_epi64(_mm256_add_epi64(a, b), _mm256_add_epi64(c, d));
  const __m128i half = _mm_add_epi64(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
  return static_cast<uint64_t>(_mm_cvtsi128_si64(half)) + static_cast<uint64_t>(_mm_extract_epi64(half, 1));
}

// Pieces of assembler, because the compiler would take the product of equal operands out of the loop.
struct F32 {
  static constexpr int64_t kProducts = 8;
  static __m256i Ones() { return _mm256_castps_si256(_mm256_set1_ps(1.0F)); }
  static void Add(__m256i& sum, __m256i ones) { __asm__("vfmadd231ps %1, %1, %0" : "+x"(sum) : "x"(ones)); }
  static __m256i Count(__m256i sum) { return _mm256_cvtps_epi32(_mm256_castsi256_ps(sum)); }
};
// Products of bytes in the shortest exact form, for |a| <= 127: two products fit 16 bits. 32 products take two
// multiplications and an addition.
struct Bytes {
  static constexpr int64_t kProducts = 32;
  static __m256i Ones() { return _mm256_set1_epi8(1); }
  static void Add(__m256i& sum, __m256i ones) {
    __m256i products;
    __asm__("vpmaddubsw %2, %2, %1\n\tvpmaddwd %3, %1, %1\n\tvpaddd %1, %0, %0"
            : "+x"(sum), "=&x"(products)
            : "x"(ones), "x"(_mm256_set1_epi16(1)));
  }
  static __m256i Count(__m256i sum) { return sum; }
};
// Codes widened to 16 bits: there is no sign to take care of. 16 products take a multiplication and an addition.
struct Words {
  static constexpr int64_t kProducts = 16;
  static __m256i Ones() { return _mm256_set1_epi16(1); }
  static void Add(__m256i& sum, __m256i ones) {
    __m256i products;
    __asm__("vpmaddwd %2, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(sum), "=&x"(products) : "x"(ones));
  }
  static __m256i Count(__m256i sum) { return sum; }
};

// Processors with AVX-VNNI have one instruction for the products of bytes.
struct Vnni {
  static constexpr int64_t kProducts = 32;
  static __m256i Ones() { return _mm256_set1_epi8(1); }
  static void Add(__m256i& sum, __m256i ones) { __asm__("%{vex%} vpdpbusd %1, %1, %0" : "+x"(sum) : "x"(ones)); }
  static __m256i Count(__m256i sum) { return sum; }
};

template <typename Type>
int64_t Total(__m256i sum) {
  alignas(32) int32_t lanes[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), Type::Count(sum));
  int64_t total = 0;
  for (const int32_t lane : lanes) total += lane;
  return total;
}

// Ten sums keep two ports of latency 5 busy. They are variables, because GCC 12 stores an array in every round.
template <typename Type>
PeakResult Multiply(int64_t rounds) {
  const __m256i ones = Type::Ones();
  __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a, e = a, f = a, g = a, h = a, i = a, j = a;
  for (int64_t n = 0; n < rounds; ++n) {
    Type::Add(a, ones), Type::Add(b, ones), Type::Add(c, ones), Type::Add(d, ones), Type::Add(e, ones);
    Type::Add(f, ones), Type::Add(g, ones), Type::Add(h, ones), Type::Add(i, ones), Type::Add(j, ones);
  }
  const int64_t sum = Total<Type>(a) + Total<Type>(b) + Total<Type>(c) + Total<Type>(d) + Total<Type>(e) +
                      Total<Type>(f) + Total<Type>(g) + Total<Type>(h) + Total<Type>(i) + Total<Type>(j);
  return {10 * Type::kProducts * rounds, sum};
}

constexpr PeakLoop kLoops[] = {{PeakType::kF32, "vfmadd ymm", Multiply<F32>},
                               {PeakType::kInt8, "vpmaddubsw", Multiply<Bytes>},
                               {PeakType::kInt8, "vpmaddwd", Multiply<Words>}};
constexpr PeakLoop kVnniLoops[] = {{PeakType::kF32, "vfmadd ymm", Multiply<F32>},
                                   {PeakType::kInt8, "vpdpbusd ymm", Multiply<Vnni>}};

}  // namespace

constinit const PeakEntries kPeakAvx2 = {ReadLines, kLoops, sizeof(kLoops) / sizeof(kLoops[0])};
constinit const PeakEntries kPeakAvxVnni = {ReadLines, kVnniLoops, sizeof(kVnniLoops) / sizeof(kVnniLoops[0])};

}  // namespace hydrant::kernels
