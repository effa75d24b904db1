// SPDX-License-Identifier: Apache-2.0
// Register tiles of octets (packed.h) with AVX-512 VNNI and VBMI: the sums of a panel's 16 outputs by up to 10 code
// rows over all steps, one asm block. Included by avx512/matmul_packed.cc inside its unnamed namespace.
//
// A vector of weights is 8 outputs x 8 inputs. So eight inputs of a row, broadcast without using a vector port, meet
// all eight outputs at once, and only two lanes of an output are left to add up at the end. A line is two such vectors,
// one in its lower and one in its upper nibbles. 128 bits of it are two outputs that share a table, so one vpshufb
// looks up the whole line. On Zen 4 vpshufb, vpandd and shifts find ports beside products. vpermi2b, vpternlog and
// broadcasts of 16 bytes, which outputs with tables of their own or longer lanes would need, do not. Share of the
// multiply peak against unpacked lines of 4 outputs x 16 inputs, which take twice as many instructions for those ports:
//   rows                         3      4      5      6      8
//   from L2, 4 x 16              0.75   0.85   0.93   0.97   0.985
//   from L2, 8 x 8               0.88   0.95   0.98   0.98   0.99
//   busy neighbour, 4 x 16              0.74          0.88   0.89
//   busy neighbour, 8 x 8               0.89          0.94   0.95
//
// The weights of the next eight inputs are looked up between the products of the eight before. The tables of the next
// group are put together during the group before.
//
// Registers:
//   sums of rows 0 .. 7         0-7 (outputs 0-7) and 8-15 (outputs 8-15)
//   sums of rows 8 and 9        16, 17 (outputs 0-7) and 18, 19 (outputs 8-15)
//   tables of even groups       20 (outputs 0-7), 21 (outputs 8-15)
//   tables of odd groups        22 (outputs 0-7), 23 (outputs 8-15)
//   weights 24-27, inputs 30, bytes of 15 in 31
// A block is text that the preprocessor puts together. The assembler settles conditions on %c[...] for each instance of
// the template.

constexpr int64_t kTablesOfStep = 2 * kPanelPairs, kOctetStepBytes = 1024;

// Each output has two sums, in two vectors whose lanes belong to outputs 0 0 1 1 .. 7 7 and 8 8 .. 15 15. Here is
// where.
struct OctetSums {
  int32_t first[16] = {}, second[16] = {};

  constexpr OctetSums() {
    for (int o = 0; o < 16; ++o) {
      first[o] = 2 * o;
      second[o] = 2 * o + 1;
    }
  }
};
alignas(64) constexpr OctetSums kOctetSums;

// clang-format off
#define Z(n) "%%zmm" #n
#define ZERO4(a, b, c, d) ZERO(a) ZERO(b) ZERO(c) ZERO(d)
#define ZERO(a) "vpxord " Z(a) ", " Z(a) ", " Z(a) "\n\t"
#define DOT(a, w, x) "vpdpbusd " Z(x) ", " Z(w) ", " Z(a) "\n\t"

