//! Cooperative matrices by their formula. The first lane of a subgroup holds the elements, by
//! columns.

use super::{Group, Machine};
use crate::code::{Access, FRAME, Matrix, MulAdd, Op, Reg};
use crate::finding::Fault;
use crate::types::{Kind, Leaf};

impl Machine<'_> {
    pub(super) fn matrix(&mut self, group: &mut Group, op: &Op) {
        self.whole_subgroups(group, "the operation on a matrix");
        match *op {
            Op::MatrixLoad(ref matrix, to) => {
                self.each_element(group, matrix, |machine, group, access, leaf, lane, i| {
                    let (bits, number) = machine.read(group, access, leaf, lane);
                    group.columns[(to + i - FRAME) as usize][lane] = bits;
                    group.set_lane(to + i, lane, number);
                });
            }
            Op::MatrixStore(ref matrix, ref from) => {
                self.each_element(group, matrix, |machine, group, access, leaf, lane, i| {
                    let from = from[i as usize];
                    let bits = machine.column(group, from)[lane];
                    let number = group.taint(from).map_or(0, |taint| taint[lane]);
                    machine.write(group, access, leaf, lane, (bits, number));
                });
            }
            Op::MatrixMulAdd(ref op) => self.mul_add(group, op),
            _ => {}
        }
    }

    /// Calls `each` with the place and the number of every element, for every subgroup.
    fn each_element(
        &mut self,
        group: &mut Group,
        &Matrix { access, stride, unit, row_major, columns, rows }: &Matrix,
        each: impl Fn(&mut Self, &mut Group, &Access, &Leaf, usize, u32),
    ) {
        let program = self.program;
        let access = &program.accesses[access as usize];
        let width = self.options.width as usize;
        let size = match (access.memory, access.leaves[0].kind) {
            (crate::code::Memory::Buffer(_), Kind::F16) => 2,
            (crate::code::Memory::Buffer(_), _) => 4,
            _ => 1,
        };
        let active = group.active;
        for first in (0..self.lanes).step_by(width).filter(|first| active.has(*first)) {
            let strides = self.column(group, stride);
            let offsets = access.offset.map(|offset| self.column(group, offset));
            let lanes = first..(first + width).min(self.lanes);
            let differs = lanes.clone().find(|lane| {
                strides[*lane] != strides[first]
                    || offsets.is_some_and(|offsets| offsets[*lane] != offsets[first])
            });
            let stride = unit.wrapping_mul(strides[first]);
            if let Some(other) = differs {
                let what = format!(
                    "invocations {first} and {other} of a subgroup name different matrices"
                );
                self.find(group, Fault::Divergence, Some(first), what);
            }
            for i in 0..columns * rows {
                let (column, row) = (i / rows, i % rows);
                let by = match row_major {
                    true => row.wrapping_mul(stride).wrapping_add(column),
                    false => column.wrapping_mul(stride).wrapping_add(row),
                };
                let leaf = Leaf { at: by.wrapping_mul(size), ..access.leaves[0] };
                each(self, group, access, &leaf, first, i);
            }
        }
    }

    fn mul_add(&mut self, group: &mut Group, op: &MulAdd) {
        let width = self.options.width as usize;
        let &MulAdd { m, n, k, ref a, ref b, ref c, to, kind } = op;
        let active = group.active;
        for lane in (0..self.lanes).step_by(width).filter(|lane| active.has(*lane)) {
            let values = |of: &[Reg]| -> Vec<u32> {
                of.iter().map(|at| self.column(group, *at)[lane]).collect()
            };
            let (a, b, c) = (values(a), values(b), values(c));
            for column in 0..n {
                for row in 0..m {
                    let i = (column * m + row) as usize;
                    let terms =
                        (0..k).map(|j| (a[(j * m + row) as usize], b[(column * k + j) as usize]));
                    let sum = match kind.is_float() {
                        true => {
                            let float = f32::from_bits;
                            let sum =
                                terms.fold(float(c[i]), |sum, (a, b)| sum + float(a) * float(b));
                            match kind {
                                Kind::F16 => super::columns::rounded(sum.to_bits()),
                                _ => sum.to_bits(),
                            }
                        }
                        false => {
                            terms.fold(c[i], |sum, (a, b)| sum.wrapping_add(a.wrapping_mul(b)))
                        }
                    };
                    group.columns[(to - FRAME) as usize + i][lane] = sum;
                    if group.has_taints {
                        let row = (0..k).map(|j| op.a[(j * m + row) as usize]);
                        let mut all = row.chain((0..k).map(|j| op.b[(column * k + j) as usize]));
                        let of = |from| group.taint(from).map_or(0, |taint| taint[lane]);
                        let number = all.find_map(|from| Some(of(from)).filter(|n| *n != 0));
                        group.set_lane(to + i as Reg, lane, number.unwrap_or(of(op.c[i])));
                    }
                }
            }
        }
    }
}
