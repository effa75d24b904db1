// SPDX-License-Identifier: Apache-2.0
// Register tiles of octets (packed.h) with AVX-512 VNNI and VBMI: the sums of a panel's 16 outputs by up to 10 code
// rows over all steps, one asm block. Included by matmul_packed_avx512.cc inside its unnamed namespace.
//
// A vector of weights is 8 outputs x 8 inputs, so that eight inputs of a row, a broadcast that costs no vector port,
// meet all outputs at once, and only two lanes are left to add up at the end. A line, 4 outputs x 16 inputs, is looked
// up by vpshufb, each output in the table of its own 128-bit lane, and the halves of two lines' lanes make two such
// vectors. On Zen 4 vpshufb, vpandd, shifts and unpacking find ports beside products. vpermi2b and vpternlog, by which
// 8 outputs x 8 inputs can be looked up as they lie, do not, nor do broadcasts of 16 bytes, which lines as they lie
// would need.
//
// The weights of the next 16 inputs are looked up before and between the products of these, and the next group's tables
// are put together during this one; for more than 8 rows, whose sums take the registers, in the place of these, when
// they are looked up in no more (5 rows .93 of the multiply peak, so .92; 8 rows .99, .98; 10 rows, so, .99).
//
// Registers: sums 0-7 of outputs 0-7 and 8-15 of outputs 8-15; tables of four outputs each 16-19 and 20-23, this
// group's and the next one's; weights 24-29; inputs 30; bytes of 15 in 31. Rows 8 and 9: sums 16, 17 and 18, 19. A
// block is text that the preprocessor puts together; conditions on %c[...] are settled by the assembler for each
// instance of the template.

constexpr int64_t kTablesOfStep = 32, kOctetStepBytes = 1024;

// Where in two vectors of sums, whose lanes are outputs 0 4 1 5 2 6 3 7 and 8 12 9 13 10 14 11 15, an output's two are.
struct OctetSums {
  int32_t first[16] = {}, second[16] = {};

  constexpr OctetSums() {
    for (int o = 0; o < 16; ++o) {
      first[o] = o / 8 * 16 + o % 4 * 4 + o % 8 / 4 * 2;
      second[o] = first[o] + 1;
    }
  }
};
alignas(64) constexpr OctetSums kOctetSums;

// clang-format off
#define Z(n) "%%zmm" #n
#define ZERO4(a, b, c, d) ZERO(a) ZERO(b) ZERO(c) ZERO(d)
#define ZERO(a) "vpxord " Z(a) ", " Z(a) ", " Z(a) "\n\t"
#define DOT(a, w, x) "vpdpbusd " Z(x) ", " Z(w) ", " Z(a) "\n\t"

