// SPDX-License-Identifier: Apache-2.0
// Runs AMX instructions on x86-64 machines without AMX, or where the system refuses them: there they raise an
// illegal-instruction signal, and its handler decodes and executes them. So the kernel's own object code is tested,
// with its operands, addresses and the places where the compiler put loads and stores. A few microseconds for each.
#pragma once

#include <cpuid.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <ucontext.h>

#include <cstdint>
#include <cstring>

#include "kernels/amx/bf16.h"
#include "kernels/amx/tiles.h"

namespace hydrant::kernels {
namespace {

// Traps tile instructions while it lives. There may be one at a time, and the code must run on the thread that made it.
class TileTrap {
 public:
  TileTrap() {
    Current() = this;
    struct sigaction action = {};
    action.sa_sigaction = Handle;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    sigaction(SIGILL, &action, &before_);
  }
  ~TileTrap() {
    sigaction(SIGILL, &before_, nullptr);
    Current() = nullptr;
  }
  TileTrap(const TileTrap&) = delete;
  TileTrap& operator=(const TileTrap&) = delete;

  int64_t products() const { return products_; }
  int64_t loads() const { return loads_; }
  bool configured() const { return configured_; }

 private:
  // A VEX instruction of the 0F38 map.
  struct Instruction {
    int prefix = 0, opcode = 0;  // prefix: 0 none, 1 66, 2 F3, 3 F2
    int reg = 0, rm = 0, vvvv = 0;
    bool registers = false;  // else memory
    int64_t address = 0, stride = 0;
    int64_t length = 0;
  };

  static TileTrap*& Current() {
    static TileTrap* current = nullptr;
    return current;
  }

  static uint8_t* At(int64_t address) {
    return reinterpret_cast<uint8_t*>(address);  // NOLINT(performance-no-int-to-ptr): of a register
  }

  static int64_t Register(const ucontext_t& context, int number) {
    static constexpr int kPlaces[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                        REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    return context.uc_mcontext.gregs[kPlaces[number]];
  }

  static bool Decode(const ucontext_t& context, Instruction& out) {
    const int64_t rip = context.uc_mcontext.gregs[REG_RIP];
    const uint8_t* code = At(rip);
    if (code[0] != 0xc4 || (code[1] & 31) != 2 || (code[2] & 0x84) != 0) return false;  // 0F38, W0, 128 bits
    const int r = (~code[1] >> 7 & 1) * 8, x = (~code[1] >> 6 & 1) * 8, b = (~code[1] >> 5 & 1) * 8;
    out.vvvv = ~code[2] >> 3 & 15;
    out.prefix = code[2] & 3;
    out.opcode = code[3];
    const int mod = code[4] >> 6, rm = code[4] & 7;
    out.reg = (code[4] >> 3 & 7) + r;
    out.rm = rm + b;
    out.registers = mod == 3;
    const uint8_t* next = code + 5;
    if (!out.registers) {
      bool has_base = true;
      int base = out.rm;
      if (rm == 4) {
        const int sib = *next++, index = (sib >> 3 & 7) + x;
        base = (sib & 7) + b;
        has_base = mod != 0 || (sib & 7) != 5;
        if (index != 4) out.stride = Register(context, index) << (sib >> 6);
      }
      const bool from_rip = mod == 0 && rm == 5;
      int32_t displacement = 0;
      if (mod == 1) {
        displacement = (*next++ ^ 128) - 128;
      } else if (mod == 2 || from_rip || !has_base) {
        std::memcpy(&displacement, next, 4);
        next += 4;
      }
      const int64_t after = rip + (next - code);
      out.address = displacement + (from_rip ? after : has_base ? Register(context, base) : 0);
    }
    out.length = next - code;
    return true;
  }

  // Where the system refuses tiles, a processor that has them still executes LDTILECFG and TILERELEASE. The
  // configuration is then in the signal's frame. Returns its place in the frame's XSAVE area, or 0.
  static int64_t ConfigInFrame() {
    constexpr unsigned kTiles = 1U << 24, kConfigComponent = 17;
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 || (edx & kTiles) == 0) return 0;
    return __get_cpuid_count(0xd, kConfigComponent, &eax, &ebx, &ecx, &edx) != 0 ? ebx : 0;
  }

  bool ExecuteIn(const ucontext_t& context, const Instruction& instruction) {
    if (config_in_frame_ == 0) return Execute(instruction);
    std::memcpy(&config_, reinterpret_cast<const uint8_t*>(context.uc_mcontext.fpregs) + config_in_frame_,
                sizeof(config_));
    configured_ = config_.palette == 1;
    const bool done = Execute(instruction);
    configured_ = false;
    return done;
  }

  static void Handle(int, siginfo_t*, void* raw) {
    auto& context = *static_cast<ucontext_t*>(raw);
    Instruction instruction;
    if (Current() == nullptr || !Decode(context, instruction) || !Current()->ExecuteIn(context, instruction)) {
      signal(SIGILL, SIG_DFL);  // not ours: the instruction is tried again and ends the process
      return;
    }
    context.uc_mcontext.gregs[REG_RIP] += instruction.length;
  }

