// SPDX-License-Identifier: Apache-2.0
// Register tiles of octets (packed.h) with AVX-512 VNNI and VBMI: the sums of a panel's 16 outputs by up to 8 code rows
// over all steps, one asm block. Included by matmul_packed_avx512.cc inside its unnamed namespace.
//
// A vector of weights is 8 outputs x 8 inputs, so that eight inputs of a row, a broadcast that costs no vector port,
// meet all outputs at once, and only two lanes are left to add up at the end. One vpermi2b looks 64 codes up in the
// tables of 8 outputs, which lie in two registers. The weights of the next 8 inputs are looked up before the products
// of these, and the next group's tables are put together during this one: the compiler's own order, which waits for
// both, reaches .92 of the multiply peak at 8 rows where this reaches .96 (AMD Zen 4, from L2; .84 and .92 beside a
// busy neighbour, where a tile of w4 lines, 3 outputs x 8 rows, falls from .89 to .80).
//
// Registers: sums 0-7 of outputs 0-7 and 8-15 of outputs 8-15; tables 16-19 and 20-23, two for 8 outputs; weights
// 24, 25 and 26, 27; inputs 28, 29; bytes of 15 in 30; 16 * output in 31. A block is text that the preprocessor puts
// together; conditions on %c[...] are settled by the assembler for each instance of the template.

struct alignas(64) OctetConstants {
  uint8_t nibbles[64] = {}, outputs[64] = {};
  int32_t even[16] = {}, odd[16] = {};

  constexpr OctetConstants() {
    for (int i = 0; i < 64; ++i) {
      nibbles[i] = 15;
      outputs[i] = static_cast<uint8_t>(i / 8 * 16);
    }
    for (int i = 0; i < 16; ++i) {
      even[i] = 2 * i;
      odd[i] = 2 * i + 1;
    }
  }
};
constexpr OctetConstants kOctetConstants;

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

// w and v = weights + 128 of outputs 0-7 and 8-15: the codes of the lines at `line` and 256 bytes on, in their upper
// nibbles or the lower ones, looked up in tables (t0, t1) and (t2, t3). The index is output * 16 + code.
#define LOOK_UP(upper, line, w, v, t0, t1, t2, t3)                                \
  ".if " #upper "\n\t"                                                            \
  "vpsrlw $4, " line ", " Z(w) "\n\t"                                             \
  "vpsrlw $4, 256+" line ", " Z(v) "\n\t"                                         \
  ".else\n\t"                                                                     \
  "vmovdqa64 " line ", " Z(w) "\n\t"                                              \
  "vmovdqa64 256+" line ", " Z(v) "\n\t"                                          \
  ".endif\n\t"                                                                    \
  "vpternlogd $0xEA, " Z(31) ", " Z(30) ", " Z(w) "\n\t"                          \
  "vpternlogd $0xEA, " Z(31) ", " Z(30) ", " Z(v) "\n\t"                          \
  "vpermi2b " Z(t1) ", " Z(t0) ", " Z(w) "\n\t"                                   \
  "vpermi2b " Z(t3) ", " Z(t2) ", " Z(v) "\n\t"

// Inputs 8 i .. 8 i + 7 of group g and row r. Up to four rows have two sums for each half, those of odd i in a and b: a
// product takes 4 cycles and one begins every cycle.
#define ROW(g, i, r, w, v, x, few_a, few_b, many_a, many_b)                       \
  ".if %c[rows] > " #r "\n\t"                                                     \
  "vpbroadcastq 64*(%c[rows]*" #g "+" #r ")+8*" #i "(%[act]), " Z(x) "\n\t"       \
  ".if %c[rows] > 4\n\t"                                                          \
  DOT(many_a, w, x) DOT(many_b, v, x)                                             \
  ".else\n\t"                                                                     \
  DOT(few_a, w, x) DOT(few_b, v, x)                                               \
  ".endif\n\t"                                                                    \
  ".endif\n\t"
#define ROWS_4_7(g, i, w, v)                                                      \
  ROW(g, i, 4, w, v, 28, 4, 12, 4, 12) ROW(g, i, 5, w, v, 29, 5, 13, 5, 13)       \
  ROW(g, i, 6, w, v, 28, 6, 14, 6, 14) ROW(g, i, 7, w, v, 29, 7, 15, 7, 15)
#define EVEN_ROWS(g, i)                                                           \
  ROW(g, i, 0, 24, 25, 28, 0, 8, 0, 8) ROW(g, i, 1, 24, 25, 29, 1, 9, 1, 9)       \
  ROW(g, i, 2, 24, 25, 28, 2, 10, 2, 10) ROW(g, i, 3, 24, 25, 29, 3, 11, 3, 11)   \
  ROWS_4_7(g, i, 24, 25) FETCH(g, i)
#define ODD_ROWS(g, i)                                                            \
  ROW(g, i, 0, 26, 27, 28, 4, 12, 0, 8) ROW(g, i, 1, 26, 27, 29, 5, 13, 1, 9)     \
  ROW(g, i, 2, 26, 27, 28, 6, 14, 2, 10) ROW(g, i, 3, 26, 27, 29, 7, 15, 3, 11)   \
  ROWS_4_7(g, i, 26, 27) FETCH(g, i)

// What is fetched beside line i of group g: see kWholeStream in matmul_packed_avx512.cc.
#define FETCH(g, i)                                                               \
  ".if %c[fetch] == 8\n\t"                                                        \
  "prefetcht0 2048+512*" #g "+64*" #i "(%[codes])\n\t"                            \
  "prefetcht1 8192+512*" #g "+64*" #i "(%[codes])\n\t"                            \
  "prefetcht1 16384+512*" #g "+64*" #i "(%[codes])\n\t"                           \
  "prefetcht1 32768+512*" #g "+64*" #i "(%[codes])\n\t"                           \
  ".elseif %c[fetch] > " #i "\n\t"                                                \
  "prefetcht1 64*(%c[fetch]*" #g "+" #i ")(%[ahead])\n\t"                         \
  ".endif\n\t"