// The tables of the four outputs whose numbers begin at `place`, side by side in t.
#define TABLE_OFFSET(place) "movzbl " place "(%[tables]), %%eax\n\tshl $4, %%eax\n\t"
#define INSERT_TABLE(t, place, o)                                                 \
  TABLE_OFFSET(#place "+" #o)                                                     \
  "vinserti32x4 $" #o ", (%[dictionary], %%rax), " Z(t) ", " Z(t) "\n\t"
#define PUT_TABLES(t, place)                                                      \
  TABLE_OFFSET(#place) "vmovdqa64 (%[dictionary], %%rax), %%xmm" #t "\n\t"         \
  INSERT_TABLE(t, place, 1) INSERT_TABLE(t, place, 2) INSERT_TABLE(t, place, 3)

// w = weights + 128: the upper or lower codes of a line looked up in the tables in t.
#define LOOK_UP(upper, line, w, t)                                                \
  ".if " #upper "\n\t"                                                            \
  "vpsrlw $4, " line ", " Z(w) "\n\t"                                             \
  "vpandd " Z(31) ", " Z(w) ", " Z(w) "\n\t"                                      \
  ".else\n\t"                                                                     \
  "vpandd " line ", " Z(31) ", " Z(w) "\n\t"                                      \
  ".endif\n\t"                                                                    \
  "vpshufb " Z(w) ", " Z(t) ", " Z(w) "\n\t"

// The first eight inputs of v and w in `first`, which may be neither, the others in `second`, which may.
#define UNPACK(v, w, first, second)                                               \
  "vpunpcklqdq " Z(w) ", " Z(v) ", " Z(first) "\n\t"                              \
  "vpunpckhqdq " Z(w) ", " Z(v) ", " Z(second) "\n\t"

// Inputs 8 i .. 8 i + 7 of group g and row r. Up to four rows have two sums for each half, those of odd i in few_a and
// few_b: a product takes 4 cycles and one begins every cycle.
#define ROW(g, i, r, w, v, few_a, few_b, many_a, many_b)                          \
  ".if %c[rows] > " #r "\n\t"                                                     \
  "vpbroadcastq 64*(%c[rows]*" #g "+" #r ")+8*(" #i ")(%[act]), " Z(30) "\n\t"    \
  ".if %c[rows] > 4\n\t"                                                          \
  DOT(many_a, w, 30) DOT(many_b, v, 30)                                           \
  ".else\n\t"                                                                     \
  DOT(few_a, w, 30) DOT(few_b, v, 30)                                             \
  ".endif\n\t"                                                                    \
  ".endif\n\t"
#define ROWS_4_9(g, i, w, v)                                                      \
  ROW(g, i, 4, w, v, 4, 12, 4, 12) ROW(g, i, 5, w, v, 5, 13, 5, 13)               \
  ROW(g, i, 6, w, v, 6, 14, 6, 14) ROW(g, i, 7, w, v, 7, 15, 7, 15)               \
  ROW(g, i, 8, w, v, 16, 18, 16, 18) ROW(g, i, 9, w, v, 17, 19, 17, 19)
#define EVEN_ROWS(g, i, w, v)                                                     \
  ROW(g, i, 0, w, v, 0, 8, 0, 8) ROW(g, i, 1, w, v, 1, 9, 1, 9)                   \
  ROW(g, i, 2, w, v, 2, 10, 2, 10) ROW(g, i, 3, w, v, 3, 11, 3, 11)               \
  ROWS_4_9(g, i, w, v) FETCH(g, i)
#define ODD_ROWS(g, i, w, v)                                                      \
  ROW(g, i, 0, w, v, 4, 12, 0, 8) ROW(g, i, 1, w, v, 5, 13, 1, 9)                 \
  ROW(g, i, 2, w, v, 6, 14, 2, 10) ROW(g, i, 3, w, v, 7, 15, 3, 11)               \
  ROWS_4_9(g, i, w, v) FETCH(g, i)

// What is fetched beside eight inputs of group g: see kWholeStream in matmul_packed_avx512.cc.
#define FETCH(g, i)                                                               \
  ".if %c[fetch] == 16\n\t"                                                       \
  ".if ((" #i ") & 3) == 0\n\t"                                                   \
  "prefetcht0 64*(2*" #g "+(" #i ")/4)(%[ahead])\n\t"                             \
  ".elseif ((" #i ") & 3) == 1\n\t"                                               \
  "prefetcht0 64*(2*" #g "+(" #i ")/4)(%[ahead], %[panel_bytes])\n\t"             \
  ".elseif ((" #i ") & 3) == 2\n\t"                                               \
  "prefetcht0 64*(2*" #g "+(" #i ")/4)(%[ahead], %[panel_bytes], 2)\n\t"          \
  ".else\n\t"                                                                    \
  "prefetcht0 64*(2*" #g "+(" #i ")/4)(%[ahead], %[far])\n\t"                     \
  ".endif\n\t"                                                                   \
  ".elseif %c[fetch] == 8\n\t"                                                    \
  "prefetchnta 4096+512*" #g "+64*(" #i ")(%[codes])\n\t"                          \
  "prefetcht1 8192+512*" #g "+64*(" #i ")(%[codes])\n\t"                          \
  "prefetcht1 16384+512*" #g "+64*(" #i ")(%[codes])\n\t"                         \
  "prefetcht1 32768+512*" #g "+64*(" #i ")(%[codes])\n\t"                         \
  ".if %c[rows] <= 2\n\t"                                                         \
  "prefetcht1 512*" #g "+64*(" #i ")(%[codes], %[far])\n\t"                       \
  ".endif\n\t"                                                                    \
  ".else\n\t"                                                                     \
  "prefetcht0 2048+512*" #g "+64*(" #i ")(%[codes])\n\t"                          \
  ".if %c[fetch] > " #i "\n\t"                                                    \
  "prefetcht1 64*(%c[fetch]*" #g "+" #i ")(%[ahead])\n\t"                         \
  ".endif\n\t"                                                                    \
  ".endif\n\t"

// Sixteen inputs, from 16 u on, of group g: (28, b0) are its first eight, (b1, b3) the others. What follows them is looked
// up from four lines at `at` of `codes` in tables t0 .. t3 and is then in (28, b1) and (b2, b0).
#define UNIT(g, u, upper, codes, at, t0, t1, t2, t3, b0, b1, b2, b3, put_first, put_second) \
  put_first                                                                       \
  LOOK_UP(upper, #at "(%[" #codes "])", b2, t0)                                   \
  LOOK_UP(upper, #at "+64(%[" #codes "])", 29, t1)                                \
  EVEN_ROWS(g, 2*(u), 28, b0)                                                     \
  put_second                                                                      \
  UNPACK(b2, 29, 28, b2)                                                          \
  LOOK_UP(upper, #at "+128(%[" #codes "])", 29, t2)                               \
  LOOK_UP(upper, #at "+192(%[" #codes "])", b0, t3)                               \
  ODD_ROWS(g, 2*(u)+1, b1, b3)                                                    \
  UNPACK(29, b0, b1, b0)

// The first group's tables, and what the first UNIT expects.
#define FIRST_UNIT(t0, t1, t2, t3)                                                \
  PUT_TABLES(t0, 0) PUT_TABLES(t1, 4) PUT_TABLES(t2, 8) PUT_TABLES(t3, 12)        \
  LOOK_UP(0, "(%[codes])", 25, t0) LOOK_UP(0, "64(%[codes])", 29, t1)             \
  UNPACK(25, 29, 28, 25)                                                          \
  LOOK_UP(0, "128(%[codes])", 27, t2) LOOK_UP(0, "192(%[codes])", 29, t3)         \
  UNPACK(27, 29, 24, 27)

// A group with tables a0 .. a3, which puts those of the next together in b0 .. b3.
#define GROUP(g, next, next_at, a0, a1, a2, a3, b0, b1, b2, b3)                   \
  UNIT(g, 0, 1, codes, 512*(g), a0, a1, a2, a3, 24, 25, 26, 27,                   \
       PUT_TABLES(b0, 16*(1+(g))), PUT_TABLES(b1, 16*(1+(g))+4))                  \
  UNIT(g, 1, 0, codes, 512*(g)+256, a0, a1, a2, a3, 25, 26, 27, 24,               \
       PUT_TABLES(b2, 16*(1+(g))+8), PUT_TABLES(b3, 16*(1+(g))+12))               \
  UNIT(g, 2, 1, codes, 512*(g)+256, a0, a1, a2, a3, 26, 27, 24, 25, , )           \
  UNIT(g, 3, 0, next, next_at, b0, b1, b2, b3, 27, 24, 25, 26, , )

// A group with tables 20 .. 23, and at its end those of the next.
#define GROUP_OF_MANY(g, next, next_at)                                           \
  UNIT(g, 0, 1, codes, 512*(g), 20, 21, 22, 23, 24, 25, 26, 27, , )               \
  UNIT(g, 1, 0, codes, 512*(g)+256, 20, 21, 22, 23, 25, 26, 27, 24, , )           \
  UNIT(g, 2, 1, codes, 512*(g)+256, 20, 21, 22, 23, 26, 27, 24, 25, ,             \
       PUT_TABLES(20, 16*(1+(g))) PUT_TABLES(21, 16*(1+(g))+4))                   \
  UNIT(g, 3, 0, next, next_at, 20, 21, 22, 23, 27, 24, 25, 26,                    \
       PUT_TABLES(22, 16*(1+(g))+8) PUT_TABLES(23, 16*(1+(g))+12), )

// Two lanes are one output.
#define FINISH_ROW(r, a, b, few_a, few_b)                                         \
  ".if %c[rows] > " #r "\n\t"                                                     \
  ".if %c[rows] <= 4\n\t"                                                         \
  "vpaddd " Z(few_a) ", " Z(a) ", " Z(a) "\n\t"                                   \
  "vpaddd " Z(few_b) ", " Z(b) ", " Z(b) "\n\t"                                   \
  ".endif\n\t"                                                                    \
  "vmovdqa64 " Z(a) ", " Z(28) "\n\t"                                             \
  "vpermt2d " Z(b) ", " Z(30) ", " Z(a) "\n\t"                                    \
  "vpermt2d " Z(b) ", " Z(31) ", " Z(28) "\n\t"                                   \
  "vpaddd " Z(28) ", " Z(a) ", " Z(a) "\n\t"                                      \
  "vmovdqa64 " Z(a) ", 64*" #r "(%[sums])\n\t"                                    \
  ".endif\n\t"

#define CLOBBERED_VECTORS                                                                \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
  "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "xmm16", "xmm17", "xmm18", "xmm19",         \
  "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", "xmm26", "xmm27", "xmm28",         \
  "xmm29", "xmm30", "xmm31"

// Some steps of a panel from step `first` on. kFetch: as kWholeStream says. The last step looks the first lines of its
// own up again in place of those behind it, and reads 16 table numbers too many: codes.
template <int kRows, int kFetch>
inline void SumOctets(const PackedMatmulArgs& args, const uint8_t* panel, int64_t first, int64_t steps,
                      const int8_t* activations, const uint8_t* ahead, int32_t* sums) {
  const uint8_t *tables = panel + first * kTablesOfStep, *codes = panel + args.code_offset + first * kOctetStepBytes;
  const uint8_t* next = nullptr;
  const int64_t far = kFetch == kInTurns ? 3 * args.panel_bytes : args.steps > kFewSteps ? 65536 : 0;
  activations += first * kStepInputs * kRows;
  asm volatile(
      "mov $0x0f0f0f0f, %%eax\n\t"
      "vpbroadcastd %%eax, %%zmm31\n\t"
      ZERO4(0, 1, 2, 3) ZERO4(4, 5, 6, 7) ZERO4(8, 9, 10, 11) ZERO4(12, 13, 14, 15)
      ".if %c[rows] > 8\n\t"
      ZERO4(16, 17, 18, 19) FIRST_UNIT(20, 21, 22, 23)
      ".else\n\t"
      FIRST_UNIT(16, 17, 18, 19)
      ".endif\n\t"
      ".p2align 5\n"
      "1:\n\t"
      ".if %c[fetch] == 16\n\t"
      "prefetcht0 64(%[tables])\n\t"
      ".elseif %c[fetch] > 0\n\t"
      "prefetcht1 (%[tables], %[panel_bytes])\n\t"
      ".endif\n\t"
      "lea 1024(%[codes]), %[next]\n\t"
      "cmp $1, %[steps]\n\t"
      "cmove %[codes], %[next]\n\t"
      ".if %c[rows] > 8\n\t"
      GROUP_OF_MANY(0, codes, 512) GROUP_OF_MANY(1, next, 0)
      ".else\n\t"
      GROUP(0, codes, 512, 16, 17, 18, 19, 20, 21, 22, 23) GROUP(1, next, 0, 20, 21, 22, 23, 16, 17, 18, 19)
      ".endif\n\t"
      "add $1024, %[codes]\n\t"
      "add $32, %[tables]\n\t"
      "add $(128*%c[rows]), %[act]\n\t"
      ".if %c[fetch] == 16\n\t"
      "add $256, %[ahead]\n\t"
      ".else\n\t"
      "add $(128*%c[fetch]), %[ahead]\n\t"
      ".endif\n\t"
      "dec %[steps]\n\t"
      "jnz 1b\n\t"
      "vmovdqa64 (%[places]), %%zmm30\n\t"
      "vmovdqa64 64(%[places]), %%zmm31\n\t"
      FINISH_ROW(0, 0, 8, 4, 12) FINISH_ROW(1, 1, 9, 5, 13) FINISH_ROW(2, 2, 10, 6, 14) FINISH_ROW(3, 3, 11, 7, 15)
      FINISH_ROW(4, 4, 12, 4, 12) FINISH_ROW(5, 5, 13, 5, 13) FINISH_ROW(6, 6, 14, 6, 14) FINISH_ROW(7, 7, 15, 7, 15)
      FINISH_ROW(8, 16, 18, 16, 18) FINISH_ROW(9, 17, 19, 17, 19)
      : [codes] "+r"(codes), [tables] "+r"(tables), [act] "+r"(activations), [ahead] "+r"(ahead),
        [steps] "+r"(steps), [next] "=&r"(next)
      : [dictionary] "r"(args.dictionary), [places] "r"(&kOctetSums), [sums] "r"(sums),
        [panel_bytes] "r"(args.panel_bytes), [far] "r"(far), [rows] "i"(kRows), [fetch] "i"(kFetch)
      : "rax", "cc", "memory", CLOBBERED_VECTORS);
}
// clang-format on
