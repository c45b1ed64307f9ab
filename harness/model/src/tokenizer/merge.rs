//! Byte-pair merging: the best pair of neighbours becomes one symbol, until none can.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A stretch of the text, in bytes, and the token it is, if it is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Symbol {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) id: Option<u32>,
}

/// What two neighbours may become. The lowest rank goes first, of equal ones the leftmost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Merge {
    pub(super) rank: u32,
    pub(super) id: u32,
}

/// A merge seen when `symbols[left]` ended at `mid` and its neighbour at `end`. It is stale when
/// either no longer does. The order of fields is the order of merging.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    rank: u32,
    left: usize,
    mid: usize,
    end: usize,
    id: u32,
}

#[derive(Debug)]
struct Node {
    symbol: Symbol,
    previous: Option<usize>,
    next: Option<usize>,
}

/// Merges `symbols`, which follow one another without gaps and are not empty, in O(n log n) calls
/// of `find`.
pub(super) fn merge(
    symbols: &[Symbol],
    find: impl Fn(&Symbol, &Symbol) -> Option<Merge>,
) -> Vec<Symbol> {
    let mut nodes: Vec<Node> = symbols
        .iter()
        .enumerate()
        .map(|(index, &symbol)| Node {
            symbol,
            previous: index.checked_sub(1),
            next: Some(index + 1).filter(|&next| next < symbols.len()),
        })
        .collect();
    let candidate = |nodes: &[Node], left: usize| {
        let (first, second) = (&nodes[left].symbol, &nodes[nodes[left].next?].symbol);
        let Merge { rank, id } = find(first, second)?;
        Some(Reverse(Candidate { rank, left, mid: first.end, end: second.end, id }))
    };
    let mut queue: BinaryHeap<_> =
        (0..nodes.len()).filter_map(|left| candidate(&nodes, left)).collect();

    while let Some(Reverse(Candidate { left, mid, end, id, .. })) = queue.pop() {
        let Some(right) = nodes[left].next else { continue };
        if nodes[left].symbol.end != mid || nodes[right].symbol.end != end {
            continue;
        }
        nodes[left].symbol.end = end;
        nodes[left].symbol.id = Some(id);
        nodes[left].next = nodes[right].next;
        // A symbol that is gone ends where it starts and has no neighbour: every candidate that
        // begins with it is stale.
        nodes[right].symbol.end = nodes[right].symbol.start;
        nodes[right].next = None;
        if let Some(next) = nodes[left].next {
            nodes[next].previous = Some(left);
        }
        queue.extend(candidate(&nodes, left));
        queue.extend(nodes[left].previous.and_then(|previous| candidate(&nodes, previous)));
    }
    nodes.iter().map(|node| node.symbol).filter(|symbol| symbol.start < symbol.end).collect()
}
