// SPDX-License-Identifier: Apache-2.0
// What all tables that multiply and attend by tiles have. Included inside an unnamed namespace.

constexpr KernelTable WithTiles(KernelTable table) {
  table.reads_lines = true;
  table.reads_interleaved = false;
  table.plan_row_blocks = PlanRowBlocksTiles;
  table.quad_codes = table.multiplies_by_tiles = table.attends_by_tiles = true;
  return table;
}
