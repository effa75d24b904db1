// SPDX-License-Identifier: Apache-2.0
// Where the sums of a tile matmul are: registers 0 .. 3 hold those that are added to, the others wait in memory.
// Included inside each target's unnamed namespace, after amx/matmul_packed_stream_inl.h.

// Sums of four registers in memory, or of two.
struct Sums {
  int32_t (*at)[256] = nullptr;
  int count = 0;
};

// Replaces the sums in registers by others, which begin with zero at the first inputs.
struct SumChange {
  Sums here, coming;
  bool zero, now;
};

// A base class of TileMatmul, and not an object that refers to its tiles: in the one series that was measured, such an
// object was 4 to 8 % slower with 16 to 64 rows, little more than the noise of that hour.
template <typename Tiles>
class TileSums {
 protected:
  // The change to the sums `coming` for inputs from step `step` on. stay: they are in the registers already.
  SumChange ChangeTo(const Sums& coming, int64_t step, bool stay = false) {
    const SumChange change{here_, coming, step == 0, !stay};
    here_ = coming;
    return change;
  }

  // Changes one sum, before the product that needs it. Moving all four together would fill the reorder buffer, where
  // the stores wait for the products before them.
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
  Sums here_;  // where the sums in registers belong
};