// A group with tables (a0, a1) and (a2, a3), which puts those of the next together in b0 .. b3.
#define GROUP(g, next_line, a0, a1, a2, a3, b0, b1, b2, b3)                       \
  LOOK_UP(1, "512*" #g "(%[codes])", 26, 27, a0, a1, a2, a3)                      \
  PUT_TABLES(b0, 16*(1+(g))) EVEN_ROWS(g, 0)                                        \
  LOOK_UP(0, "512*" #g "+64(%[codes])", 24, 25, a0, a1, a2, a3)                   \
  PUT_TABLES(b1, 16*(1+(g))+4) ODD_ROWS(g, 1)                                       \
  LOOK_UP(1, "512*" #g "+64(%[codes])", 26, 27, a0, a1, a2, a3)                   \
  PUT_TABLES(b2, 16*(1+(g))+8) EVEN_ROWS(g, 2)                                      \
  LOOK_UP(0, "512*" #g "+128(%[codes])", 24, 25, a0, a1, a2, a3)                  \
  PUT_TABLES(b3, 16*(1+(g))+12) ODD_ROWS(g, 3)                                      \
  LOOK_UP(1, "512*" #g "+128(%[codes])", 26, 27, a0, a1, a2, a3) EVEN_ROWS(g, 4)  \
  LOOK_UP(0, "512*" #g "+192(%[codes])", 24, 25, a0, a1, a2, a3) ODD_ROWS(g, 5)   \
  LOOK_UP(1, "512*" #g "+192(%[codes])", 26, 27, a0, a1, a2, a3) EVEN_ROWS(g, 6)  \
  LOOK_UP(0, next_line, 24, 25, b0, b1, b2, b3) ODD_ROWS(g, 7)

// Two lanes are one output: even lanes of a and b, side by side, plus odd ones (in 30, 31).
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

// kFetch: as kWholeStream says. The last step looks the first line of its own up again in place of one behind the panel, and reads 16 table
// numbers too many: codes.
template <int kRows, int kFetch>
inline void SumOctets(const PackedMatmulArgs& args, const uint8_t* panel, const int8_t* activations,
                      const uint8_t* ahead, int32_t* sums) {
  const uint8_t *tables = panel, *codes = panel + args.code_offset, *next = nullptr;
  int64_t steps = args.steps;
  asm volatile(
      "vmovdqa64 %c[at_nibbles](%[constants]), %%zmm30\n\t"
      "vmovdqa64 %c[at_outputs](%[constants]), %%zmm31\n\t"
      ZERO4(0, 1, 2, 3) ZERO4(4, 5, 6, 7) ZERO4(8, 9, 10, 11) ZERO4(12, 13, 14, 15)
      PUT_TABLES(16, 0) PUT_TABLES(17, 4) PUT_TABLES(18, 8) PUT_TABLES(19, 12)
      LOOK_UP(0, "0(%[codes])", 24, 25, 16, 17, 18, 19)
      ".p2align 5\n"
      "1:\n\t"
      ".if %c[fetch] > 0\n\t"
      "prefetcht1 (%[tables], %[panel_bytes])\n\t"
      ".endif\n\t"
      "lea 1024(%[codes]), %[next]\n\t"
      "cmp $1, %[steps]\n\t"
      "cmove %[codes], %[next]\n\t"
      GROUP(0, "512(%[codes])", 16, 17, 18, 19, 20, 21, 22, 23)
      GROUP(1, "0(%[next])", 20, 21, 22, 23, 16, 17, 18, 19)
      "add $1024, %[codes]\n\t"
      "add $32, %[tables]\n\t"
      "add $(128*%c[rows]), %[act]\n\t"
      "add $(128*%c[fetch]), %[ahead]\n\t"
      "dec %[steps]\n\t"
      "jnz 1b\n\t"
      "vmovdqa64 %c[at_even](%[constants]), %%zmm30\n\t"
      "vmovdqa64 %c[at_odd](%[constants]), %%zmm31\n\t"
      FINISH_ROW(0, 0, 8, 4, 12) FINISH_ROW(1, 1, 9, 5, 13) FINISH_ROW(2, 2, 10, 6, 14) FINISH_ROW(3, 3, 11, 7, 15)
      FINISH_ROW(4, 4, 12, 4, 12) FINISH_ROW(5, 5, 13, 5, 13) FINISH_ROW(6, 6, 14, 6, 14) FINISH_ROW(7, 7, 15, 7, 15)
      : [codes] "+r"(codes), [tables] "+r"(tables), [act] "+r"(activations), [ahead] "+r"(ahead),
        [steps] "+r"(steps), [next] "=&r"(next)
      : [dictionary] "r"(args.dictionary), [constants] "r"(&kOctetConstants), [sums] "r"(sums),
        [panel_bytes] "r"(args.panel_bytes), [rows] "i"(kRows), [fetch] "i"(kFetch), [at_nibbles] "i"(offsetof(OctetConstants, nibbles)),
        [at_outputs] "i"(offsetof(OctetConstants, outputs)), [at_even] "i"(offsetof(OctetConstants, even)),
        [at_odd] "i"(offsetof(OctetConstants, odd))
      : "rax", "cc", "memory", CLOBBERED_VECTORS);
}
// clang-format on
