//! WGSL's names of subgroup operations.

use naga::{CollectiveOperation, Expression, GatherMode, Handle, SubgroupOperation};

/// WGSL's name of a collective operation.
pub(super) fn collective(op: SubgroupOperation, of: CollectiveOperation) -> &'static str {
    use {CollectiveOperation as C, SubgroupOperation as S};
    match (of, op) {
        (_, S::All) => "subgroupAll",
        (_, S::Any) => "subgroupAny",
        (_, S::Min) => "subgroupMin",
        (_, S::Max) => "subgroupMax",
        (_, S::And) => "subgroupAnd",
        (_, S::Or) => "subgroupOr",
        (_, S::Xor) => "subgroupXor",
        (C::Reduce, S::Add) => "subgroupAdd",
        (C::Reduce, S::Mul) => "subgroupMul",
        (C::InclusiveScan, S::Add) => "subgroupInclusiveAdd",
        (C::InclusiveScan, S::Mul) => "subgroupInclusiveMul",
        (C::ExclusiveScan, S::Add) => "subgroupExclusiveAdd",
        (C::ExclusiveScan, S::Mul) => "subgroupExclusiveMul",
    }
}

/// WGSL's name of a gathering operation; whether all invocations get one result; an operand that
/// must be uniform.
pub(super) fn gather(mode: GatherMode) -> (&'static str, bool, Option<Handle<Expression>>) {
    match mode {
        GatherMode::BroadcastFirst => ("subgroupBroadcastFirst", true, None),
        GatherMode::Broadcast(_) => ("subgroupBroadcast", true, None),
        GatherMode::Shuffle(_) => ("subgroupShuffle", false, None),
        GatherMode::ShuffleDown(by) => ("subgroupShuffleDown", false, Some(by)),
        GatherMode::ShuffleUp(by) => ("subgroupShuffleUp", false, Some(by)),
        GatherMode::ShuffleXor(by) => ("subgroupShuffleXor", false, Some(by)),
        GatherMode::QuadBroadcast(_) => ("quadBroadcast", false, None),
        GatherMode::QuadSwap(naga::Direction::X) => ("quadSwapX", false, None),
        GatherMode::QuadSwap(naga::Direction::Y) => ("quadSwapY", false, None),
        GatherMode::QuadSwap(naga::Direction::Diagonal) => ("quadSwapDiagonal", false, None),
    }
}