  bool Execute(const Instruction& instruction) {
    const int opcode = instruction.opcode, prefix = instruction.prefix;
    uint8_t* memory = At(instruction.address);
    if (opcode == 0x49 && prefix == 0 && !instruction.registers) {  // LDTILECFG
      std::memcpy(&config_, memory, sizeof(config_));
      std::memset(tiles_, 0, sizeof(tiles_));
      configured_ = true;
      return config_.palette == 1;
    }
    if (!configured_ || instruction.reg > 7) return false;
    if (opcode == 0x49 && prefix == 0) {  // TILERELEASE
      configured_ = false;
      return true;
    }
    if (opcode == 0x49 && prefix == 3) {  // TILEZERO
      std::memset(tiles_[instruction.reg], 0, kTileBytes);
      return true;
    }
    if (opcode == 0x4b && !instruction.registers) return Move(prefix, instruction.reg, memory, instruction.stride);
    if (opcode == 0x5e && (prefix == 1 || prefix == 2)) {  // TDPBUSD, TDPBSUD
      return Multiply(instruction.reg, instruction.rm, instruction.vvvv, prefix == 2);
    }
    if (opcode == 0x5c && prefix == 2) {  // TDPBF16PS
      return MultiplyBf16(instruction.reg, instruction.rm, instruction.vvvv);
    }
    return false;
  }

  // TILELOADD (F2), TILELOADDT1 (66), TILESTORED (F3).
  bool Move(int prefix, int tile, uint8_t* memory, int64_t stride) {
    loads_ += prefix != 2 ? 1 : 0;
    if (prefix != 2) std::memset(tiles_[tile], 0, kTileBytes);
    for (int64_t m = 0; m < config_.rows[tile]; ++m) {
      uint8_t* inside = tiles_[tile] + m * kTileRowBytes;
      uint8_t* outside = memory + m * stride;
      std::memcpy(prefix == 2 ? outside : inside, prefix == 2 ? inside : outside, config_.row_bytes[tile]);
    }
    return prefix != 0;
  }

  bool Fit(int c, int a, int b) const {
    return a < 8 && b < 8 && config_.row_bytes[a] == 4 * config_.rows[b] && config_.rows[a] == config_.rows[c] &&
           config_.row_bytes[b] == config_.row_bytes[c];
  }

  static int32_t Factor(uint8_t byte, bool is_signed) { return is_signed ? (byte ^ 128) - 128 : byte; }

  bool Multiply(int c, int a, int b, bool signed_a) {
    if (!Fit(c, a, b)) return false;
    ++products_;
    for (int64_t m = 0; m < config_.rows[c]; ++m) {
      for (int64_t n = 0; n < config_.row_bytes[c] / 4; ++n) {
        uint8_t* place = tiles_[c] + m * kTileRowBytes + 4 * n;
        uint32_t sum;
        std::memcpy(&sum, place, 4);
        for (int64_t k = 0; k < config_.row_bytes[a]; ++k) {
          const int32_t left = Factor(tiles_[a][m * kTileRowBytes + k], signed_a);
          sum += static_cast<uint32_t>(left * Factor(tiles_[b][k / 4 * kTileRowBytes + 4 * n + k % 4], !signed_a));
        }
        std::memcpy(place, &sum, 4);
      }
    }
    return true;
  }

  bool MultiplyBf16(int c, int a, int b) {
    if (!Fit(c, a, b)) return false;
    ++products_;
    for (int64_t m = 0; m < config_.rows[c]; ++m) {
      for (int64_t n = 0; n < config_.row_bytes[c] / 4; ++n) {
        float chains[2] = {};
        for (int64_t k = 0; k < config_.row_bytes[a] / 2; ++k) {
          const float left = Bf16Factor(tiles_[a] + m * kTileRowBytes + 2 * k);
          const float right = Bf16Factor(tiles_[b] + k / 2 * kTileRowBytes + 4 * n + k % 2 * 2);
          float& chain = chains[k % 2];
          chain = FlushFused(left, right, chain, __builtin_fmaf(left, right, chain));
        }
        uint8_t* place = tiles_[c] + m * kTileRowBytes + 4 * n;
        float sum;
        std::memcpy(&sum, place, 4);
        sum = FlushDenormal(FlushDenormal(sum) + FlushDenormal(chains[0] + chains[1]));
        std::memcpy(place, &sum, 4);
      }
    }
    return true;
  }

  struct sigaction before_ = {};
  const int64_t config_in_frame_ = ConfigInFrame();
  TileConfig config_;
  bool configured_ = false;
  int64_t products_ = 0, loads_ = 0;
  alignas(64) uint8_t tiles_[8][kTileBytes] = {};
};

}  // namespace
}  // namespace hydrant::kernels
