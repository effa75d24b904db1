// SPDX-License-Identifier: Apache-2.0
// Register tiles of the AVX-512 VNNI packed matmul: the sums of NO outputs by NR code rows over all steps, one asm
// block each. Included by matmul_packed_avx512.cc inside its unnamed namespace.
//
// GCC 12 spills accumulator arrays (75 to 110 spills a step, half the speed on Zen 4), also with one asm statement per
// instruction; so registers are named here. A block is text that the preprocessor puts together: h is the half of the
// step (inputs 0 .. 63 or 64 .. 127), o an output, r a code row, w, x, t, a registers' numbers. Conditions on %c[...]
// are settled by the assembler for each instance of the template.

struct Tile {
  const uint8_t* codes;   // the first output's line of step 0
  const uint8_t* tables;  // w4: the first output's pair in step 0
  const uint8_t* dictionary;
  const int8_t* activations;  // the first row's line of chunk 0
  int64_t chunk_stride;       // bytes from chunk to chunk
  int64_t steps;              // of the first loop, > 0
  const uint8_t* near;        // lines to come soon, to L1: moves on with the codes
  int64_t last_steps;         // then so many more,
  const uint8_t* last_near;   // with `near` at the start of what comes after this tile
  const uint8_t* ahead;       // lines of the next panel, from memory to L2
  int64_t ahead_step;         // bytes a step
  int32_t* sums;              // [NR][16], already at the tile's first output
  uint32_t mask = 0x0f0f0f0f;
};

// clang-format off
constexpr int64_t kMiddle = 16384;  // of the panel's bytes

#define Z(n) "%%zmm" #n
#define ZERO(a) "vpxord " Z(a) ", " Z(a) ", " Z(a) "\n\t"
#define LOAD_X(r, x) "vmovdqu64 64*" #r "(%[act]), " Z(x) "\n\t"
#define DOT(a, w, x) "vpdpbusd " Z(x) ", " Z(w) ", " Z(a) "\n\t"

// w = weights + 128 of output o; m holds bytes of 15. The table is a plain load of 16 bytes, and an AND, which runs on any
// vector port, keeps the index to them: four copies of the table would need no mask (vpermb takes 6 bits), but their
// broadcast competes with vpermb and with the dot products.
#define EXPAND(h, o, w, t, m)                                                    \
  ".if %c[w4]\n\t"                                                               \
  "movzbl 2*" #o "+" #h "(%[tables]), %%eax\n\t"                                 \
  "shl $4, %%eax\n\t"                                                            \
  "vmovdqa64 (%[dictionary], %%rax), %%xmm" #t "\n\t"                            \
  ".if " #h "\n\t"                                                               \
  "vpsrlw $4, 64*" #o "(%[codes]), " Z(w) "\n\t"                                 \
  "vpandd " m ", " Z(w) ", " Z(w) "\n\t"                                         \
  ".else\n\t"                                                                    \
  "vpandd 64*" #o "(%[codes]), " m ", " Z(w) "\n\t"                              \
  ".endif\n\t"                                                                   \
  "vpermb " Z(t) ", " Z(w) ", " Z(w) "\n\t"                                      \
  ".else\n\t"                                                                    \
  "vmovdqu64 1024*" #h "+64*" #o "(%[codes]), " Z(w) "\n\t"                      \
  ".endif\n\t"
#define SET_MASK(m) "vpbroadcastd %c[at_mask](%[tile]), " Z(m) "\n\t"

// Prefetches stand between the dot products, number i of each half: w4 takes even ones near and odd ones ahead in half
// 0, the others in half 1; w8 takes all in both. Near: to L1, and the lines kMiddle further to L2 where they are not
// yet. Ahead: from memory to L2. T0 and NTA from memory hold L1 miss buffers for the whole latency and starve the loads
// of activations (168 ms where T1 takes 102). When the buffers are full a prefetch is dropped, and faster tiles than
// memory fill them: hence the second chance (w8, 2 rows: 13.2 -> 9.2 cycles a line at 7.5 of plain reading).
#define FETCH(h, i)                                                              \
  ".if (%c[w4] == 0 || (" #i " & 1) == " #h ") && %c[near]\n\t"                   \
  "prefetcht0 1024*" #h "*(1-%c[w4])+64*" #i "(%[near_lines])\n\t"               \
  "prefetcht1 %c[middle]+1024*" #h "*(1-%c[w4])+64*" #i "(%[near_lines])\n\t"    \
  ".endif\n\t"                                                                   \
  ".if (%c[w4] == 0 || (" #i " & 1) != " #h ") && %c[ahead] > " #i "\n\t"        \
  "prefetcht1 64*(%c[ahead]*" #h "*(1-%c[w4])+" #i ")(%[ahead_lines])\n\t"        \
  ".endif\n\t"

