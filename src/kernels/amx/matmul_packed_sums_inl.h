// SPDX-License-Identifier: Apache-2.0
// Where the sums of a tile matmul are: registers 0 .. 3 hold those that are added to, the others wait in memory.
// Included inside each target's unnamed namespace, after amx/matmul_packed_stream_inl.h.

// Sums in memory: all four that are in registers, or two.
struct Sums {
  int32_t (*at)[256] = nullptr;
  int count = 0;
};

// From the sums in registers to others, which are zero where inputs begin.
struct SumChange {
  Sums here, coming;
  bool zero, now;
};

// A base class of TileMatmul, not an object that refers to its tiles: the one series of the latter was 4 to 8 % slower
// with 16 to 64 rows, little more than that hour's noise.
template <typename Tiles>
class TileSums {
 protected:
  // For inputs from step `step` on; stay: they are there already.
  SumChange ChangeTo(const Sums& coming, int64_t step, bool stay = false) {
    const SumChange change{here_, coming, step == 0, !stay};
    here_ = coming;
    return change;
  }

  // One of them, before the product that needs it: all four moved together would fill the reorder buffer, which nothing
  // leaves before the products that the stores wait for.
  template <int kSum>
  HYDRANT_INLINE void ChangeSum(const SumChange& change) {
    if (!change.now) return;
    if (kSum < change.here.count) tiles_.template Store<kSum>(change.here.at[kSum]);
    if (kSum >= change.coming.count) return;
    if (change.zero) {
      tiles_.template Zero<kSum>();
    } else {
      tiles_.template Load<kSum>(change.coming.at[kSum]);
    }
  }

  void StoreSums() {
    const SumChange change{here_, {}, false, true};
    ChangeSum<0>(change);
    ChangeSum<1>(change);
    ChangeSum<2>(change);
    ChangeSum<3>(change);
    here_ = {};
  }

  Tiles tiles_;
  Sums here_;  // where those in registers belong
};
