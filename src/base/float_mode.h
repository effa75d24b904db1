// SPDX-License-Identifier: Apache-2.0
// How this thread rounds and treats denormal numbers. A program may have set either for itself, and a thread inherits
// them from the one that starts it, so results would depend on which thread computes them.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace hydrant::base {

// While it lives, this thread rounds to nearest even, keeps denormal numbers and raises no exceptions; then what was
// set before holds again.
class DefaultFloatMode {
 public:
#if defined(__x86_64__)
  DefaultFloatMode() : before_(_mm_getcsr()) { _mm_setcsr(kDefault); }
  ~DefaultFloatMode() { _mm_setcsr(before_); }
#else
  DefaultFloatMode() {}
  ~DefaultFloatMode() {}
#endif
  DefaultFloatMode(const DefaultFloatMode&) = delete;
  DefaultFloatMode& operator=(const DefaultFloatMode&) = delete;

 private:
#if defined(__x86_64__)
  static constexpr unsigned kDefault = 0x1f80;  // MXCSR: all exceptions masked, nothing flushed
  unsigned before_;
#endif
};

// From now on this thread, and those that it starts, take denormal numbers for zeros. For training, where squares of
// small gradients are denormal and cost a hundred times as much: ten times in all.
inline void FlushDenormals() {
#if defined(__x86_64__)
  constexpr unsigned kDaz = 1U << 6, kFtz = 1U << 15;
  _mm_setcsr(_mm_getcsr() | kDaz | kFtz);
#endif
}

}  // namespace hydrant::base