// Puts the tables of four pairs of outputs, whose numbers begin at `place`, side by side in t.
#define TABLE_OFFSET(place) "movzbl " place "(%[tables]), %%eax\n\tshl $4, %%eax\n\t"
#define INSERT_TABLE(t, place, p)                                                 \
  TABLE_OFFSET(#place "+" #p)                                                     \
  "vinserti32x4 $" #p ", (%[dictionary], %%rax), " Z(t) ", " Z(t) "\n\t"
#define PUT_TABLES(t, place)                                                      \
  TABLE_OFFSET(#place) "vmovdqa64 (%[dictionary], %%rax), %%xmm" #t "\n\t"         \
  INSERT_TABLE(t, place, 1) INSERT_TABLE(t, place, 2) INSERT_TABLE(t, place, 3)

// w = weights + 128: looks the upper or lower codes of a line up in the tables in t.
#define LOOK_UP(upper, line, w, t)                                                \
  ".if " #upper "\n\t"                                                            \
  "vpsrlw $4, " line ", " Z(w) "\n\t"                                             \
  "vpandd " Z(31) ", " Z(w) ", " Z(w) "\n\t"                                      \
  ".else\n\t"                                                                     \
  "vpandd " line ", " Z(31) ", " Z(w) "\n\t"                                      \
  ".endif\n\t"                                                                    \
  "vpshufb " Z(w) ", " Z(t) ", " Z(w) "\n\t"

// Multiplies inputs 8 i .. 8 i + 7 of group g and row r. With up to four rows each half has two sums, few_a and few_b
// for odd i: a product takes 4 cycles, and one can begin in every cycle.
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

// What is fetched beside eight inputs of group g: see kWholeStream in avx512/matmul_packed.cc.
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

// Multiplies sixteen inputs, from 16 u on, of group g, with tables a and b and lines at `at`. The weights of the first
// eight inputs are in (24, 25) already. At the end (24, 25) hold those for the next UNIT, looked up from the lines at
// `next_at` of `next` in the tables next_a and next_b.
#define UNIT(g, u, at, a, b, next, next_at, next_a, next_b, put_tables)            \
  put_tables                                                                      \
  LOOK_UP(1, #at "(%[codes])", 26, a) LOOK_UP(1, #at "+64(%[codes])", 27, b)      \
  EVEN_ROWS(g, 2*(u), 24, 25)                                                     \
  LOOK_UP(0, #next_at "(%[" #next "])", 24, next_a)                               \
  LOOK_UP(0, #next_at "+64(%[" #next "])", 25, next_b)                            \
  ODD_ROWS(g, 2*(u)+1, 26, 27)

// Puts the first group's tables together, and looks up what the first UNIT expects.
#define FIRST_UNIT                                                                \
  PUT_TABLES(20, 0) PUT_TABLES(21, 4)                                             \
  LOOK_UP(0, "(%[codes])", 24, 20) LOOK_UP(0, "64(%[codes])", 25, 21)

// Multiplies a group with tables a and b, and puts the next group's tables together in next_a and next_b.
#define GROUP(g, next, next_at, a, b, next_a, next_b)                             \
  UNIT(g, 0, 512*(g), a, b, codes, 512*(g)+128, a, b, PUT_TABLES(next_a, 8*(1+(g))))       \
  UNIT(g, 1, 512*(g)+128, a, b, codes, 512*(g)+256, a, b, PUT_TABLES(next_b, 8*(1+(g))+4)) \
  UNIT(g, 2, 512*(g)+256, a, b, codes, 512*(g)+384, a, b, )                       \
  UNIT(g, 3, 512*(g)+384, a, b, next, next_at, next_a, next_b, )

// Adds the two lanes of each output, and stores a row's sums.
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

// Sums up some steps of a panel, from step `first` on. kFetch: see kWholeStream. later: 128 bytes a step that
// kPrefetchRows rows and more fetch as well. There is nothing behind the last step. So it looks its own first lines up
// again, and reads 8 bytes of codes as table numbers, without using what comes of that.
template <int kRows, int kFetch>
inline void SumOctets(const PackedMatmulArgs& args, const uint8_t* panel, int64_t first, int64_t steps,
                      const int8_t* activations, const uint8_t* ahead, const uint8_t* later, int32_t* sums) {
  const uint8_t *tables = panel + first * kTablesOfStep, *codes = panel + args.code_offset + first * kOctetStepBytes;
  const uint8_t* next = nullptr;
  int64_t far = kFetch == kInTurns ? 3 * args.panel_bytes : args.steps > kFewSteps ? 65536 : 0;
  if (kFetch != kInTurns && kRows >= kPrefetchRows) far = reinterpret_cast<int64_t>(later);
  activations += first * kStepInputs * kRows;
  asm volatile(
      "mov $0x0f0f0f0f, %%eax\n\t"
      "vpbroadcastd %%eax, %%zmm31\n\t"
      ZERO4(0, 1, 2, 3) ZERO4(4, 5, 6, 7) ZERO4(8, 9, 10, 11) ZERO4(12, 13, 14, 15)
      ".if %c[rows] > 8\n\t"
      ZERO4(16, 17, 18, 19)
      ".endif\n\t"
      FIRST_UNIT
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
      GROUP(0, codes, 512, 20, 21, 22, 23) GROUP(1, next, 0, 22, 23, 20, 21)
      "add $1024, %[codes]\n\t"
      "add $16, %[tables]\n\t"
      "add $(128*%c[rows]), %[act]\n\t"
      ".if %c[fetch] == 16\n\t"
      "add $256, %[ahead]\n\t"
      ".else\n\t"
      "add $(128*%c[fetch]), %[ahead]\n\t"
      ".if %c[rows] >= %c[prefetch_rows]\n\t"
      "prefetcht1 (%[far])\n\t"
      "prefetcht1 64(%[far])\n\t"
      "add $128, %[far]\n\t"
      ".endif\n\t"
      ".endif\n\t"
      "dec %[steps]\n\t"
      "jnz 1b\n\t"
      "vmovdqa64 (%[places]), %%zmm30\n\t"
      "vmovdqa64 64(%[places]), %%zmm31\n\t"
      FINISH_ROW(0, 0, 8, 4, 12) FINISH_ROW(1, 1, 9, 5, 13) FINISH_ROW(2, 2, 10, 6, 14) FINISH_ROW(3, 3, 11, 7, 15)
      FINISH_ROW(4, 4, 12, 4, 12) FINISH_ROW(5, 5, 13, 5, 13) FINISH_ROW(6, 6, 14, 6, 14) FINISH_ROW(7, 7, 15, 7, 15)
      FINISH_ROW(8, 16, 18, 16, 18) FINISH_ROW(9, 17, 19, 17, 19)
      : [codes] "+r"(codes), [tables] "+r"(tables), [act] "+r"(activations), [ahead] "+r"(ahead),
        [steps] "+r"(steps), [next] "=&r"(next), [far] "+r"(far)
      : [dictionary] "r"(args.dictionary), [places] "r"(&kOctetSums), [sums] "r"(sums),
        [panel_bytes] "r"(args.panel_bytes), [rows] "i"(kRows), [fetch] "i"(kFetch), [prefetch_rows] "i"(kPrefetchRows)
      : "rax", "cc", "memory", CLOBBERED_VECTORS);
}
// clang-format on