#define NEXT_CHUNK "add %[stride], %[act]\n\t"
#define NEXT_STEP                                                                \
  "add $1024*(2-%c[w4]), %[codes]\n\t"                                           \
  "add $1024*(2-%c[w4]), %[near_lines]\n\t"                                      \
  ".if %c[w4]\n\tadd $32, %[tables]\n\t.endif\n\t"                               \
  "add %[ahead_step], %[ahead_lines]\n\t"

// Sums of lanes, all in registers (through memory it costs a tenth more at 4 x 6). FOLD32 of two, then FOLD64 of two
// pairs leave in each 128 bits one lane for each of four; FOLD128 adds up the 128-bit parts, two inputs side by side.
#define FOLD(high, low, x, y, t)                                                 \
  high Z(y) ", " Z(x) ", " Z(t) "\n\t"                                           \
  low Z(y) ", " Z(x) ", " Z(x) "\n\t"                                            \
  "vpaddd " Z(t) ", " Z(x) ", " Z(x) "\n\t"
#define FOLD32(x, y, t) FOLD("vpunpckhdq ", "vpunpckldq ", x, y, t)
#define FOLD64(x, y, t) FOLD("vpunpckhqdq ", "vpunpcklqdq ", x, y, t)
#define FOLD128(x, y, t) FOLD("vshufi32x4 $0xDD, ", "vshufi32x4 $0x88, ", x, y, t)
#define REDUCE4(a, b, c, d, t) FOLD32(a, b, t) FOLD32(c, d, t) FOLD64(a, c, t)
#define REDUCE16(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, t) \
  REDUCE4(a0, a1, a2, a3, t) REDUCE4(a4, a5, a6, a7, t) REDUCE4(a8, a9, a10, a11, t)      \
  REDUCE4(a12, a13, a14, a15, t) FOLD128(a0, a4, t) FOLD128(a8, a12, t) FOLD128(a0, a8, t)
// Row r from 128 bits of register a.
#define STORE_QUAD(r, a, part) "vextracti32x4 $" #part ", " Z(a) ", 64*" #r "(%%rax)\n\t"
#define STORE_QUADS(r0, r1, r2, r3, a) \
  STORE_QUAD(r0, a, 0) STORE_QUAD(r1, a, 1) STORE_QUAD(r2, a, 2) STORE_QUAD(r3, a, 3)

#define CLOBBERED_VECTORS                                                                \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
  "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "xmm16", "xmm17", "xmm18", "xmm19",         \
  "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", "xmm26", "xmm27", "xmm28",         \
  "xmm29", "xmm30", "xmm31"

// kAhead: lines of the next panel fetched in each half. kNear: whether lines to come soon are fetched.
#define DEFINE_TILE(name, zeros, half0, half1, finish)                                              \
  template <bool kW4, int kAhead, bool kNear>                                                       \
  void name(const Tile& tile) {                                                                     \
    const uint8_t *codes = tile.codes, *tables = tile.tables, *near = tile.near, *ahead = tile.ahead; \
    const int8_t* act = tile.activations;                                                           \
    int64_t steps = tile.steps;                                                                     \
    asm volatile(                                                                                   \
        zeros                                                                                       \
        "xor %%ecx, %%ecx\n\t"                                                                      \
        ".p2align 5\n"                                                                              \
        "1:\n\t"                                                                                    \
        half0 NEXT_CHUNK half1 NEXT_CHUNK NEXT_STEP                                                 \
        "dec %[steps]\n\t"                                                                          \
        "jnz 1b\n\t"                                                                                \
        "xor $1, %%ecx\n\t"                                                                         \
        "jz 2f\n\t"                                                                                 \
        "mov %c[at_last_near](%[tile]), %[near_lines]\n\t"                                          \
        "mov %c[at_last_steps](%[tile]), %[steps]\n\t"                                              \
        "test %[steps], %[steps]\n\t"                                                               \
        "jnz 1b\n"                                                                                  \
        "2:\n\t"                                                                                    \
        "mov %c[at_sums](%[tile]), %%rax\n\t"                                                       \
        finish                                                                                      \
        : [codes] "+r"(codes), [tables] "+r"(tables), [act] "+r"(act), [near_lines] "+r"(near),     \
          [ahead_lines] "+r"(ahead), [steps] "+r"(steps)                                            \
        : [tile] "r"(&tile), [dictionary] "r"(tile.dictionary), [stride] "r"(tile.chunk_stride),    \
          [ahead_step] "r"(tile.ahead_step), [w4] "i"(static_cast<int>(kW4)), [ahead] "i"(kAhead),  \
          [near] "i"(static_cast<int>(kNear)), [at_last_near] "i"(offsetof(Tile, last_near)),       \
          [at_last_steps] "i"(offsetof(Tile, last_steps)), [at_sums] "i"(offsetof(Tile, sums)),     \
          [at_mask] "i"(offsetof(Tile, mask)), [middle] "i"(kMiddle)                                \
        : "rax", "rcx", "cc", "memory", CLOBBERED_VECTORS);                                         \
  }

// ---- 16 outputs x 1 row: W and T rotate through 16-29, mask = 30, X = 31.
#define OUT1(h, o, w, t, a) EXPAND(h, o, w, t, Z(30)) FETCH(h, o) DOT(a, w, 31)
#define HALF_16X1(h)                                                                             \
  LOAD_X(0, 31)                                                                                  \
  OUT1(h, 0, 16, 17, 0) OUT1(h, 1, 18, 19, 1) OUT1(h, 2, 20, 21, 2) OUT1(h, 3, 22, 23, 3)        \
  OUT1(h, 4, 24, 25, 4) OUT1(h, 5, 26, 27, 5) OUT1(h, 6, 28, 29, 6) OUT1(h, 7, 16, 17, 7)        \
  OUT1(h, 8, 18, 19, 8) OUT1(h, 9, 20, 21, 9) OUT1(h, 10, 22, 23, 10) OUT1(h, 11, 24, 25, 11)    \
  OUT1(h, 12, 26, 27, 12) OUT1(h, 13, 28, 29, 13) OUT1(h, 14, 16, 17, 14) OUT1(h, 15, 18, 19, 15)

#define ZERO4(a, b, c, d) ZERO(a) ZERO(b) ZERO(c) ZERO(d)
#define ZERO16                                                                                            \
  ZERO4(0, 1, 2, 3) ZERO4(4, 5, 6, 7) ZERO4(8, 9, 10, 11) ZERO4(12, 13, 14, 15)
#define ZERO24 ZERO16 ZERO4(16, 17, 18, 19) ZERO4(20, 21, 22, 23)
#define REDUCE_0_15 REDUCE16(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 31)
DEFINE_TILE(Tile16x1, ZERO16 SET_MASK(30), HALF_16X1(0), HALF_16X1(1), REDUCE_0_15 "vmovdqu64 %%zmm0, (%%rax)\n\t")

// ---- 8 outputs x 2 rows: X = 16, 17, W and T rotate through 18-30, mask = 31.
#define OUT2(h, o, w, t, a, b) EXPAND(h, o, w, t, Z(31)) FETCH(h, o) DOT(a, w, 16) DOT(b, w, 17)
#define HALF_8X2(h)                                                                              \
  LOAD_X(0, 16) LOAD_X(1, 17)                                                                    \
  OUT2(h, 0, 18, 19, 0, 8) OUT2(h, 1, 20, 21, 1, 9) OUT2(h, 2, 22, 23, 2, 10)                    \
  OUT2(h, 3, 24, 25, 3, 11) OUT2(h, 4, 26, 27, 4, 12) OUT2(h, 5, 28, 29, 5, 13)                  \
  OUT2(h, 6, 30, 18, 6, 14) OUT2(h, 7, 19, 20, 7, 15)
DEFINE_TILE(Tile8x2, ZERO16 SET_MASK(31), HALF_8X2(0), HALF_8X2(1),
            REDUCE_0_15 "vmovdqu %%ymm0, (%%rax)\n\tvextracti64x4 $1, %%zmm0, 64(%%rax)\n\t")

// ---- 8 outputs x 3 rows: X = 24 .. 26, W and T rotate through 27-30, mask = 31.
#define OUT3(h, o, w, t, a, b, c) EXPAND(h, o, w, t, Z(31)) FETCH(h, o) DOT(a, w, 24) DOT(b, w, 25) DOT(c, w, 26)
#define HALF_8X3(h)                                                                              \
  LOAD_X(0, 24) LOAD_X(1, 25) LOAD_X(2, 26)                                                      \
  OUT3(h, 0, 27, 28, 0, 8, 16) OUT3(h, 1, 29, 30, 1, 9, 17) OUT3(h, 2, 27, 28, 2, 10, 18)        \
  OUT3(h, 3, 29, 30, 3, 11, 19) OUT3(h, 4, 27, 28, 4, 12, 20) OUT3(h, 5, 29, 30, 5, 13, 21)      \
  OUT3(h, 6, 27, 28, 6, 14, 22) OUT3(h, 7, 29, 30, 7, 15, 23)
DEFINE_TILE(Tile8x3, ZERO24 SET_MASK(31), HALF_8X3(0), HALF_8X3(1),
            REDUCE_0_15 "vmovdqu %%ymm0, (%%rax)\n\tvextracti64x4 $1, %%zmm0, 64(%%rax)\n\t"
            REDUCE4(16, 17, 18, 19, 31) REDUCE4(20, 21, 22, 23, 30) FOLD128(16, 20, 31) FOLD128(16, 16, 30)
            "vmovdqu64 %%ymm16, 128(%%rax)\n\t")

// ---- 4 outputs x 1 .. 6 rows: W = 24 .. 27, mask = 28, X and T rotate through 29-31.
#define EXPAND4(h) \
  EXPAND(h, 0, 24, 29, Z(28)) EXPAND(h, 1, 25, 30, Z(28)) EXPAND(h, 2, 26, 31, Z(28)) EXPAND(h, 3, 27, 29, Z(28))
#define ROW4(r, x, a, b, c, d) LOAD_X(r, x) DOT(a, 24, x) DOT(b, 25, x) DOT(c, 26, x) DOT(d, 27, x)
#define HALF_4X4(h)                                                                              \
  EXPAND4(h)                                                                                     \
  ROW4(0, 30, 0, 1, 2, 3) FETCH(h, 0) ROW4(1, 31, 4, 5, 6, 7) FETCH(h, 1)                        \
  ROW4(2, 29, 8, 9, 10, 11) FETCH(h, 2) ROW4(3, 30, 12, 13, 14, 15) FETCH(h, 3)
#define HALF_4X5(h) HALF_4X4(h) ROW4(4, 31, 16, 17, 18, 19)
#define HALF_4X6(h) HALF_4X5(h) ROW4(5, 29, 20, 21, 22, 23)
#define HALF_4X1(h) EXPAND4(h) FETCH(h, 0) FETCH(h, 1) ROW4(0, 30, 0, 1, 2, 3) FETCH(h, 2) FETCH(h, 3)
#define HALF_4X2(h) HALF_4X1(h) ROW4(1, 31, 4, 5, 6, 7)
#define HALF_4X3(h) HALF_4X2(h) ROW4(2, 29, 8, 9, 10, 11)
DEFINE_TILE(Tile4x1, ZERO4(0, 1, 2, 3) SET_MASK(28), HALF_4X1(0), HALF_4X1(1),
            REDUCE4(0, 1, 2, 3, 31) FOLD128(0, 0, 30) FOLD128(0, 0, 29) STORE_QUAD(0, 0, 0))
DEFINE_TILE(Tile4x2, ZERO4(0, 1, 2, 3) ZERO4(4, 5, 6, 7) SET_MASK(28), HALF_4X2(0), HALF_4X2(1),
            REDUCE4(0, 1, 2, 3, 31) REDUCE4(4, 5, 6, 7, 30) FOLD128(0, 4, 29) FOLD128(0, 0, 31)
            STORE_QUAD(0, 0, 0) STORE_QUAD(1, 0, 1))
DEFINE_TILE(Tile4x3, ZERO4(0, 1, 2, 3) ZERO4(4, 5, 6, 7) ZERO4(8, 9, 10, 11) SET_MASK(28), HALF_4X3(0), HALF_4X3(1),
            REDUCE4(0, 1, 2, 3, 31) REDUCE4(4, 5, 6, 7, 30) REDUCE4(8, 9, 10, 11, 29)
            FOLD128(0, 4, 31) FOLD128(8, 8, 30) FOLD128(0, 8, 29)
            STORE_QUAD(0, 0, 0) STORE_QUAD(1, 0, 1) STORE_QUAD(2, 0, 2))
#define FINISH_4X4 REDUCE_0_15 STORE_QUADS(0, 1, 2, 3, 0)
DEFINE_TILE(Tile4x4, ZERO16 SET_MASK(28), HALF_4X4(0), HALF_4X4(1), FINISH_4X4)
DEFINE_TILE(Tile4x5, ZERO16 ZERO4(16, 17, 18, 19) SET_MASK(28), HALF_4X5(0), HALF_4X5(1),
            FINISH_4X4 REDUCE4(16, 17, 18, 19, 31) FOLD128(16, 16, 30) FOLD128(16, 16, 30) STORE_QUAD(4, 16, 0))
DEFINE_TILE(Tile4x6, ZERO24 SET_MASK(28), HALF_4X6(0), HALF_4X6(1),
            FINISH_4X4 REDUCE4(16, 17, 18, 19, 31) REDUCE4(20, 21, 22, 23, 30) FOLD128(16, 20, 31) FOLD128(16, 16, 30)
            STORE_QUAD(4, 16, 0) STORE_QUAD(5, 16, 1))

// ---- 4 outputs x 7 rows: two outputs at a time, W = 28, 29, mask and then X = 30, T = 31.
#define ROW2(r, a, b) LOAD_X(r, 30) DOT(a, 28, 30) DOT(b, 29, 30)
#define ROWS2_7(h, a0, b0, a1, b1, a2, b2, a3, b3, a4, b4, a5, b5, a6, b6)                       \
  ROW2(0, a0, b0) ROW2(1, a1, b1) ROW2(2, a2, b2) ROW2(3, a3, b3) ROW2(4, a4, b4) ROW2(5, a5, b5) ROW2(6, a6, b6)
#define HALF_4X7(h)                                                                              \
  SET_MASK(30) EXPAND(h, 0, 28, 31, Z(30)) EXPAND(h, 1, 29, 31, Z(30)) FETCH(h, 0) FETCH(h, 1)   \
  ROWS2_7(h, 0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25)                                   \
  SET_MASK(30) EXPAND(h, 2, 28, 31, Z(30)) EXPAND(h, 3, 29, 31, Z(30)) FETCH(h, 2) FETCH(h, 3)   \
  ROWS2_7(h, 2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23, 26, 27)
DEFINE_TILE(Tile4x7, ZERO24 ZERO4(24, 25, 26, 27), HALF_4X7(0), HALF_4X7(1),
            FINISH_4X4 REDUCE4(16, 17, 18, 19, 31) REDUCE4(20, 21, 22, 23, 30) REDUCE4(24, 25, 26, 27, 29)
            FOLD128(16, 20, 31) FOLD128(24, 24, 30) FOLD128(16, 24, 31)
            STORE_QUAD(4, 16, 0) STORE_QUAD(5, 16, 1) STORE_QUAD(6, 16, 2))

// ---- 3 outputs x 8 rows: W = 24 .. 26, mask = 27, X and T rotate through 28-31. The fourth sum of a stored quad is rubbish, that
// the next tile of the panel writes over.
#define EXPAND3(h) EXPAND(h, 0, 24, 28, Z(27)) EXPAND(h, 1, 25, 29, Z(27)) EXPAND(h, 2, 26, 30, Z(27))
#define ROW3(r, x, a, b, c) LOAD_X(r, x) DOT(a, 24, x) DOT(b, 25, x) DOT(c, 26, x)
#define HALF_3X8(h)                                                                              \
  EXPAND3(h)                                                                                     \
  ROW3(0, 31, 0, 1, 2) FETCH(h, 0) ROW3(1, 28, 3, 4, 5) FETCH(h, 1) ROW3(2, 29, 6, 7, 8)         \
  FETCH(h, 2) ROW3(3, 30, 9, 10, 11) ROW3(4, 31, 12, 13, 14) ROW3(5, 28, 15, 16, 17)             \
  ROW3(6, 29, 18, 19, 20) ROW3(7, 30, 21, 22, 23)
DEFINE_TILE(Tile3x8, ZERO24 SET_MASK(27), HALF_3X8(0), HALF_3X8(1),
            REDUCE4(0, 1, 2, 2, 31) REDUCE4(3, 4, 5, 5, 30) REDUCE4(6, 7, 8, 8, 29) REDUCE4(9, 10, 11, 11, 28)
            FOLD128(0, 3, 31) FOLD128(6, 9, 30) FOLD128(0, 6, 31) STORE_QUADS(0, 1, 2, 3, 0)
            REDUCE4(12, 13, 14, 14, 31) REDUCE4(15, 16, 17, 17, 30) REDUCE4(18, 19, 20, 20, 29)
            REDUCE4(21, 22, 23, 23, 28) FOLD128(12, 15, 31) FOLD128(18, 21, 30) FOLD128(12, 18, 31)
            STORE_QUADS(4, 5, 6, 7, 12))
// clang-format on
